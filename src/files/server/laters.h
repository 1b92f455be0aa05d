// Work for the requests of a session that may take long, done in the background, and what then
// answers them. Few at a time, in the order of the requests.
//
// Belongs to a session, which stays until running() is 0. One thread, the server's, calls; a task
// runs on a thread of the background, what follows on the server's.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "files/server/answers.h"
#include "files/server/background.h"

namespace weft::files {

class Laters {
 public:
  static constexpr unsigned kMostRunning = 2;
  using Task = std::function<int()>;  // returns an errno
  using Reply = std::function<void()>;

  // `background` is used when there is something to do, and outlives this.
  Laters(Answers& answers, Background& background) : answers_(answers), background_(background) {}
  Laters(const Laters&) = delete;
  Laters& operator=(const Laters&) = delete;

  // Does `task`, and `reply` unless that gives an errno: at once, or if it is slow in the
  // background, where a refusal is sent too. Returns the errno of what was done at once.
  [[nodiscard]] int carry_out(const Asked& asked, bool slow, Task task, Reply reply);

  // Those that were not begun are dropped, and nothing more is answered.
  void close() { waiting_.clear(); }
  [[nodiscard]] std::size_t running() const { return running_; }
  [[nodiscard]] std::size_t size() const { return waiting_.size() + running_; }

 private:
  struct Later final : Background::Job {
    Laters* laters = nullptr;
    Asked asked;
    Task task;
    Reply reply;
    int error = 0;
    void work() noexcept override;
    void done() override { laters->done(*this); }
  };
  void run();
  void done(const Later& later);

  Answers& answers_;
  Background& background_;
  std::deque<std::unique_ptr<Later>> waiting_;
  unsigned running_ = 0;
};

}  // namespace weft::files
