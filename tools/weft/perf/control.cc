#include "weft/perf/control.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "weft/common/sysinfo.h"

namespace weft::cli {
namespace {

constexpr int kSendTimeoutMs = 10'000;
constexpr std::int64_t kLookEveryNs = 20'000'000;

}  // namespace

ControlConnection::ControlConnection(UniqueFd fd) : fd_(std::move(fd)) {
  set_no_delay(fd_.get());
  set_keepalive(fd_.get());
}

Outcome<void> ControlConnection::send(const Json& message) {
  // Text that is not UTF-8 (a peer's error message, say) must not turn into an exception here.
  std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  line += '\n';
  if (fd_ && write_all(fd_.get(), line.data(), line.size(), kSendTimeoutMs)) return {};
  return failure("the other side has closed the control connection");
}

Outcome<std::optional<Json>> ControlConnection::take_line() {
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos) {
    if (buffer_.size() >= kControlLineBytes) return failure("not a message of weft perf");
    return std::optional<Json>();
  }
  Json message = Json::parse(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(end),
                             nullptr, false);
  buffer_.erase(0, end + 1);
  if (!message.is_object() || get_text(message, "type").empty()) {
    return failure("not a message of weft perf");
  }
  return std::optional<Json>(std::move(message));
}

// False: nothing there now.
Outcome<bool> ControlConnection::read_some(int flags) {
  char chunk[4096];
  const ssize_t n = recv(fd_.get(), chunk, sizeof(chunk), flags);
  if (n > 0) {
    buffer_.append(chunk, static_cast<std::size_t>(n));
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  return failure("the other side has closed the control connection");
}

Outcome<std::optional<Json>> ControlConnection::receive_now() {
  if (unread_) return std::exchange(unread_, std::nullopt);
  while (true) {
    auto line = take_line();
    if (!line || line->has_value()) return line;
    const auto more = read_some(MSG_DONTWAIT);
    if (!more) return tl::unexpected(more.error());
    if (!*more) return std::optional<Json>();
  }
}

Outcome<Json> ControlConnection::receive(int timeout_ms) {
  const std::int64_t deadline = now_ns() + std::int64_t{timeout_ms} * 1'000'000;
  while (true) {
    auto message = receive_now();
    if (!message) return tl::unexpected(message.error());
    if (message->has_value()) return std::move(**message);
    const std::int64_t left_ms = (deadline - now_ns()) / 1'000'000;
    if (left_ms <= 0 || !wait_readable(fd_.get(), static_cast<int>(left_ms))) {
      return failure(fmt::format("the other side has not answered for {} s", timeout_ms / 1000));
    }
  }
}

Outcome<Json> ControlConnection::expect(std::string_view type, int timeout_ms) {
  auto message = receive(timeout_ms);
  if (!message) return message;
  const std::string got = get_text(*message, "type");
  if (got == type) return message;
  if (got == "failed") {
    return failure(fmt::format("the other side says: {}", get_text(*message, "message")));
  }
  return failure(
      fmt::format("the other side sent '{}' where '{}' was due; it must run the same "
                  "version of weft",
                  got, type));
}

bool ControlConnection::has_news() const {
  if (!buffer_.empty()) return true;
  char byte = 0;
  return recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
         (errno != EAGAIN && errno != EINTR);
}

std::uint64_t get_count(const Json& object, const char* key, std::uint64_t otherwise) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_number_unsigned()) return otherwise;
  return member->get<std::uint64_t>();
}

double get_number(const Json& object, const char* key, double otherwise) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_number()) return otherwise;
  return member->get<double>();
}

bool get_bool(const Json& object, const char* key, bool otherwise) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_boolean()) return otherwise;
  return member->get<bool>();
}

std::string get_text(const Json& object, const char* key) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_string()) return "";
  return member->get<std::string>();
}

Watch::Watch(ControlConnection& control, double limit_s, std::string_view expected)
    : control_(control),
      limit_s_(limit_s),
      expected_(expected),
      deadline_ns_(now_ns() + static_cast<std::int64_t>(limit_s * 1e9)),
      next_look_ns_(0) {}

Outcome<void> Watch::read_news() {
  auto message = control_.receive(1000);
  if (!message) return tl::unexpected(message.error());
  const std::string type = get_text(*message, "type");
  if (type == "failed") {
    return failure(fmt::format("the other side says: {}", get_text(*message, "message")));
  }
  if (!expected_.empty() && type == expected_) {
    ahead_ = true;
    control_.unread(std::move(*message));
    return {};
  }
  return failure(fmt::format("the other side sent '{}' in the middle of a test", type));
}

Outcome<void> Watch::check() {
  const std::int64_t now = now_ns();
  if (now < next_look_ns_) return {};
  next_look_ns_ = now + kLookEveryNs;
  if (!ahead_ && control_.has_news()) {
    if (auto ok = read_news(); !ok) return ok;
  }
  if (now > deadline_ns_) {
    return failure(fmt::format("the test was not over after {:.0f} s", limit_s_));
  }
  return {};
}

Failure Watch::explain(Failure seen) {
  constexpr int kMomentMs = 300;
  if (ahead_) return seen;
  if (!control_.has_news() && !wait_readable(control_.fd(), kMomentMs)) return seen;
  auto news = read_news();
  return news ? seen : Failure{fmt::format("{} ({})", news.error().message, seen.message)};
}

}  // namespace weft::cli
