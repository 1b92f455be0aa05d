// The control connection of `weft perf`: one JSON object per line over TCP.
//
// Either side may be a stranger: lines are bounded, every wait has a deadline, and what arrives is
// only ever read through the checked accessors below. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "weft/command.h"
#include "weft/common/net.h"

namespace weft::cli {

using Json = nlohmann::json;

// Changes when two versions of `weft` could not understand each other.
inline constexpr int kControlVersion = 1;
inline constexpr std::size_t kControlLineBytes = 64 * 1024;

class ControlConnection {
 public:
  ControlConnection() = default;
  explicit ControlConnection(UniqueFd fd);

  // One message. Fails if the peer is gone or takes nothing for 10 s.
  [[nodiscard]] Outcome<void> send(const Json& message);

  // The next message, which must be an object with a string "type".
  //   "timed out", "closed", "not a message of weft perf": the connection is of no more use
  [[nodiscard]] Outcome<Json> receive(int timeout_ms);
  // As receive(), and the type must be `type`. A message of type "failed" becomes a failure that
  // says what the peer said.
  [[nodiscard]] Outcome<Json> expect(std::string_view type, int timeout_ms);

  // Takes a complete message if one has arrived whole; does not wait.
  [[nodiscard]] Outcome<std::optional<Json>> receive_now();

  // True if something waits to be read: a message, or the end of the connection.
  [[nodiscard]] bool has_news() const;
  // Puts a message back: the next receive takes it again.
  void unread(Json message) { unread_ = std::move(message); }

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool is_open() const { return static_cast<bool>(fd_); }
  void close() { fd_.reset(); }

 private:
  [[nodiscard]] Outcome<std::optional<Json>> take_line();
  [[nodiscard]] Outcome<bool> read_some(int flags);

  UniqueFd fd_;
  std::optional<Json> unread_;
  std::string buffer_;  // received, not yet taken; at most one line and what came with it
};

// Checked access to the members of a message. A missing member or one of another type gives the
// default; numbers out of range too.
[[nodiscard]] std::uint64_t get_count(const Json& object, const char* key,
                                      std::uint64_t otherwise = 0);
[[nodiscard]] double get_number(const Json& object, const char* key, double otherwise = 0);
[[nodiscard]] bool get_bool(const Json& object, const char* key, bool otherwise = false);
[[nodiscard]] std::string get_text(const Json& object, const char* key);

// Watches a control connection while a test runs over other connections: cheap enough to be asked
// often, because it looks at the clock only, and at the socket every 20 ms.
class Watch {
 public:
  // `limit_s`: the test as a whole must be over by then. A message of type `expected` is left where
  // it is: the peer may be a step ahead.
  Watch(ControlConnection& control, double limit_s, std::string_view expected = {});

  // Fails when the peer has closed, has reported a failure, or the time is up.
  [[nodiscard]] Outcome<void> check();

  // After a failure of the test's own connections: if the peer says within a moment why it gave up,
  // that is the better explanation.
  [[nodiscard]] Failure explain(Failure seen);

 private:
  [[nodiscard]] Outcome<void> read_news();

  ControlConnection& control_;
  const double limit_s_;
  const std::string expected_;
  bool ahead_ = false;  // the expected message has come
  std::int64_t deadline_ns_;
  std::int64_t next_look_ns_;
};

}  // namespace weft::cli
