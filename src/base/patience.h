// When a thread that polls without success lets others have its core.
//
// It may share the core with the thread that it waits for, and gains by every yield then. Or a
// stranger keeps the core busy: the kernel gives each its share, and what a yield gives away beside
// that is lost, some milliseconds each time. Which it is shows after the yield.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft {

enum class Yielded : std::uint8_t {
  kToNobody,     // it took no time
  kToAPeer,      // somebody ran, not for long, and there is work now
  kToAStranger,  // somebody else ran
};

class Patience {
 public:
  static constexpr std::uint32_t kPollsMin = 16;
  static constexpr std::uint32_t kPollsMax = 1024;
  static constexpr std::uint32_t kPollsBesideStrangers = 1U << 19U;

  // After a poll without success. True: yield now, then say how it went.
  [[nodiscard]] bool is_over() noexcept {
    if (++polls_ < interval_) return false;
    polls_ = 0;
    return true;
  }
  void note(Yielded how) noexcept {
    switch (how) {
      case Yielded::kToNobody: interval_ = std::min(interval_ * 2, kPollsMax); break;
      case Yielded::kToAPeer: interval_ = std::max(interval_ / 4, kPollsMin); break;
      case Yielded::kToAStranger: interval_ = std::min(interval_ * 2, kPollsBesideStrangers); break;
    }
  }
  // Polls from one yield to the next.
  [[nodiscard]] std::uint32_t interval() const noexcept { return interval_; }

 private:
  std::uint32_t polls_ = 0;
  std::uint32_t interval_ = kPollsMin * 4;
};

}  // namespace weft
