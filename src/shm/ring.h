// A stream of bytes in both directions through shared memory, between two processes of one machine.
//
// One end of it. One thread at a time; the other end belongs to another process, or to another
// thread in tests. send() and receive() make no system call unless the peer has said that it
// sleeps.
//
// The peer is not trusted. Each of its positions is read once and bounded before it is used, and
// our own positions are never read back from the shared memory. A peer that writes nonsense there
// ends the connection (kProtocol), or garbles the bytes that it sends us; it can do no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "base/slice.h"
#include "os/fd.h"
#include "shm/ring_memory.h"

namespace weft::shm {

// The memory of a ring whose connection is over, for another one between the same two processes.
struct SpareRing {
  RingMemory memory;
  std::size_t side = 0;
  RingParties parties;
};

class Ring {
 public:
  // `side`: 0 for who created the memory, 1 for who adopted it. `bell`: a connected Unix stream
  // socket whose other end the peer holds; an octet in it means "wake up". It is a socket and not
  // an eventfd because the flags of an eventfd belong to both processes: the peer could take
  // O_NONBLOCK away and let our next wake-up block.
  Ring(RingMemory memory, os::Fd bell, std::size_t side, const RingParties& parties = {}) noexcept;
  // Our positions begin anew.  REQUIRES: the peer has let go of this memory, too, and does not use
  // it before it knows of this call.
  Ring(SpareRing spare, os::Fd bell) noexcept
      : Ring(std::move(spare.memory), std::move(bell), spare.side, spare.parties) {}
  Ring(Ring&&) noexcept = default;
  Ring& operator=(Ring&&) = delete;
  ~Ring() = default;

  // See RingMemory::secure(). Before anything else here.
  [[nodiscard]] Status secure() { return memory_.secure(); }

  // The connection is over. None if the peer broke the ring, or can't be told from other processes.
  [[nodiscard]] std::optional<SpareRing> spare() && noexcept;

  // Copies octets in; returns how many. 0: no room now.
  //   kProtocol   the peer broke the ring, now or earlier
  [[nodiscard]] Result<std::size_t> send(std::span<const Slice> slices) noexcept;
  // Where the next octets go, for who writes them there: then commit(), or send() in its place.
  // Empty: send() says why. Up to the end of the buffer only.
  [[nodiscard]] std::span<std::uint8_t> room() noexcept;
  // The first `n` octets of room() are written.
  void commit(std::size_t n) noexcept;
  // Copies octets out, in order; returns how many. 0: nothing there now.
  //   kProtocol   as above
  [[nodiscard]] Result<std::size_t> receive(std::span<const Slice> slices) noexcept;

  // The octets that are there, for who reads them where they lie: the peer may change them at any
  // moment. Empty: receive() says why. Up to the end of the buffer only.
  [[nodiscard]] std::span<const std::uint8_t> view() noexcept;
  // The first `n` octets of view() have been read, and are no longer looked at. `n` > 0.
  void consume(std::size_t n) noexcept;

  // Whether receive() has something to say. A hint: the peer can make it lie.
  [[nodiscard]] bool maybe_readable() const noexcept {
    return theirs_->head.load(std::memory_order_acquire) != tail_;
  }
  // For who looks again and again: asks for the place of the next octets. The writer's cache gives
  // them up together with its position then, and not one behind the other.
  void expect() const noexcept;
  // Octets sent that the peer has not taken yet. At most buffer_bytes().
  [[nodiscard]] std::uint32_t unread_by_peer() const noexcept;
  // Octets sent since it was made, modulo 2^32.
  [[nodiscard]] std::uint32_t sent() const noexcept { return head_; }
  [[nodiscard]] std::uint32_t buffer_bytes() const noexcept { return bytes_; }

  // Tells a polling peer that we send no more; a sleeping one learns it from the connection behind
  // the ring.
  void close_sending() noexcept { ours_->closed.store(1, std::memory_order_release); }
  // The peer has said so. A hint, which says when to look at the connection behind the ring.
  [[nodiscard]] bool peer_closed_hint() const noexcept {
    return theirs_->closed.load(std::memory_order_acquire) != 0;
  }

  // --- sleep ---

  // Readable when the peer wakes us, and when it is gone.
  [[nodiscard]] int bell() const noexcept { return bell_.get(); }
  // The ring is of no use without it.
  [[nodiscard]] os::Fd take_bell() noexcept { return std::move(bell_); }
  // Says that we are about to sleep until there is room, or data. False: there is now; do not
  // sleep. After true the owner sleeps on bell(), then calls cancel_sleep(), or this again.
  [[nodiscard]] bool prepare_sleep(bool for_room, bool for_data = true) noexcept;
  // For a sleeper that finds no room to write: waits for room, too. False: there is room now. What
  // it waits for already stays, so data that comes or has come still wakes it.
  [[nodiscard]] bool also_wait_for_room() noexcept;
  // The peer has woken us since prepare_sleep(), or nobody said that we sleep.
  [[nodiscard]] bool was_rung() const noexcept {
    return ours_->waiting.load(std::memory_order_acquire) == 0;
  }
  // Awake again, for whatever reason. False: the peer has closed the bell, which ends the
  // connection.
  [[nodiscard]] bool cancel_sleep() noexcept;

 private:
  [[nodiscard]] bool see_tail() noexcept;
  void publish_head() noexcept;
  void fetch_ahead() const noexcept;
  void publish_tail(std::uint32_t left) noexcept;
  void note_read(std::uint32_t there, std::uint32_t left) noexcept;
  void wake() noexcept;
  [[nodiscard]] std::uint32_t used() const noexcept { return head_ - seen_tail_; }

  RingMemory memory_;
  RingParties parties_;
  os::Fd bell_;
  std::size_t side_;
  RingSide* ours_;
  RingSide* theirs_;
  std::uint8_t* out_;            // we write here
  const std::uint8_t* in_;       // we read here
  std::uint32_t bytes_;          // of each
  std::uint32_t head_ = 0;       // ours, the true one
  std::uint32_t tail_ = 0;       // ours, the true one
  std::uint32_t seen_tail_ = 0;  // the peer's, checked
  std::uint32_t viewed_ = 0;     // there at the last view()
  bool writer_unseen_ = false;   // octets were read since we looked whether the peer waits for room
  bool broken_ = false;
};

}  // namespace weft::shm
