// How a running server tells its owner and root, by `weft serve --status`, how it is.
//
// The server listens in the abstract space of Unix sockets, under a name made from its port, and
// writes one text to each caller that may have it. One thread, and no caller makes it wait.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "files/protocol/outcome.h"
#include "os/fd.h"

namespace weft::files {

class StatusPort {
 public:
  StatusPort() = default;
  //   EADDRINUSE   another process of this network namespace has the name
  [[nodiscard]] static Outcome<StatusPort> open(std::uint16_t port);

  // Readable while somebody asks; -1 without open().
  [[nodiscard]] int fd() const { return listener_.get(); }
  // Answers all that ask. `text` is called for those that may know.
  void answer(const std::function<std::string()>& text) const;

 private:
  os::Fd listener_;
};

// Asks the server of this machine at that port.
//   ECONNREFUSED   there is none
//   EACCES         it belongs to another user
//   ETIMEDOUT      it does not answer
[[nodiscard]] Outcome<std::string> ask_status(std::uint16_t port);

}  // namespace weft::files
