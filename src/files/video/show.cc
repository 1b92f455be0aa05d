#include "files/video/show.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>

#include "os/clock.h"

namespace weft::video {
namespace {

using files::Outcome;

class Loop {
 public:
  explicit Loop(Show& show)
      : show_(show), alive_(show.players.size(), true), count_(show.players.size()) {}
  [[nodiscard]] Outcome<unsigned> run();

 private:
  [[nodiscard]] Outcome<void> present();
  [[nodiscard]] std::size_t progress();
  void act();
  void arm();
  void sleep();
  void title();
  void lose(std::size_t i, const files::Failed& why);
  [[nodiscard]] bool all_ended() const;

  Show& show_;
  std::vector<bool> alive_;
  std::size_t count_;
  unsigned lost_ = 0;
  bool quit_ = false;
  Clock::time_point titled_{};
  std::uint64_t shown_then_ = 0;
};

// A film of which all was shown has not failed, whatever becomes of its server.
void Loop::lose(std::size_t i, const files::Failed& why) {
  alive_[i] = false;
  if (!show_.players[i]->finished()) ++lost_;
  if (show_.failed) show_.failed(why);
}

// Shows what is due. Every film's next frame, before anything is flipped.
Outcome<void> Loop::present() {
  std::vector<std::pair<Player*, Player::Frame>> taken;
  for (std::size_t i = 0; i < count_; ++i) {
    Player& player = *show_.players[i];
    if (!alive_[i]) continue;
    const auto frame = player.due(Clock::now());
    if (!frame) continue;
    if (auto ok = show_.screen->show(i, *frame); !ok) return ok;
    taken.emplace_back(&player, *frame);
    if (auto ok = player.taken(*frame, Clock::now()); !ok) lose(i, ok.error());
  }
  if (auto ok = show_.screen->flip(); !ok) return ok;
  for (const auto& [player, frame] : taken) player->shown(frame, Clock::now());
  return {};
}

std::size_t Loop::progress() {
  std::size_t count = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (!alive_[i]) continue;
    const auto got = show_.players[i]->progress();
    if (got) {
      count += *got;
    } else {
      lose(i, got.error());
    }
  }
  return count;
}

void Loop::act() {
  for (const Action& action : show_.screen->actions()) {
    for (std::size_t i = 0; i < count_; ++i) {
      Player& player = *show_.players[i];
      if (!alive_[i]) continue;
      if (action.kind == Action::Kind::kPause) player.pause(!player.paused(), Clock::now());
      if (action.kind != Action::Kind::kSeek) continue;
      const std::int64_t frames =
          std::int64_t{action.seconds} * player.film().rate_num / player.film().rate_den;
      const std::int64_t to = std::int64_t{player.position()} + frames;
      const std::int64_t last = std::int64_t{player.records()} - 1;
      const auto number = static_cast<std::uint32_t>(std::clamp<std::int64_t>(to, 0, last));
      if (auto ok = player.seek(number); !ok) lose(i, ok.error());
    }
    quit_ = quit_ || action.kind == Action::Kind::kQuit;
  }
}

bool Loop::all_ended() const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (alive_[i] && !show_.players[i]->finished()) return false;
  }
  return true;
}

void Loop::arm() {
  for (std::size_t i = 0; i < count_; ++i) {
    if (!alive_[i]) continue;
    if (auto ok = show_.players[i]->arm(); !ok) lose(i, ok.error());
  }
}

// Until something arrives, a frame is due, or the screen wants attention.
void Loop::sleep() {
  std::vector<pollfd> fds;
  constexpr auto kLongest = std::chrono::milliseconds(100);  // signals are looked at then
  const auto now = Clock::now();
  auto wake = now + kLongest;
  for (std::size_t i = 0; i < count_; ++i) {
    if (!alive_[i]) continue;
    fds.push_back({show_.players[i]->fd(), POLLIN, 0});
    if (const auto next = show_.players[i]->next_time()) wake = std::min(wake, *next);
  }
  const int interval = show_.screen->interval_ms();
  if (interval >= 0) wake = std::min(wake, now + std::chrono::milliseconds(interval));
  const auto left = std::max(wake - now, Clock::duration::zero());
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec timeout = os::timespec_of(ns);
  ppoll(fds.data(), fds.size(), &timeout, nullptr);
}

// Once a second.
void Loop::title() {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - titled_).count();
  if (seconds < 1) return;
  std::uint64_t shown = 0;
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  for (const auto& player : show_.players) {
    shown += player->stats().shown;
    late += player->stats().late;
    dropped += player->stats().dropped;
  }
  char text[128];
  std::snprintf(text, sizeof text, "weft video: %.1f frames/s, %llu late, %llu dropped",
                static_cast<double>(shown - shown_then_) / seconds,
                static_cast<unsigned long long>(late), static_cast<unsigned long long>(dropped));
  show_.screen->status(text);
  titled_ = now;
  shown_then_ = shown;
}

Outcome<unsigned> Loop::run() {
  while (!quit_ && (show_.hold || !all_ended())) {
    if (show_.interrupted && show_.interrupted()) break;
    std::size_t arrived = progress();
    if (auto ok = present(); !ok) return tl::unexpected(ok.error());
    act();
    title();
    arm();
    // Records that came before arm() raise no event.
    arrived += progress();
    if (arrived == 0) sleep();
    if (lost_ == count_) break;
  }
  for (std::size_t i = 0; i < count_; ++i) {
    if (!alive_[i]) continue;
    if (auto ok = show_.players[i]->stop(); !ok) lose(i, ok.error());
  }
  if (auto ok = show_.screen->finish(); !ok) return tl::unexpected(ok.error());
  return lost_;
}

}  // namespace

Outcome<unsigned> run(Show& show) { return Loop(show).run(); }

}  // namespace weft::video
