// Plain TCP sockets for the control connection and for the TCP contenders.
#pragma once

#include <weft/address.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "weft/command.h"

namespace weft::cli {

// Owns a descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Congestion control and buffers asked for; what the kernel refuses is left as it was.
struct SocketChoice {
  std::string congestion;          // "" or "keep": the system's
  std::uint32_t buffer_bytes = 0;  // 0: the kernel tunes
};
void apply(const SocketChoice& choice, int fd);

// Whether this process may choose congestion control `name`; the failure lists those it may.
[[nodiscard]] Outcome<void> check_congestion(const std::string& name);

[[nodiscard]] std::string congestion_of(int fd);
// As the kernel reports them: twice what was set, or where autotuning stands now.
[[nodiscard]] int send_buffer_of(int fd);
[[nodiscard]] int receive_buffer_of(int fd);
void set_nonblocking(int fd, bool on);
void set_no_delay(int fd);
// recv() and send() on a blocking socket come back with EAGAIN after so long.
void set_io_timeout(int fd, int timeout_ms);
// Makes the kernel notice a peer that vanished without a word.
void set_keepalive(int fd);

// Listens on `where`; an IPv6 wildcard takes IPv4 too, and becomes the IPv4 wildcard on machines
// without IPv6. Port 0 chooses one.
[[nodiscard]] Outcome<UniqueFd> tcp_listen(const SocketAddress& where, int backlog,
                                           const SocketChoice& choice = {});
[[nodiscard]] Outcome<UniqueFd> tcp_connect(const SocketAddress& peer, int timeout_ms,
                                            const SocketChoice& choice = {});
// The next connection; empty if none came in time. Blocking, close-on-exec.
[[nodiscard]] UniqueFd tcp_accept(int listener, int timeout_ms);

// IPv4 addresses that a dual-stack socket shows as ::ffff:a.b.c.d come back as IPv4.
[[nodiscard]] SocketAddress local_address_of(int fd);
[[nodiscard]] SocketAddress peer_address_of(int fd);

// True once `fd` is readable.
[[nodiscard]] bool wait_readable(int fd, int timeout_ms);

// Whole buffers on a blocking or non-blocking socket, within `timeout_ms` in all.
[[nodiscard]] bool write_all(int fd, const void* data, std::size_t size, int timeout_ms);
[[nodiscard]] bool read_all(int fd, void* data, std::size_t size, int timeout_ms);

}  // namespace weft::cli
