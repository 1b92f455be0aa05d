// The rule file: which connections of which programs are plain TCP.
//
//   # use tcp ROLE PROGRAM ADDRESS:PORT
//   use tcp *       postgres     *:5432
//   use tcp connect *            10.0.0.0/8:*
//   use tcp listen  redis-server [::1]:6379-6400
//
// `connect`: connections that the program begins, by the address of the peer. `listen`: those that
// it accepts, and its listeners, by their own address.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace weft::sockets {

enum class Role : std::uint8_t { kConnect, kListen };

struct Rule {
  bool connect = true;
  bool listen = true;
  char program[64] = "*";  // "*" or a name
  int family = AF_UNSPEC;  // AF_UNSPEC: any address
  std::uint8_t address[16] = {};
  unsigned prefix = 0;
  std::uint16_t port_first = 0;
  std::uint16_t port_last = 65535;
  int line = 0;
};

class Rules {
 public:
  static constexpr std::size_t kMost = 256;

  // Reads `path`. False: `why` has "PATH:LINE:COLUMN: what is wrong; what is legal".
  [[nodiscard]] bool load(const char* path, char* why, std::size_t why_size);
  // The same for text in memory.
  [[nodiscard]] bool parse(const char* text, const char* name, char* why, std::size_t why_size);
  // The first rule that fits; null: none.
  [[nodiscard]] const Rule* find(Role role, const char* program, const sockaddr* address) const;

 private:
  Rule rules_[kMost];
  std::size_t count_ = 0;
};

}  // namespace weft::sockets
