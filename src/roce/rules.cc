#include "roce/rules.h"

#include <algorithm>

namespace weft::roce {

namespace {

constexpr Duration kFirstPause{20'000'000};
constexpr Duration kLongestPause{500'000'000};
constexpr std::uint32_t kDoublings = 5;
constexpr Duration kFirstHandshake{100'000'000};
constexpr std::uint32_t kHandshakeDoublings = 6;
constexpr std::int64_t kTimeoutUnitNs = 4096;
constexpr std::uint8_t kTimeoutMask = 31;
constexpr std::uint8_t kRetryMask = 7;
// The table of the InfiniBand specification ("Encoding for RNR NAK Timer Field"), in 10 us.
constexpr std::int64_t kRnrUnitNs = 10'000;
constexpr std::uint32_t kRnrPauses[] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                        16,    24,   32,   48,    64,    96,    128,   192,
                                        256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                        4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

}  // namespace

Verdict judge(const Hello& hello, const Gid& source, const Standing& own) noexcept {
  if (!own.wired) return Verdict::kNotYet;
  if (hello.from != own.peer || hello.to != own.mine || source != hello.from.gid) {
    return Verdict::kNotYet;
  }
  if (hello.type != own.type) return Verdict::kOtherType;
  if (own.linked || own.committed) return Verdict::kBusy;
  return Verdict::kAccept;
}

Duration pause_before(std::uint32_t attempt) noexcept {
  return std::min(kFirstPause * (1U << std::min(attempt, kDoublings)), kLongestPause);
}

Duration handshake_limit(std::uint32_t calls) noexcept {
  return kFirstHandshake * (1U << std::min(calls, kHandshakeDoublings));
}

Duration retry_budget(std::uint8_t timeout, std::uint8_t retry_cnt) noexcept {
  const unsigned exponent = timeout & kTimeoutMask;
  if (exponent == 0) return Duration::max();
  const Duration once{kTimeoutUnitNs << exponent};
  return std::max(once * ((retry_cnt & kRetryMask) + 1), kRetryFloor);
}

Duration rnr_pause(std::uint8_t min_rnr_timer) noexcept {
  return Duration{kRnrUnitNs * kRnrPauses[min_rnr_timer & kTimeoutMask]};
}

}  // namespace weft::roce
