#include "weft/lab/line_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace weft::cli {
namespace {

constexpr std::size_t kLongestLine = 64 << 10;  // a longer one is cut
constexpr std::size_t kAtOnce = 4096;  // a pipe that is ready takes so much without waiting

bool is_ready(int stream) {
  pollfd room{stream, POLLOUT, 0};
  return poll(&room, 1, 0) > 0;
}

// Whole lines, if one fits.
std::size_t part_of(std::string_view text) {
  const std::size_t most = std::min(text.size(), kAtOnce);
  const std::size_t end = text.substr(0, most).rfind('\n');
  return end == std::string_view::npos ? most : end + 1;
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
  for (const auto& [stream, text] : waiting_) polled.push_back({stream, POLLOUT, 0});
  for (const Source& source : sources_) {
    if (!waiting_.contains(source.stream)) polled.push_back({source.fd.get(), POLLIN, 0});
  }
}

void LineOutput::serve(const std::vector<pollfd>& polled) {
  for (const pollfd& one : polled) {
    if (one.fd < 0 || one.revents == 0) continue;
    if (waiting_.contains(one.fd)) write_some(one.fd);
    const auto source =
        std::ranges::find_if(sources_, [&](const Source& each) { return each.fd.get() == one.fd; });
    if (source != sources_.end()) read_some(*source);
  }
}

void LineOutput::take_rest() {
  for (Source& source : sources_) {
    int left = 0;
    if (source.fd) ioctl(source.fd.get(), FIONREAD, &left);
    for (int got = 1; source.fd && left > 0 && got > 0; left -= got) got = read_some(source);
    source.fd.reset();
    print(source, true);
  }
}

// How many bytes it has read.
int LineOutput::read_some(Source& source) {
  char part[16 << 10];
  const ssize_t got = read(source.fd.get(), part, sizeof part);
  if (got > 0) {
    source.line.append(part, static_cast<std::size_t>(got));
    print(source, false);
  } else if (got == 0) {
    source.fd.reset();
  }
  return static_cast<int>(std::max<ssize_t>(got, 0));
}

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
  if (out.empty()) return;
  waiting_[source.stream] += out;
  write_some(source.stream);
}

void LineOutput::write_some(int stream) {
  std::string& text = waiting_[stream];
  std::size_t done = 0;
  while (done < text.size() && is_ready(stream)) {
    const std::string_view rest = std::string_view(text).substr(done);
    const ssize_t n = write(stream, rest.data(), part_of(rest));
    if (n > 0) done += static_cast<std::size_t>(n);
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return lose(stream);
    break;
  }
  text.erase(0, done);
  if (text.empty()) waiting_.erase(stream);
}

// Nobody reads it any more: the programs get SIGPIPE, as without a lab.
void LineOutput::lose(int stream) {
  waiting_.erase(stream);
  for (Source& source : sources_) {
    if (source.stream != stream) continue;
    source.fd.reset();
    source.line.clear();
  }
}

}  // namespace weft::cli
