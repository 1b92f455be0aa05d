// `weft report`: runs bench/compare, the installed copy or the one of the source tree.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "weft/command.h"
#include "weft/common/arguments.h"

namespace weft::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> arguments;
};

Outcome<std::string> own_path() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return failure(fmt::format("/proc/self/exe: {}", std::strerror(errno)));
  return std::string(path.data(), static_cast<std::size_t>(length));
}

// Installed: PREFIX/bin/weft and PREFIX/share/weft/compare. In the source tree: build/PRESET/bin.
Outcome<std::string> find_compare(const std::string& weft) {
  const std::string folder = weft.substr(0, weft.rfind('/'));
  for (const char* relative : {"/../share/weft/compare/compare", "/../../../bench/compare"}) {
    std::string path = folder + relative;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return failure(fmt::format(
      "the program bench/compare is neither in {0}/../share/weft/compare nor in a source tree "
      "around {0}: install Weft with cmake --install",
      folder));
}

Outcome<int> run_report(const ReportOptions& o) {
  const Outcome<std::string> weft = own_path();
  if (!weft) return tl::unexpected(weft.error());
  const Outcome<std::string> compare = find_compare(*weft);
  if (!compare) return tl::unexpected(compare.error());
  // It measures this very program, unless the user names another.
  std::vector<std::string> texts{*compare, "--weft", *weft};
  texts.insert(texts.end(), o.arguments.begin(), o.arguments.end());
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  setenv("WEFT_COMPARE_NAME", "weft report", 1);  // in its help and messages
  execv(compare->c_str(), arguments.data());
  return failure(
      fmt::format("{}: {} (it needs python3 and python3-jinja2)", *compare, std::strerror(errno)),
      kExitCannotExecute);
}

}  // namespace

void add_report(Arguments& app) {
  auto options = std::make_shared<ReportOptions>();
  Arguments* command = app.add_subcommand(
      "report", "Measure Weft beside other programs and write a page with plots");
  // Everything is the other program's, its --help too.
  command->take_all();
  when_chosen(*command, [options, command] {
    options->arguments = command->remaining();
    return run_report(*options);
  });
}

}  // namespace weft::cli
