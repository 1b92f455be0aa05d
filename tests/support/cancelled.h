// Threads that are cancelled by pthread_cancel().
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace weft::test {

// A thread that runs `body`, and can be cancelled.
class Cancellable {
 public:
  explicit Cancellable(std::function<void()> body) : body_(std::move(body)) {
    pthread_create(&thread_, nullptr, &Cancellable::run, this);
  }
  ~Cancellable() {
    if (!joined_) static_cast<void>(was_cancelled());
  }
  Cancellable(const Cancellable&) = delete;
  Cancellable& operator=(const Cancellable&) = delete;

  // Waits until it sleeps or has ended, for a while: a test shows less if it does not.
  void wait_until_asleep() const {
    constexpr int kLooks = 2000;
    for (int i = 0; i < kLooks && !ended_.load(); ++i) {
      if (state() == 'S') return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void cancel() { pthread_cancel(thread_); }
  // Waits for its end. False: `body` has returned.
  [[nodiscard]] bool was_cancelled() {
    void* result = nullptr;
    pthread_join(thread_, &result);
    joined_ = true;
    return result == PTHREAD_CANCELED;
  }

 private:
  // Also where the thread is cancelled.
  struct Ending {
    std::atomic<bool>& ended;
    ~Ending() { ended.store(true); }
  };
  static void* run(void* self) {
    auto& me = *static_cast<Cancellable*>(self);
    const Ending ending{me.ended_};
    me.tid_.store(gettid());
    me.body_();
    return nullptr;
  }
  [[nodiscard]] char state() const {
    std::ifstream file("/proc/self/task/" + std::to_string(tid_.load()) + "/stat");
    std::string text;
    std::getline(file, text);  // nothing, if the thread has just ended
    const auto name_end = text.rfind(") ");
    return name_end == std::string::npos ? ' ' : text[name_end + 2];
  }

  std::function<void()> body_;
  std::atomic<pid_t> tid_{0};
  std::atomic<bool> ended_{false};
  pthread_t thread_{};
  bool joined_ = false;
};

// Whether `body` returns in a thread that was cancelled before: it has no cancellation point then.
[[nodiscard]] inline bool comes_back(const std::function<void()>& body) {
  bool back = false;
  Cancellable thread([&] {
    pthread_cancel(pthread_self());
    body();
    back = true;
  });
  static_cast<void>(thread.was_cancelled());
  return back;
}

// Whether a thread that sleeps in `body` ends there when it is cancelled.
[[nodiscard]] inline bool ends_in_its_sleep(const std::function<void()>& body) {
  Cancellable thread(body);
  thread.wait_until_asleep();
  thread.cancel();
  return thread.was_cancelled();
}

}  // namespace weft::test
