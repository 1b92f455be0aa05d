// How long the requests of a wired queue pair wait for its peer: for as long as the retries of the
// attributes. A peer whose machine has taken the call is none that does not answer, as an adapter
// answers whatever its machine is busy with: it has roce::kAnswerLimit more. Time in which this
// process did not run does not count, since nobody could have called, or read an answer.
//
// Not thread-safe.
#pragma once

#include <memory>

#include "io/engine.h"

namespace weft::verbs {

class RetryClock {
 public:
  explicit RetryClock(io::Engine& engine) noexcept : engine_(engine) {}

  // False behind start(): there was no memory for a timer, and whoever looks starts it again.
  [[nodiscard]] bool runs() const noexcept {
    return wanted_ && (timer_ != 0 || limit_ == Duration::max());
  }
  // `limit` may be Duration::max(). The timer goes to `handler`, which asks is_over().
  void start(Duration limit, std::weak_ptr<io::Handler> handler);
  void stop();
  // The peer has taken a call, or is calling itself.
  void peer_is_there() noexcept { there_ = true; }
  // A call came to nothing.
  void peer_is_not_there();
  // Whether the time is over, of which nothing is left then. False: `id` is another timer, a late
  // one, or the peer has got more time.
  [[nodiscard]] bool is_over(io::TimerId id);

 private:
  void set_timer(Duration pause);
  [[nodiscard]] bool goes_on_late();

  io::Engine& engine_;
  std::weak_ptr<io::Handler> handler_;
  io::TimerId timer_ = 0;
  Duration limit_{0};
  Instant due_{};
  Duration missed_{0};  // while this process did not run
  bool wanted_ = false;
  bool there_ = false;
  bool overdue_ = false;  // the retries are used up, and the peer has got more time
};

}  // namespace weft::verbs
