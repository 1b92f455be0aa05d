// Messages between the processes of a lab, over sockets that keep messages apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/command.h"
#include "weft/common/net.h"

namespace weft::cli {

// A shell's exit status for a command that a signal ended, less the signal.
inline constexpr int kStatusOfSignal = 128;

struct LabMessage {
  enum class Kind : std::uint32_t {
    kReady,   // a host is set up. fds: its network interface
    kFailed,  // it is not. text: why
    kStart,   // a command of the lab. id: names it; value: which; fds: stdin, stdout, stderr
    kExec,    // another one: text: LabExec; fds: the same
    kSignal,  // to a command. value: the signal
    kEnded,   // a command has. value: its exit status as a shell says it
    kClient,  // somebody on a host has connected to the lab. fds: that connection
  };
  Kind kind = Kind::kReady;
  std::uint32_t id = 0;
  std::int32_t value = 0;
  std::string text;
  std::vector<UniqueFd> fds;
};

// A command to execute: for a shell, on which host, in which folder.
struct LabExec {
  std::string host;
  std::string command;
  std::string folder;
  std::vector<std::string> environment;
};
[[nodiscard]] std::string as_text(const LabExec& exec);
[[nodiscard]] LabExec exec_of(const std::string& text);

// Both ends of a connection.
struct LabPair {
  UniqueFd one, other;
};
[[nodiscard]] Outcome<LabPair> make_lab_pair();

// Whether to wait for a receiver that has not taken earlier messages. The lab never waits for a
// host or a user: a host that waits for the lab meanwhile would wait for ever.
enum class SendWait : std::uint8_t { kNo, kYes };
// False, with errno: it was not sent.
bool send_message(int fd, const LabMessage& message, SendWait wait);
// Waits for one. False: the other side has gone.
bool receive_message(int fd, LabMessage& message);

}  // namespace weft::cli
