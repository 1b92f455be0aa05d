#include "io/link_schedule.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/mixed_bits.h"

namespace weft::io {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint64_t kBitsPerOctet = 8;

// Pieces are as long as the line needs a millisecond for, within these.
constexpr std::size_t kLeastPiece = 1448, kMostPiece = 64U << 10U;
constexpr std::size_t kLeastRoom = 256U << 10U, kMostRoom = 64U << 20U;

// A delay beyond this is none that a connection lives through; no sum of times overflows by it.
constexpr Duration kMostDelay = std::chrono::hours(24);

LinkTrouble within_limits(LinkTrouble trouble) {
  trouble.delay = std::clamp(trouble.delay, Duration{0}, kMostDelay);
  trouble.jitter = std::clamp(trouble.jitter, Duration{0}, kMostDelay);
  return trouble;
}

std::size_t octets_in(std::uint64_t bits_per_second, double seconds) {
  const double octets =
      static_cast<double>(bits_per_second) / static_cast<double>(kBitsPerOctet) * seconds;
  return static_cast<std::size_t>(std::min(octets, static_cast<double>(kMostRoom)));
}

}  // namespace

LinkSchedule::LinkSchedule(LinkTrouble trouble, Instant begin)
    : trouble_(within_limits(std::move(trouble))),
      begin_(begin),
      dice_(trouble_.seed),
      line_free_(begin),
      last_due_(begin) {
  for (const LinkRule& rule : trouble_.rules)
    live_.push_back({rule.period.count() != 0 || rule.at == 0 ? kNever : rule.at, false});
}

std::size_t LinkSchedule::room() const noexcept {
  const double seconds = std::chrono::duration<double>(trouble_.delay + trouble_.jitter).count();
  constexpr std::uint64_t kFast = 10'000'000'000;
  const std::uint64_t rate = trouble_.bits_per_second != 0 ? trouble_.bits_per_second : kFast;
  return std::clamp(octets_in(rate, 2 * seconds), kLeastRoom, kMostRoom);
}

std::vector<LinkSchedule::Struck> LinkSchedule::take_struck() { return std::exchange(struck_, {}); }

Duration LinkSchedule::random_jitter() {
  if (trouble_.jitter.count() == 0) return Duration{0};
  const std::uint64_t most = static_cast<std::uint64_t>(trouble_.jitter.count());
  return Duration{static_cast<std::int64_t>(next_mixed(dice_) % (most + 1))};
}

Instant LinkSchedule::behind_stalls(Instant t) {
  for (std::size_t i = 0; i < live_.size(); ++i) {
    const LinkRule& rule = trouble_.rules[i];
    if (rule.what != LinkRule::What::kStall || rule.period.count() <= 0) continue;
    const std::int64_t round = (t - begin_) / rule.period;
    const Instant end = begin_ + round * rule.period + rule.length;
    if (round < 1 || t >= end || (!rule.repeats && round > 1)) continue;
    t = end;
    if (!std::exchange(live_[i].named, true)) struck_.push_back({i, taken_});
  }
  return t;
}

// The rule has its effect at the octet that is next.
void LinkSchedule::strike(std::size_t i) {
  const LinkRule& rule = trouble_.rules[i];
  live_[i].next = rule.repeats ? taken_ + rule.at : kNever;
  struck_.push_back({i, taken_});
}

void LinkSchedule::behind(Piece& piece) {
  for (std::size_t i = 0; i < live_.size(); ++i) {
    const LinkRule& rule = trouble_.rules[i];
    if (live_[i].next != taken_ || rule.what == LinkRule::What::kFlip) continue;
    if (rule.what == LinkRule::What::kStall) line_free_ += rule.length;
    if (rule.what == LinkRule::What::kCut) piece.cut = true;
    strike(i);
  }
}

LinkSchedule::Piece LinkSchedule::next(std::size_t available, Instant now) {
  assert(available != 0);
  Piece piece;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    const LinkRule& rule = trouble_.rules[i];
    if (live_[i].next != taken_ || rule.what != LinkRule::What::kFlip) continue;
    piece.flipped = true;
    strike(i);
  }
  const std::uint64_t rate = trouble_.bits_per_second;
  std::uint64_t size = std::min(available, kMostPiece);
  if (rate != 0) size = std::min<std::uint64_t>(size, std::max(octets_in(rate, 1e-3), kLeastPiece));
  for (const Live& one : live_) size = std::min(size, one.next - taken_);
  piece.size = size;
  line_free_ = behind_stalls(std::max(line_free_, now));
  if (rate != 0)
    line_free_ += Duration{static_cast<std::int64_t>(size * kBitsPerOctet * kNsPerSecond / rate)};
  piece.due = std::max(last_due_, line_free_ + trouble_.delay + random_jitter());
  last_due_ = piece.due;
  taken_ += size;
  behind(piece);
  return piece;
}

}  // namespace weft::io
