#include "files/server/background.h"

#include <utility>

#include "os/event_fd.h"

namespace weft::files {

Background::Background(std::size_t most_threads)
    : event_(os::make_event()),
      threads_(
          Threads::make(most_threads, [](std::unique_ptr<Job>& job) noexcept { job->work(); })) {
  threads_->raises(event_.get());
}

std::unique_ptr<Background> Background::create(std::size_t most_threads) {
  std::unique_ptr<Background> out(new Background(most_threads));
  if (!out->event_) out.reset();
  return out;
}

void Background::run(std::unique_ptr<Job> job) {
  ++pending_;
  threads_->run(std::move(job));
}

std::size_t Background::progress() {
  if (pending_ == 0) return 0;
  const auto done = threads_->take_done_and_lower();
  pending_ -= done.size();
  for (const auto& job : done) job->done();
  return done.size();
}

}  // namespace weft::files
