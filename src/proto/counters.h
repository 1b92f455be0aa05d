// Counters of one stream. Written by the thread that runs it, readable by any thread at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace weft::proto {

// Only one thread at a time adds, so no read-modify-write is needed.
class Counter {
 public:
  void add(std::uint64_t n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t get() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct StreamCounters {
  Counter tx_bytes, rx_bytes, tx_fpdus, rx_fpdus;
  std::array<Counter, 16> tx_messages, rx_messages;
  Counter crc_errors, terminates_sent, terminates_received, small_segments;
  Counter messages_dropped;
};

}  // namespace weft::proto
