// Reads and atomics under way on a stream: the peer's, in the order in which they are answered, and
// our own, in the order of their responses. The memory of each list comes with its first entry, as
// most connections never see a Read.
//
// One thread at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/arena.h"
#include "base/seq.h"
#include "proto/cursor.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::proto {

// Entries of a list for so many at once: the lists are rings.
constexpr std::uint32_t request_list_size(std::uint32_t depth) noexcept {
  return std::bit_ceil(std::max<std::uint32_t>(depth, 1));
}

// A Read or Atomic Request of the peer, served in order.
struct InboundRequest {
  ReadRequest read;
  bool is_atomic = false;
  std::uint32_t request_id = 0;
  std::uint32_t sent = 0;        // response octets built so far
  Msn msn;                       // of the request
  std::uint64_t original = 0;    // atomic: the old value
  std::uint64_t end_offset = 0;  // transmit offset behind the response, once built
};

// From arrival over the response that is built to the one that has been taken by the transport.
class InboundRequests {
 public:
  explicit InboundRequests(std::uint32_t depth) : mask_(request_list_size(depth) - 1) {}

  // Before the first slot(). False: there is no memory.
  [[nodiscard]] bool allocate() noexcept;
  [[nodiscard]] bool allocate(Arena& memory) noexcept;

  [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
  [[nodiscard]] std::uint32_t count() const noexcept { return tail_ - head_; }
  // Some response has not been built.
  [[nodiscard]] bool wait() const noexcept { return build_ != tail_; }

  // The place of the next one that arrives; counts once it is added.
  [[nodiscard]] InboundRequest& slot() noexcept { return list_[tail_ & mask_]; }
  void add() noexcept { ++tail_; }
  // The one to be answered next. REQUIRES: wait().
  [[nodiscard]] InboundRequest& next() noexcept { return list_[build_ & mask_]; }
  void built(StreamOffset end) noexcept {
    next().end_offset = end;
    ++build_;
  }
  // The transport has taken all octets up to this one.
  void taken(StreamOffset offset) noexcept {
    while (head_ != build_ && list_[head_ & mask_].end_offset <= offset) ++head_;
  }
  void forget() noexcept { head_ = build_ = tail_; }

 private:
  const std::uint32_t mask_;
  LentArray<InboundRequest> list_;                 // null until the first
  std::uint32_t head_ = 0, build_ = 0, tail_ = 0;  // free-running
};

// A Read or atomic of ours that waits for its response.
struct Outstanding {
  std::uint32_t wqe = 0;  // index in the send queue
  bool is_rtr = false;    // a Read RTR: no WQE
  bool is_atomic = false;
  Stag sink_stag;
  std::uint64_t sink_to = 0;
  std::uint32_t length = 0;
  std::uint32_t received = 0;
  std::uint32_t id = 0;  // atomic: request identifier
  Msn msn;
  Cursor cursor;
};

class OutstandingReads {
 public:
  explicit OutstandingReads(std::uint32_t depth)
      : most_(depth), mask_(request_list_size(depth) - 1) {}

  // Before the first add(). False: there is no memory.
  [[nodiscard]] bool allocate() noexcept;
  [[nodiscard]] bool allocate(Arena& memory) noexcept;
  // No more than this at once, from now on.
  void limit(std::uint32_t most) noexcept { most_ = most; }

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ >= most_; }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  // By age, the oldest is 0.
  [[nodiscard]] const Outstanding& at(std::uint32_t i) const noexcept {
    return list_[(head_ + i) & mask_];
  }
  [[nodiscard]] Outstanding& oldest() noexcept { return list_[head_ & mask_]; }

  Outstanding& add() noexcept {
    Outstanding& o = list_[(head_ + count_) & mask_];
    ++count_;
    return o;
  }
  [[nodiscard]] std::uint32_t next_id() noexcept { return next_id_++; }
  void drop_oldest() noexcept {
    ++head_;
    --count_;
  }
  void drop_newest() noexcept { --count_; }
  void forget() noexcept { count_ = 0; }

  // Whether a Read is outstanding into whose sink, all in one piece, this segment falls. A sink of
  // several pieces goes by a name that no table knows.
  [[nodiscard]] bool awaits(const DdpTagged& h, std::uint32_t payload) const noexcept;

 private:
  std::uint32_t most_;
  const std::uint32_t mask_;
  LentArray<Outstanding> list_;  // null until the first
  std::uint32_t head_ = 0, count_ = 0;
  std::uint32_t next_id_ = 1;  // of atomics
};

}  // namespace weft::proto
