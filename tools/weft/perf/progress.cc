#include "weft/perf/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "weft/common/parse.h"
#include "weft/common/sysinfo.h"

namespace weft::cli {
namespace {

constexpr double kWorthShowingSeconds = 2;

}  // namespace

Progress::Progress(const Plan& plan, bool wanted)
    : plan_(plan),
      active_(wanted && isatty(STDERR_FILENO) == 1 &&
              plan.estimated_seconds >= kWorthShowingSeconds),
      begin_ns_(now_ns()) {}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(std::size_t step) {
  if (!active_) return;
  const Step& at = plan_.steps[step];
  const TestSpec& spec = plan_.contenders[at.contender];
  const double gone = static_cast<double>(now_ns() - begin_ns_) * 1e-9;
  // The plan's own estimate until the run has shown its speed.
  double left = plan_.estimated_seconds - gone;
  if (step > 2) {
    const auto steps = static_cast<double>(plan_.steps.size());
    left = gone / static_cast<double>(step) * (steps - static_cast<double>(step));
  }
  fmt::print(stderr, "\r\033[K[{}/{}] {} {} {}{}, {:.0f} s left", step + 1, plan_.steps.size(),
             at.verify ? "verifying" : fmt::format("round {}:", at.round + 1),
             name_of(spec.transport), name_of(spec.op),
             spec.size == 0 ? "" : " " + format_size(spec.size), std::max(left, 0.0));
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace weft::cli
