// Whether the memory that an application names can be used: exs_send() and others say EFAULT, where
// a copy into it, or a peer's Write, would end the process. Any thread.
#pragma once

#include <cstddef>

namespace weft::exs {

// 0, or the errno: EFAULT, ENOMEM (the pages could not be had). Checks [base, base + length) for
// reading, and for writing if `writable`, as os::probe_memory() says.
//
// A check costs 0.7 us for 8 KiB and 2.7 us for 64 KiB, half of what sending them takes, and most
// applications use the same buffers again and again. So each thread remembers the ranges that it
// has checked, and trusts a check for kCheckHolds. Nothing finds memory that is unmapped behind
// its check, so the operations that are outstanding need the application's care all the same.
[[nodiscard]] int check_memory(const void* base, std::size_t length, bool writable);

}  // namespace weft::exs
