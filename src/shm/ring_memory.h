// The memory that two processes of one machine share for one connection: a control page, and a
// buffer of bytes for each direction.
//
// Nothing in it can be trusted: the peer may change any octet at any time. What the peer can not do
// is take the memory away. The file is sealed against a change of its size, so an access never
// meets a page that is gone (SIGBUS).
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "os/fd.h"
#include "os/fork.h"

namespace weft::shm {

// A direction of fewer bytes does not hold the largest FPDU; a larger one leaves the cache.
inline constexpr std::uint32_t kRingBytesMin = 128U << 10U;
inline constexpr std::uint32_t kRingBytesMax = 16U << 20U;
inline constexpr std::uint32_t kRingBytesDefault = 256U << 10U;

[[nodiscard]] constexpr bool is_ring_size(std::uint32_t bytes) noexcept {
  return bytes >= kRingBytesMin && bytes <= kRingBytesMax && (bytes & (bytes - 1)) == 0;
}

// The words that one side writes and the other reads. Each word has its own cache line, and the
// line beside it, which CPUs fetch together. Positions count octets and wrap; they are taken modulo
// the size of the buffer to find the place.
struct RingSide {
  static constexpr std::size_t kLine = 128;
  alignas(kLine) std::atomic<std::uint32_t> head;     // behind the last octet this side has written
  alignas(kLine) std::atomic<std::uint32_t> tail;     // ... has read from the other buffer
  alignas(kLine) std::atomic<std::uint32_t> waiting;  // RingWait: what this side sleeps for
  // 1: this side sends no more. In the line of `waiting`: the two are read together.
  std::atomic<std::uint32_t> closed;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// The two processes that share a memory, as the kernel names them.
struct RingParties {
  pid_t peer_pid = 0;  // 0: in a PID namespace that ours does not see
  uid_t peer_user = 0;
  gid_t peer_group = 0;
  uid_t user = 0;  // ours
  gid_t group = 0;
  bool operator==(const RingParties&) const = default;
};

// Move-only; the owner unmaps it. A child of fork() has no such mapping: the copy of this object
// there does nothing.
class RingMemory {
 public:
  // Fresh memory of zeros with `bytes` for each direction.  REQUIRES: is_ring_size(bytes).
  //   kNoMemory, kSystem   stay on TCP
  [[nodiscard]] static Result<RingMemory> create(std::uint32_t bytes);

  // Memory that the peer has made. Takes the descriptor, whatever it is of.
  //   kProtocol   not what create() makes, or not of `bytes` for each direction
  //   kNoMemory, kSystem   stay on TCP
  [[nodiscard]] static Result<RingMemory> adopt(os::Fd file, std::uint32_t bytes);

  RingMemory(RingMemory&& o) noexcept;
  RingMemory& operator=(RingMemory&&) = delete;
  ~RingMemory();

  // The descriptor to pass on; -1 after secure().
  [[nodiscard]] int fd() const noexcept { return file_.get(); }

  // Both sides have mapped the memory: from now on no page can be taken out of it either, by
  // anybody. Each side calls it before it uses the memory; closes the descriptor. Does nothing the
  // second time.
  //   kProtocol   the peer has sealed the file in a way that prevents this
  //   kNoMemory   the machine does not have the pages
  [[nodiscard]] Status secure();

  // Sides and buffers: 0 belongs to who created the memory, 1 to who adopted it. A side owns the
  // buffer that it writes.
  [[nodiscard]] RingSide& side(std::size_t which) const noexcept;
  [[nodiscard]] std::uint8_t* buffer(std::size_t which) const noexcept;
  [[nodiscard]] std::uint32_t buffer_bytes() const noexcept { return bytes_; }

 private:
  RingMemory(os::Fd file, void* base, std::uint32_t bytes) noexcept;
  [[nodiscard]] static Result<RingMemory> map(os::Fd file, std::uint32_t bytes);

  os::ForkGuard fork_;
  os::Fd file_;
  std::uint8_t* base_ = nullptr;
  std::uint32_t bytes_ = 0;
};

}  // namespace weft::shm
