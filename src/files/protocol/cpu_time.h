// CPU time that moving octets has taken, for the last lines of programs.
#pragma once

#include <cstdint>
#include <string>

namespace weft::files {

// CPU time of this process.
[[nodiscard]] double cpu_seconds();

// "1.234 CPU s (0.567 per GB)": the CPU time of this process, and the rate where there are octets
// enough that it is not that of starting the program.
[[nodiscard]] std::string cpu_text(std::uint64_t bytes);

}  // namespace weft::files
