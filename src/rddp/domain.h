// Which memory of this program a peer may reach, for endpoints without an operating system.
//
// Threads: one at a time, as the endpoints.
#pragma once

#include <weft/result.h>
#include <weft/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/stag_table.h"

namespace weft::rddp {

// The memory that peers may reach, shared by the endpoints of one device.
class Domain {
 public:
  static constexpr std::uint32_t kPd = 1;

  // `random` gives bits that peers cannot guess.
  Domain(proto::StagTable::RandomFn random, std::uint32_t regions_max);
  // The same in memory of the caller's, which outlives the domain; good() is false when it is less
  // than memory_needed(). REQUIRES: memory.data() is a multiple of kArenaAlignment.
  Domain(proto::StagTable::RandomFn random, std::uint32_t regions_max, std::span<std::byte> memory);
  static constexpr std::size_t memory_needed(std::uint32_t regions_max) noexcept {
    return proto::StagTable::memory_needed(entries(regions_max));
  }

  // A region of `size` bytes at `addr`; its first byte has the tagged offset `base`. Local reads
  // and writes are always allowed; `remote` says what the peer may do. `stream` 0: any connection.
  //   kInvalidArgument, kLimitExceeded, kNoMemory
  [[nodiscard]] Result<Stag> add(void* addr, std::size_t size, std::uint64_t base, Access remote,
                                 std::uint32_t stream = 0);
  // The same with every detail; pd is set here.   kInvalidArgument, kLimitExceeded, kNoMemory
  [[nodiscard]] Result<Stag> add(proto::MemorySpec spec);
  // Final when it returns.
  //   kNotFound
  //   kBusy   octets of it are on their way and not yet acknowledged: try again later
  [[nodiscard]] Status remove(Stag stag);
  // As remove(), but the slot is kept: for Send with Invalidate.
  [[nodiscard]] Status invalidate(Stag stag);

  // False: there was no memory for it.
  [[nodiscard]] bool good() const noexcept { return local_.value != 0; }

  // Names all memory of this program for local use. No peer can write or read through it.
  [[nodiscard]] Stag local() const noexcept { return local_; }
  [[nodiscard]] proto::StagTable& table() noexcept { return table_; }
  [[nodiscard]] std::uint32_t next_stream() noexcept { return ++streams_; }

 private:
  // One more for local().
  static constexpr std::uint32_t entries(std::uint32_t regions_max) noexcept {
    return regions_max + 1;
  }
  void add_local();
  [[nodiscard]] bool in_flight(Stag stag) const noexcept;

  proto::StagTable table_;
  Stag local_;
  std::uint32_t streams_ = 0;
};

}  // namespace weft::rddp
