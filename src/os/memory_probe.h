// Whether memory that is to be registered can be used at all. Any thread.
//
// Adapters pin the pages of a region, so registering memory that is not there fails with EFAULT.
// Weft pins nothing: it copies when a peer's Write arrives, and a copy into an unmapped or
// read-only page kills the process. So the range is checked once, when it is registered.
#pragma once

#include <weft/result.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace weft::os {

struct UnusableMemory {
  std::uintptr_t at = 0;           // the address that cannot be used
  const char* why = "";            // "is not mapped", ...
  Error error = Error::kNoMemory;  // system_error(EFAULT), or kNoMemory
};

// Checks [addr, addr + length) for reading, and for writing if `writable`. nullopt: all of it can
// be used. The content does not change, and a concurrent writer loses nothing.
//
// Up to kTouchedMax bytes, every page is faulted in as the kind of access would do it. That is
// exact. A larger range is not populated: the kernel is asked for its mappings and their rights
// (Linux 6.11), and only the last page of each mapped file is read, which finds a mapping that
// reaches beyond the end of its file. Not found in a larger range: a file whose disk is too full
// for the pages that are written later, and too few huge pages for all of it. Nothing can find what
// is unmapped, protected or truncated after the registration; see copy_if_mapped().
//
// Older kernels than 6.11, and processes that cannot open their /proc: what is not mapped is found
// anywhere. Of a larger range only the first and the last page are populated. So these are not
// found: memory between them that is read-only or behind the end of its file. Guard pages are not
// found in ranges of any size, as these kernels do not tell them from memory of devices. Before
// Linux 5.14 only what is not mapped is found.
[[nodiscard]] std::optional<UnusableMemory> probe_memory(const void* addr, std::size_t length,
                                                         bool writable);
inline constexpr std::size_t kTouchedMax = 64U << 10U;

// Copies to memory that may have been unmapped since it was registered: true when all of it is
// there. The kernel does it, for about 0.8 us more than memcpy(). Where the kernel does not let a
// process write to itself that way, it is memcpy().
[[nodiscard]] bool copy_if_mapped(void* to, const void* from, std::size_t size);

// probe_memory() for larger ranges: by queries for single mappings where the kernel has
// them, or as older kernels need it. Here so that tests reach both.
enum class MappingsBy : std::uint8_t { kQuery, kSync };
[[nodiscard]] std::optional<UnusableMemory> probe_mappings(std::uintptr_t begin, std::uintptr_t end,
                                                           bool writable, MappingsBy by);

}  // namespace weft::os
