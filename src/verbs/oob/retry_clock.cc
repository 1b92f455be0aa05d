#include "verbs/oob/retry_clock.h"

#include <utility>

#include "os/clock.h"
#include "roce/rules.h"

namespace weft::verbs {

void RetryClock::start(Duration limit, std::weak_ptr<io::Handler> handler) {
  runs_ = true;
  handler_ = std::move(handler);
  if (limit != Duration::max()) set_timer(limit);
}

void RetryClock::stop() {
  runs_ = there_ = overdue_ = false;
  engine_.forget_timer(timer_);
  timer_ = 0;
}

void RetryClock::peer_is_not_there() {
  there_ = false;
  if (overdue_) set_timer(Duration{0});
}

bool RetryClock::is_over(io::TimerId id) {
  if (id == 0 || id != timer_) return false;
  timer_ = 0;
  if (there_ && !overdue_) {
    set_timer(roce::kAnswerLimit);
    overdue_ = timer_ != 0;
    if (overdue_) return false;
  }
  stop();
  return true;
}

void RetryClock::set_timer(Duration pause) {
  engine_.forget_timer(timer_);
  timer_ = engine_.schedule(os::now() + pause, handler_);
}

}  // namespace weft::verbs
