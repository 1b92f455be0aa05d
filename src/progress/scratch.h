// Where a turn stages small FPDUs: one buffer a thread, so that it stays in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::progress {

// For the reads of one turn. A thread gets its buffer at its first turn. Where there is no memory
// for one, turns of such threads share a buffer of the process, one at a time: nobody asks for a
// turn again that was given up.
class Scratch {
 public:
  Scratch() noexcept : at_(t_own) {
    if (at_ == nullptr) find();
  }
  ~Scratch() {
    if (locked_) give_back();
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] std::span<std::uint8_t> get() const noexcept { return {at_, kBytes}; }

 private:
  static constexpr std::size_t kBytes = 256U << 10U;
  void find() noexcept;
  void give_back() noexcept;

  // A plain pointer: a thread_local with a destructor needs memory at its first use, and ends the
  // process where there is none.
  static constinit thread_local std::uint8_t* t_own;
  static std::uint8_t g_shared[kBytes];
  friend class ScratchKey;

  std::uint8_t* at_;
  bool locked_ = false;  // the shared one, by this object
};

}  // namespace weft::progress
