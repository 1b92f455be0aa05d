// Sizes that differ between a workstation and a microcontroller, in one place. WEFT_PROFILE_SMALL
// is set for boards (cmake/WeftCompiler.cmake). The SGEs of a request are in <weft/limits.h>,
// because they are part of the public interface.
//
// With the small profile a peer has to keep its FPDUs within one TCP segment; a larger one that
// comes in parts ends the connection. STags are reused sooner, so a peer that kept an old one finds
// a live one sooner: one in 256 of its guesses of the key is right.
#pragma once

#include <weft/limits.h>

#include <cstddef>
#include <cstdint>

namespace weft::profile {

#ifdef WEFT_PROFILE_SMALL
inline constexpr bool kSmall = true;
// A transmit batch: gather list, FPDUs, headers and copied payload. One FPDU of as many pieces as a
// request has SGEs, with its markers, has to fit, and a Terminate behind it.
inline constexpr std::size_t kBatchSlices = 14;
inline constexpr std::size_t kBatchFpdus = 4;
inline constexpr std::size_t kBatchArenaBytes = 304;
// Payload is not copied to lay markers into it, nor when an FPDU is cut off from those behind it.
inline constexpr bool kBatchCopies = false;
inline constexpr std::size_t kBatchSpillBytes = 0;
inline constexpr std::size_t kBatchBytes = 4096;
inline constexpr std::size_t kBatchBytesFirst = 4096;
// Payload below this is copied into the batch.
inline constexpr std::size_t kCopyBelow = 64;
// An FPDU that came in parts: as large as a segment.
inline constexpr std::size_t kCarryBytes = 1464;
// STag table: entries taken at once, and how many others are reused first.
inline constexpr std::uint32_t kStagChunk = 4;
inline constexpr std::uint32_t kStagReuseDelay = 4;
inline constexpr std::size_t kCacheLineBytes = 8;
inline constexpr std::size_t kCrcTables = 4;  // of 1 KiB of ROM: half the instructions of one
// There is one thread, and counters need no atomics; those of messages wrap.
inline constexpr bool kThreads = false;
// All memory is handed in by the caller.
inline constexpr bool kHeap = false;
// Queue pairs wired by hand (docs/personality.md) and a path beside TCP (docs/path.md).
inline constexpr bool kWired = false;
// Messages are counted in all, not by operation.
inline constexpr bool kCountByOperation = false;
// Payload of an FPDU of 8 KiB or more goes from a read to its place; a board's are one segment.
inline constexpr bool kPlacesDirectly = false;
inline constexpr std::size_t kSgesPerReceive = 1;
using MessageCount = std::uint32_t;
#else
inline constexpr bool kSmall = false;
inline constexpr std::size_t kBatchSlices = 1000;  // the kernel takes 1024 per call
inline constexpr std::size_t kBatchFpdus = 1200;
inline constexpr std::size_t kBatchArenaBytes = 256U << 10U;
inline constexpr bool kBatchCopies = true;
inline constexpr std::size_t kBatchSpillBytes = 66U << 10U;
inline constexpr std::size_t kBatchBytes = 1U << 20U;
inline constexpr std::size_t kBatchBytesFirst = 64U << 10U;
inline constexpr std::size_t kCopyBelow = 1024;
inline constexpr std::size_t kCarryBytes = 66U << 10U;
inline constexpr std::uint32_t kStagChunk = 256;
inline constexpr std::uint32_t kStagReuseDelay = 4096;
inline constexpr std::size_t kCacheLineBytes = 64;
inline constexpr std::size_t kCrcTables = 8;
inline constexpr bool kThreads = true;
inline constexpr bool kHeap = true;
inline constexpr bool kWired = true;
inline constexpr bool kCountByOperation = true;
inline constexpr bool kPlacesDirectly = true;
inline constexpr std::size_t kSgesPerReceive = limits::kSgesPerRequest;
using MessageCount = std::uint64_t;
#endif

}  // namespace weft::profile
