// Counters of one stream. Written by the thread that runs it, readable by any thread at any time
// (where there are several).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/profile.h"

namespace weft::proto {

// Only one thread at a time adds, so no read-modify-write is needed.
template <class Word>
class BasicCounter {
 public:
  void add(std::uint64_t n) noexcept {
    const Word sum = static_cast<Word>(get() + n);
    if constexpr (profile::kThreads) {
      value_.store(sum, std::memory_order_relaxed);
    } else {
      value_ = sum;
    }
  }
  [[nodiscard]] std::uint64_t get() const noexcept {
    if constexpr (profile::kThreads) {
      return value_.load(std::memory_order_relaxed);
    } else {
      return value_;
    }
  }

 private:
  std::conditional_t<profile::kThreads, std::atomic<Word>, Word> value_{0};
};
using Counter = BasicCounter<std::uint64_t>;
using MessageCounter = BasicCounter<profile::MessageCount>;

// Messages by operation (Opcode), or with the small profile all of them as one.
class OperationCounters {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return counters_.size(); }
  [[nodiscard]] auto begin() const noexcept { return counters_.begin(); }
  [[nodiscard]] auto end() const noexcept { return counters_.end(); }
  [[nodiscard]] MessageCounter& operator[](std::size_t opcode) noexcept {
    return counters_[profile::kCountByOperation ? opcode : 0];
  }
  [[nodiscard]] const MessageCounter& operator[](std::size_t opcode) const noexcept {
    return counters_[profile::kCountByOperation ? opcode : 0];
  }

 private:
  std::array<MessageCounter, profile::kCountByOperation ? 16 : 1> counters_;
};

struct StreamCounters {
  Counter tx_bytes, rx_bytes;
  MessageCounter tx_fpdus, rx_fpdus;
  OperationCounters tx_messages, rx_messages;
  MessageCounter crc_errors, terminates_sent, terminates_received, small_segments;
  MessageCounter messages_dropped;
};

}  // namespace weft::proto
