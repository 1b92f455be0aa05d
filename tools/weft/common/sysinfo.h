// What this process and this machine are doing: clocks, CPU use, memory, cores, kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

// Nanoseconds of the monotonic clock. Any thread.
[[nodiscard]] std::int64_t now_ns();

// CPU seconds this process has used, all threads, user and system.
[[nodiscard]] double process_cpu_s();

// Resident memory of this process, without shared and file pages: what its own heap, stacks and
// anonymous mappings occupy. 0 if unknown.
[[nodiscard]] std::size_t private_memory_bytes();

// The CPUs this process may run on, in rising order.
[[nodiscard]] std::vector<int> allowed_cpus();
// Keeps the calling thread, and every thread it starts from now on, on one CPU.
[[nodiscard]] Outcome<void> pin_to_cpu(int cpu);

// Lets this process open as many descriptors as its hard limit allows; returns that number.
std::uint64_t raise_descriptor_limit();

[[nodiscard]] std::string kernel_text();  // "Linux 6.1.0-13-amd64 x86_64"
[[nodiscard]] std::string cpu_text();     // "Intel(R) Xeon(R) ...", or empty

// How many other threads of the machine are running or ready to run at this moment.
[[nodiscard]] std::size_t runnable_others();

// The first line of a file, or empty.
[[nodiscard]] std::string first_line(const std::string& path);

}  // namespace weft::cli
