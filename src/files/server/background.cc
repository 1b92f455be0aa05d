#include "files/server/background.h"

#include <system_error>
#include <utility>

#include "os/event_fd.h"
#include "os/signals_blocked.h"

namespace weft::files {

std::unique_ptr<Background> Background::create(std::size_t most_threads) {
  std::unique_ptr<Background> out(new Background(most_threads));
  out->event_ = os::make_event();
  if (!out->event_) out.reset();
  return out;
}

Background::~Background() {
  std::deque<std::unique_ptr<Job>> dropped;
  {
    const os::MutexLock lock(mutex_);
    ends_ = true;
    dropped.swap(jobs_);
  }
  has_job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Background::run(std::unique_ptr<Job> job) {
  bool more = false;
  {
    const os::MutexLock lock(mutex_);
    jobs_.push_back(std::move(job));
    more = jobs_.size() > idle_ && threads_.size() < most_threads_;
  }
  ++pending_;
  has_job_.notify_one();
  if (!more) return;
  try {
    threads_.push_back(os::start_thread([this] { serve(); }));
  } catch (const std::system_error&) {
    if (!threads_.empty()) return;  // those that there are do it
    std::unique_ptr<Job> mine;
    {
      const os::MutexLock lock(mutex_);
      mine = std::move(jobs_.back());
      jobs_.pop_back();
    }
    mine->work();
    add_done(std::move(mine));
  }
}

void Background::add_done(std::unique_ptr<Job> job) {
  bool first = false;
  {
    const os::MutexLock lock(mutex_);
    first = done_.empty();
    done_.push_back(std::move(job));
  }
  if (first) os::raise_event(fd());
}

void Background::serve() {
  os::MutexLock lock(mutex_);
  for (;;) {
    ++idle_;
    while (!ends_ && jobs_.empty()) has_job_.wait(mutex_);
    --idle_;
    if (ends_) return;
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job->work();
    add_done(std::move(job));
    lock.lock();
  }
}

std::size_t Background::progress() {
  if (pending_ == 0) return 0;
  std::vector<std::unique_ptr<Job>> done;
  {
    const os::MutexLock lock(mutex_);
    if (done_.empty()) return 0;
    done.swap(done_);
    static_cast<void>(os::lower_event(fd()));  // whoever adds to an empty list raises it again
  }
  pending_ -= done.size();
  for (const auto& job : done) job->done();
  return done.size();
}

}  // namespace weft::files
