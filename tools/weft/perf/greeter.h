// Takes control connections and finds out which of them are clients, without being held up by those
// that are not: a stranger may say nothing, or anything. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/perf/control.h"

namespace weft::cli {

struct Client {
  ControlConnection control;
  SocketAddress peer;
  Json hello;
};

class Greeter {
 public:
  static constexpr std::size_t kPending = 64;  // that have not said hello; the oldest has to go
  static constexpr int kHelloTimeoutMs = 5000;

  Greeter(UniqueFd listener, bool quiet) : listener_(std::move(listener)), quiet_(quiet) {}

  // The next client that has said a proper hello; waits forever.
  [[nodiscard]] Client next();
  [[nodiscard]] int fd() const { return listener_.get(); }

 private:
  struct Pending {
    ControlConnection control;
    SocketAddress peer;
    std::int64_t deadline_ns;
  };
  void accept_one();
  void drop_late();
  // False: go on waiting for this one.
  [[nodiscard]] bool read_hello(Pending& pending, std::vector<Client>& ready);
  void refuse(Pending& pending, const std::string& why);

  UniqueFd listener_;
  const bool quiet_;
  std::vector<Pending> pending_;
  std::vector<Client> ready_;
};

}  // namespace weft::cli
