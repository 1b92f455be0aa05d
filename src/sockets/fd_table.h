// A table of the descriptor numbers of the process, for what a library knows of each. An entry is
// all zero until it is written.
//
// Entries lie in chunks, which are mapped when make() asks for a number of theirs first, and stay.
// So look-ups take no lock, and no entry ever moves.
//
// Threads: any. Who may write to an entry is its owner's to say.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <type_traits>

namespace weft::sockets {

template <class Entry>
class FdTable {
 public:
  static constexpr int kNumbers = 1 << 20;

  // Null: beyond the table, or nothing was ever noted of the number or its neighbors.
  [[nodiscard]] Entry* find(int fd) const {
    if (fd < 0 || fd >= kNumbers) return nullptr;
    Entry* chunk = chunks_[chunk_of(fd)].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + fd % kChunk;
  }

  // The same, and the number is noted. Null: beyond the table, or no memory.
  [[nodiscard]] Entry* make(int fd) {
    if (fd < 0 || fd >= kNumbers) return nullptr;
    Entry* chunk = chunks_[chunk_of(fd)].load(std::memory_order_acquire);
    if (chunk == nullptr) chunk = map_chunk(chunks_[chunk_of(fd)]);
    if (chunk == nullptr) return nullptr;
    int end = end_.load(std::memory_order_relaxed);
    while (end <= fd && !end_.compare_exchange_weak(end, fd + 1)) {
    }
    assert(end_.load(std::memory_order_relaxed) > fd);
    return chunk + fd % kChunk;
  }

  // One above the highest number that was ever noted.
  [[nodiscard]] int end() const { return end_.load(std::memory_order_acquire); }

 private:
  static constexpr int kChunk = 4096;
  static_assert(kNumbers % kChunk == 0);

  static std::size_t chunk_of(int fd) {
    assert(fd >= 0 && fd < kNumbers);
    return static_cast<std::size_t>(fd) / kChunk;
  }

  static Entry* map_chunk(std::atomic<Entry*>& chunk) {
    static_assert(std::is_trivially_destructible_v<Entry>);
    constexpr std::size_t kBytes = sizeof(Entry) * kChunk;
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    Entry* before = nullptr;
    if (chunk.compare_exchange_strong(before, static_cast<Entry*>(at))) {
      return static_cast<Entry*>(at);
    }
    munmap(at, kBytes);
    return before;
  }

  std::array<std::atomic<Entry*>, kNumbers / kChunk> chunks_{};
  std::atomic<int> end_{0};
};

}  // namespace weft::sockets
