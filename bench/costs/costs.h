// The measurements of weft-costs. Each function throws std::runtime_error that says what went
// wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace weft::bench {

struct MemoryCost {
  double register_us = 0;  // medians
  double deregister_us = 0;
  std::optional<double> mlock_us;  // absent: the system refused to lock so much
  std::uint32_t repeated = 0;
};
// An anonymous mapping whose pages have all been touched.
[[nodiscard]] MemoryCost measure_memory(std::size_t size);

struct Nanoseconds {
  double median = 0;
  double mean = 0;
};
struct PostCost {
  Nanoseconds post;       // of one 64-byte RDMA Write into a queue that is not full
  Nanoseconds null_call;  // getppid(), past libc
  double clock_ns = 0;    // of reading the clock twice: taken off both
  std::uint64_t posts = 0;
  std::uint64_t bytes_placed = 0;  // compared at the target
};
// Fills a queue `trials` times, half of what it holds, and waits for the completions in between.
[[nodiscard]] PostCost measure_post(std::uint32_t trials);

// The middle value; the samples get partly sorted.
[[nodiscard]] double median_of(std::vector<double>& samples);
[[nodiscard]] double mean_of(const std::vector<double>& samples);
[[nodiscard]] std::int64_t now_ns();

}  // namespace weft::bench
