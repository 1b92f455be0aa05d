#include "sockets/granted/writing_habits.h"

#include <algorithm>

namespace weft::sockets::granted {
namespace {

constexpr std::int64_t kFirstBanNs = 10'000'000;
constexpr std::int64_t kLongestBanNs = 10'000'000'000;
constexpr std::int64_t kBansToForget = 100;

}  // namespace

void WritingHabits::begin_again() {
  begin_spin(room_);
  begin_spin(drain_);
  drains_.begin_again();
  ban_until_ = 0;
  ban_ns_ = 0;
  take_seen_ = 0;
  over_ = false;
}

void WritingHabits::ban_ring(std::int64_t now) {
  if (now - ban_until_.load() > kBansToForget * ban_ns_.load()) ban_ns_ = 0;
  const std::int64_t ban = std::clamp(ban_ns_.load() * 2, kFirstBanNs, kLongestBanNs);
  ban_ns_ = ban;
  ban_until_ = now + ban;
}

}  // namespace weft::sockets::granted
