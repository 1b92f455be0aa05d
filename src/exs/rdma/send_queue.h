// Posts to the send queue of a queue pair, and how far they have come.
//
// Values. Each post has a serial, counted from 1. A few of them report, each for those before it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace weft::exs {

class SendQueue {
 public:
  // The bits of a serial that a work request carries. The other one of 32 marks receives.
  static constexpr std::uint32_t kSerialBits = (1U << 31U) - 1;
  static constexpr int kNoSlot = -1;

  // `depth`: requests it holds.
  void open(std::size_t depth) { depth_ = depth; }
  // How many requests may pass without a report at most. REQUIRES less than there are buffers to
  // send from: reports give those back.
  void report_every(unsigned requests);

  [[nodiscard]] bool has_room(std::size_t requests) const { return used_ + requests <= depth_; }
  // Counts a post of `requests` requests; `slot` is the buffer that it sends from, or kNoSlot.
  // True: the last request has to report. `wanted`: in any case. REQUIRES room for them.
  [[nodiscard]] bool post(std::size_t requests, int slot, bool wanted);
  // The serial of the last post.
  [[nodiscard]] std::uint64_t last() const { return serial_; }

  // A report has come, and with it the end of all posts up to its own: calls `free_slot` for each
  // buffer that is free again.
  template <class Free>
  void retire(std::uint32_t serial_bits, Free free_slot) {
    while (!posted_.empty()) {
      const Posted first = take_first();
      if (first.slot != kNoSlot) free_slot(first.slot);
      if ((first.serial & kSerialBits) == serial_bits) return;
    }
    assert(false && "a report of requests that were not posted");
  }
  // The serial of the last post that is done.
  [[nodiscard]] std::uint64_t retired() const { return retired_; }
  [[nodiscard]] bool done(std::uint64_t serial) const { return serial <= retired_; }

 private:
  struct Posted {
    std::uint64_t serial = 0;
    std::size_t requests = 0;
    int slot = kNoSlot;
  };

  Posted take_first();

  std::deque<Posted> posted_;
  std::size_t depth_ = 0;
  std::size_t used_ = 0;
  std::uint64_t serial_ = 0;
  std::uint64_t retired_ = 0;
  unsigned report_every_ = 16;
  unsigned silent_ = 0;  // requests since the last one that reports
};

}  // namespace weft::exs
