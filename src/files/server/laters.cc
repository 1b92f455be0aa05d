#include "files/server/laters.h"

#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

namespace weft::files {

void Laters::Later::work() noexcept {
  try {
    error = task();
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
}

int Laters::carry_out(const Asked& asked, bool slow, Task task, Reply reply) {
  if (!slow) {
    const int error = task();
    if (error == 0) reply();
    return error;
  }
  if (!answers_.begin()) return 0;
  auto later = std::make_unique<Later>();
  later->laters = this;
  later->asked = asked;
  later->task = std::move(task);
  later->reply = std::move(reply);
  waiting_.push_back(std::move(later));
  run();
  return 0;
}

void Laters::run() {
  for (; running_ < kMostRunning && !waiting_.empty(); waiting_.pop_front()) {
    ++running_;
    background_.run(std::move(waiting_.front()));
  }
}

void Laters::done(const Later& later) {
  assert(later.laters == this && running_ > 0);
  --running_;
  if (answers_.closed()) return;
  answers_.end();
  run();
  if (later.error != 0) return answers_.refuse(later.asked, later.error);
  later.reply();
}

}  // namespace weft::files
