// `--self`: the other side as a second process on this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

// Owns the child. It goes when its owner goes, whichever way that is.
class ServerProcess {
 public:
  // Runs this program with `arguments` plus `--announce-fd N`, and reads the port from there.
  [[nodiscard]] static Outcome<ServerProcess> start(std::vector<std::string> arguments);

  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess();

  [[nodiscard]] std::uint16_t port() const { return port_; }

  // For a server that serves until it is told otherwise: its owner need not wait for it.
  void tell_to_end() const;

 private:
  ServerProcess(pid_t pid, std::uint16_t port) : pid_(pid), port_(port) {}

  pid_t pid_;
  std::uint16_t port_;
};

// Which CPUs the two sides get: the first two of those allowed, or -1 and -1 with fewer.
struct PinPair {
  int client = -1;
  int server = -1;
};
[[nodiscard]] PinPair choose_pins();
[[nodiscard]] std::string pin_text(int cpu);  // "cpu 0" or "not pinned"

}  // namespace weft::cli
