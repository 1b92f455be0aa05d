// What the parts of the preload library share: decisions, replacing a socket by a channel's end.
//
//   preload_setup.cc    connect, listen, accept; which connections go over RDMA
//   preload_data.cc     read, write and their sisters
//   preload_wait.cc     poll, select, epoll
//   preload_numbers.cc  close, dup, fcntl, ioctl, fork
//   preload_exec.cc     exec, and children of vfork()
//   preload_relay.cc    sockets for holders that can't be followed; passing descriptors on
//   preload_options.cc  options and names
//
// Threads: any. A program's own calls come in here, so no call of the C++ library that allocates
// may be on the way of a plain socket's data.
#pragma once

#include <cerrno>

#include "sockets/preload/socket_table.h"
#include "sockets/real_calls.h"

namespace weft::sockets {

// Off for programs that the rules leave out altogether.
[[nodiscard]] bool preload_active();

// Says on stderr why a connection took which path, if WEFT_SOCKETS_WHY asks for it.
void tell_why(const char* role, const sockaddr* address, const char* path, const char* reason);
// ... and notes it for `weft stat`. REQUIRES: as list::note() of socket_list.h.
void note_path(int fd, const char* role, const sockaddr* address, const char* path,
               const char* reason);

// --- preload_setup.cc ---

// The TOS octet of a SYN whose sender will ask for RDMA: a server that speaks first waits for it.
inline constexpr int kSynMark = 0x2c;

// A number that is not known yet: looks what it is.
Kind classify(int fd);
// From now on such a number is the kernel's, without a look.
void stop_classifying();
// A socket whose connection has come to be meanwhile goes to RDMA, if it shall.
void advance_connecting(int fd);
// A channel that is not in the place of any number yet.
struct Opened {
  Channel* channel = nullptr;
  int socket = -1;  // our end of the pair
  int flags = 0;    // of the TCP socket, before the relay made it its own: F_GETFL
  int error = 0;    // without a channel: why there is none, an errno
};
// An accepted connection that is about to be inherited by a program which may not be under Weft:
// decides it as decide(fd, true) does, without touching `fd` or the table. No channel: it is TCP.
[[nodiscard]] Opened open_undecided(int fd);

enum class Verdict { kDecided, kNotYet };
// Looks at the first octets of an accepted connection. `to_write`: the program is about to speak
// first, so that the peer must have asked by now.
Verdict decide(int fd, bool to_write);
// Kind after what can be decided now has been decided. `to_write` as above.
Kind resolve(int fd, bool to_write);
// Waits until an undecided connection says something. False with errno.
bool await_opening(int fd, bool wait);
void begin_listening(int fd);
void note_fresh(int fd);

// Puts the channel in the place of the TCP socket `fd`: same number, flags and watchers. False: all
// stays as it was, and the channel is the caller's still.
bool replace_by_channel(int fd, const Opened& opened, Conn* conn);

// --- preload_exec.cc ---

// This process is a child of vfork(): its memory is its parent's, whose table must not learn of
// what it does to its descriptors.
[[nodiscard]] bool borrowing();
// The memory is this process's own: it has just begun, or was made by fork().
void own_memory();
// In a child of vfork(): `fd` stands for `conn` from now on, or for nothing of ours (null).
void note_borrowed(int fd, const Conn* conn);
// The connection behind a number, as this process sees it: one that has a channel, or is not
// decided yet.
[[nodiscard]] const Conn* conn_now(int fd);

// --- preload_relay.cc ---

// When a relay begins to take octets: at once, or when its holder first touches the socket.
enum class RelayStart : std::uint8_t { kNow, kOnTouch };
// For a holder that we can't follow (another program, stdio): an ordinary socket which a process of
// its own relays to and from the channel, whose descriptor here is `number`. -1 with errno.
int relayed_copy(Channel* channel, int number, RelayStart start);
// The number `fd` becomes such a socket itself, and with it the other numbers of its connection.
bool make_relayed(int fd, RelayStart start);
// This process is about to use `fd`: if it is such a socket, its relay begins.
void begin_relayed(int fd);

// The names that a relayed socket carries for its holder.
bool names_of_relayed(int fd, sockaddr_storage& local, socklen_t& local_length,
                      sockaddr_storage& peer, socklen_t& peer_length);

// A message whose descriptors are about to be passed on: ends of channels are replaced by ordinary
// sockets for the receiver.
class PassedOn {
 public:
  explicit PassedOn(const msghdr* message);
  ~PassedOn();
  PassedOn(const PassedOn&) = delete;
  PassedOn& operator=(const PassedOn&) = delete;
  [[nodiscard]] bool ready() const { return ready_; }  // false with errno
  [[nodiscard]] const msghdr* message() const { return changed_ ? &copy_ : given_; }

 private:
  static constexpr int kMost = 253;  // the kernel's limit for one message
  const msghdr* given_;
  msghdr copy_{};
  bool changed_ = false;
  bool ready_ = true;
  alignas(cmsghdr) char control_[2048];
  int made_[kMost];
  int made_count_ = 0;
};

// --- preload_numbers.cc ---

// A function of the C library that is not in RealCalls.
[[nodiscard]] void* real_symbol(const char* name);

inline bool blocks(const Channel& channel, int flags) {
  return (flags & MSG_DONTWAIT) == 0 && channel.end().nonblocking.load() == 0;
}

inline int fail_with(int error) {
  errno = error;
  return -1;
}

}  // namespace weft::sockets
