#include "verbs/kept_question.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "os/clock.h"
#include "os/guarded.h"

namespace weft::verbs {

namespace {

// Both are as the kernel wrote them, or as a program did twice. The port of `local` is TCP's.
bool is_same(SocketAddress a, SocketAddress b, bool with_port) {
  if (!with_port) {
    a.set_port(0);
    b.set_port(0);
  }
  return a.size() == b.size() && std::memcmp(a.get(), b.get(), a.size()) == 0;
}

}  // namespace

void KeptQuestion::keep(PortQuestion question, const SocketAddress& local,
                        const SocketAddress& peer) {
  assert(engine_ != nullptr && question);
  if (!engine_->give(question.fd(), self_)) {
    engine_->forget(question.fd());
    return;
  }
  std::optional<Kept> over = Kept{std::move(question), local, peer, os::now() + kKept};
  {
    const os::MutexLock lock(mutex_);
    if (!timer_set_) timer_set_ = schedule(over->until);
    if (timer_set_) kept_.swap(over);  // else nobody would close it
  }
  let_go(std::move(over));
}

std::optional<PortQuestion> KeptQuestion::take(const SocketAddress& local,
                                               const SocketAddress& peer,
                                               const std::weak_ptr<io::Handler>& asker) {
  std::optional<Kept> kept;
  {
    const os::MutexLock lock(mutex_);
    if (!kept_ || !is_same(kept_->local, local, false) || !is_same(kept_->peer, peer, true)) {
      return {};
    }
    kept = std::exchange(kept_, std::nullopt);
  }
  if (!engine_->give(kept->question.fd(), asker)) {
    let_go(std::move(kept));
    return {};
  }
  kept->question.renew();
  return std::move(kept->question);
}

// Without memory there is no timer, and the engine has to forget the socket all the same.
bool KeptQuestion::schedule(Instant until) {
  const auto timer =
      os::guarded([&]() -> Result<io::TimerId> { return engine_->schedule(until, self_); });
  return timer && *timer != 0;
}

void KeptQuestion::let_go(std::optional<Kept> kept) {
  if (kept) engine_->forget(kept->question.fd());
}

// An answer that came twice, or an error: the next question would take it for its own.
void KeptQuestion::on_io(std::uint32_t /*events*/) {
  std::optional<Kept> kept;
  {
    const os::MutexLock lock(mutex_);
    kept = std::exchange(kept_, std::nullopt);
  }
  let_go(std::move(kept));
}

void KeptQuestion::on_timer(io::TimerId /*id*/) {
  std::optional<Kept> over;
  {
    const os::MutexLock lock(mutex_);
    timer_set_ = false;
    if (kept_ && kept_->until <= os::now()) {
      over = std::exchange(kept_, std::nullopt);
    } else if (kept_) {
      timer_set_ = schedule(kept_->until);
      if (!timer_set_) over = std::exchange(kept_, std::nullopt);
    }
  }
  let_go(std::move(over));
}

}  // namespace weft::verbs
