#include "verbs/oob/retry_clock.h"

#include <algorithm>
#include <utility>

#include "os/clock.h"
#include "roce/rules.h"

namespace weft::verbs {

namespace {

// A timer that is later than this means that the engine's thread did not get a CPU.
constexpr Duration kLate{20'000'000};

}  // namespace

void RetryClock::start(Duration limit, std::weak_ptr<io::Handler> handler) {
  wanted_ = true;
  limit_ = limit;
  missed_ = Duration{0};
  handler_ = std::move(handler);
  if (limit != Duration::max()) set_timer(limit);
}

void RetryClock::stop() {
  wanted_ = there_ = overdue_ = false;
  engine_.forget_timer(timer_);
  timer_ = 0;
}

void RetryClock::peer_is_not_there() {
  there_ = false;
  if (overdue_) set_timer(Duration{0});
  if (wanted_ && !runs()) set_timer(limit_);
}

bool RetryClock::is_over(io::TimerId id) {
  if (id == 0 || id != timer_) return false;
  timer_ = 0;
  if (goes_on_late()) return false;
  if (there_ && !overdue_) {
    set_timer(roce::kAnswerLimit);
    overdue_ = timer_ != 0;
    if (overdue_) return false;
  }
  stop();
  return true;
}

// As long again as the timer was late, but not for ever on a machine that is always busy.
bool RetryClock::goes_on_late() {
  const Duration late = std::min(os::now() - due_, roce::kAnswerLimit - missed_);
  if (late < kLate) return false;
  missed_ += late;
  set_timer(late);
  return timer_ != 0;
}

void RetryClock::set_timer(Duration pause) {
  engine_.forget_timer(timer_);
  due_ = os::now() + pause;
  timer_ = engine_.schedule(due_, handler_);
}

}  // namespace weft::verbs
