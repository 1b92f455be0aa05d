// How a running server tells its owner and root, by `weft serve --status`, how it is, and takes a
// new token from them, by `weft serve --reload`.
//
// The server listens in the abstract space of Unix sockets, under a name made from its port. A
// caller says what it wants, nothing or a token, and shuts its side; the server answers with one
// text. One thread, and no caller makes it wait.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "files/protocol/outcome.h"
#include "os/fd.h"

namespace weft::files {

class StatusPort {
 public:
  // The server's words to callers that may have them: how it is, and whether it takes their token.
  struct Answers {
    std::function<std::string()> status;
    std::function<Outcome<void>(std::string)> take_token;
  };

  StatusPort() = default;
  //   EADDRINUSE   another process of this network namespace has the name
  [[nodiscard]] static Outcome<StatusPort> open(std::uint16_t port);

  // Readable while somebody asks; -1 without open().
  [[nodiscard]] int fd() const { return ready_.get(); }
  // Answers all that have said what they want.
  void answer(const Answers& answers);
  // Without a descriptor to take a caller by, callers wait for a while: fd() is not readable
  // because of them, and tick() has to be called.
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool has_deadline() const { return resumes_ != Clock::time_point(); }
  void tick(Clock::time_point now);

 private:
  struct Caller {
    os::Fd socket;
    std::string said;
  };
  void take_callers();
  void listen(bool on) const;
  [[nodiscard]] bool serve(Caller& caller, const Answers& answers) const;

  os::Fd listener_;
  os::Fd ready_;  // epoll: the listener and the callers
  std::vector<Caller> callers_;
  Clock::time_point resumes_{};  // to take callers; none: it does
};

// Asks the server of this machine at that port.
//   ECONNREFUSED   there is none
//   EACCES         it belongs to another user
//   ETIMEDOUT      it does not answer
[[nodiscard]] Outcome<std::string> ask_status(std::uint16_t port);

// Gives the server of this machine at that port, which is the process `server`, another token.
//   As ask_status(), and
//   ESRCH   another process has the port: it is told nothing
[[nodiscard]] Outcome<void> give_token(std::uint16_t port, pid_t server, std::string_view token);

}  // namespace weft::files
