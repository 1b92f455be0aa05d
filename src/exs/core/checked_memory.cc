#include "exs/core/checked_memory.h"

#include <weft/system_error.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "exs/core/operation.h"
#include "os/memory_probe.h"

namespace weft::exs {

namespace {

constexpr auto kCheckHolds = std::chrono::milliseconds(10);

struct CheckedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool writable = false;
  Instant when;
};

// A buffer's place follows from its address, so a buffer of its own is found by one look. Buffers
// that share a place take turns, and are checked each time.
CheckedRange& place_of(std::uintptr_t begin) {
  constexpr std::size_t kPlaces = 256;
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  constexpr unsigned kTopEight = 56;
  static thread_local std::array<CheckedRange, kPlaces> places;
  return places[begin * kSpread >> kTopEight];
}

}  // namespace

int check_memory(const void* base, std::size_t length, bool writable) {
  if (length == 0) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const std::uintptr_t end = begin + length;
  const Instant now = Clock::now();
  CheckedRange& place = place_of(begin);
  if (place.begin == begin && end > begin && end <= place.end && (place.writable || !writable) &&
      now - place.when < kCheckHolds) {
    return 0;
  }
  if (const auto unusable = os::probe_memory(base, length, writable)) {
    const int number = system_errno(unusable->error);
    return number != 0 ? number : ENOMEM;
  }
  place = {begin, end, writable, now};
  return 0;
}

}  // namespace weft::exs
