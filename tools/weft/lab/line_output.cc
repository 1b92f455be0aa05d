#include "weft/lab/line_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace weft::cli {
namespace {

constexpr std::size_t kLongestLine = 64 << 10;  // a longer one is cut

// A reader that has gone takes nothing more; the programs go on.
void write_all_to(int stream, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(stream, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      pollfd room{stream, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (n < 0 && errno != EINTR) {
      return;
    }
  }
}

}  // namespace

Outcome<UniqueFd> LineOutput::add(int stream, std::string before) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return failure(fmt::format("pipe: {}", std::strerror(errno)));
  UniqueFd ours(ends[0]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  sources_.push_back({std::move(ours), stream, std::move(before), {}});
  return UniqueFd(ends[1]);
}

void LineOutput::add_to(std::vector<pollfd>& polled) const {
  for (const Source& source : sources_) polled.push_back({source.fd.get(), POLLIN, 0});
}

void LineOutput::read_from(const std::vector<pollfd>& polled) {
  for (const pollfd& one : polled) {
    if (one.fd < 0 || one.revents == 0) continue;
    const auto source =
        std::ranges::find_if(sources_, [&](const Source& each) { return each.fd.get() == one.fd; });
    if (source != sources_.end()) read_some(*source);
  }
}

void LineOutput::drain() {
  for (Source& source : sources_) {
    if (source.fd) read_some(source);
    print(source, true);
  }
}

void LineOutput::read_some(Source& source) {
  char part[16 << 10];
  ssize_t got = 0;
  while ((got = read(source.fd.get(), part, sizeof part)) > 0) {
    source.line.append(part, static_cast<std::size_t>(got));
    print(source, false);
  }
  if (got == 0) source.fd.reset();
}

// Whole lines, one write() for all of them.
void LineOutput::print(Source& source, bool all) {
  std::string out;
  std::string& text = source.line;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    out += source.before + text.substr(begin, end + 1 - begin);
  text.erase(0, begin);
  if (!text.empty() && (all || text.size() > kLongestLine)) {
    out += source.before + text + "\n";
    text.clear();
  }
  write_all_to(source.stream, out);
}

}  // namespace weft::cli
