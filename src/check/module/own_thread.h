// A thread of the module's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "os/clock.h"
#include "os/lock.h"

namespace weft::check {

// Does `work` in a thread that gets no signals: they are for the program's. Where there can be none
// that is said, with the `option` of `weft run` that it was for, unless that is null.
void in_background(const char* option, std::function<void()> work);

// Returns the result of `ask` in such a thread, if that comes within a second: it may wait for a
// lock that the caller's thread has, or that nobody gives back.
template <class Ask>
[[nodiscard]] std::optional<std::invoke_result_t<Ask>> answer_soon(Ask ask) {
  struct Answer {
    os::Mutex mutex;
    os::Condition is_there;
    std::optional<std::invoke_result_t<Ask>> value WEFT_GUARDED_BY(mutex);
  };
  const auto answer = std::make_shared<Answer>();
  in_background(nullptr, [answer, ask = std::move(ask)] {
    auto value = ask();
    const os::MutexLock lock(answer->mutex);
    answer->value = std::move(value);
    answer->is_there.notify_all();
  });
  constexpr std::int64_t kPatienceNs = 1'000'000'000;
  const std::int64_t end = os::monotonic_ns() + kPatienceNs;
  const os::MutexLock lock(answer->mutex);
  for (std::int64_t left = kPatienceNs; !answer->value && left > 0;
       left = end - os::monotonic_ns()) {
    answer->is_there.wait_for(answer->mutex, std::chrono::nanoseconds(left));
  }
  return answer->value;
}

}  // namespace weft::check
