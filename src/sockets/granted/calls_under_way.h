// The calls that know a lane at this moment. While there is one, its memory stays.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace weft::sockets::granted {

enum class Call : std::uint8_t {
  kReceives,
  kSends,
  kVisits,  // moves no data: a wait, an option, the spiller
};

class CallsUnderWay {
 public:
  void enter(Call call) { of(call).fetch_add(1); }
  void leave(Call call) {
    [[maybe_unused]] const std::uint32_t before = of(call).fetch_sub(1);
    assert(before != 0);
  }
  [[nodiscard]] std::uint32_t count(Call call) const {
    return counts_[static_cast<std::size_t>(call)].load();
  }
  [[nodiscard]] bool none() const {
    return count(Call::kReceives) == 0 && count(Call::kSends) == 0 && count(Call::kVisits) == 0;
  }

 private:
  std::atomic<std::uint32_t>& of(Call call) { return counts_[static_cast<std::size_t>(call)]; }

  std::array<std::atomic<std::uint32_t>, 3> counts_{};
};

}  // namespace weft::sockets::granted
