#include "ibverbs/fork_child.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace weft::ibverbs {
namespace {

constexpr std::size_t kForkHooks = 8;
std::array<std::atomic<void (*)()>, kForkHooks> fork_hooks{};

void after_fork_in_child() {
  for (auto& hook : fork_hooks) {
    if (auto* forget = hook.load()) forget();
  }
}

}  // namespace

void on_fork_child(void (*forget)()) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, after_fork_in_child); });
  for (auto& hook : fork_hooks) {
    void (*expected)() = nullptr;
    if (hook.compare_exchange_strong(expected, forget) || expected == forget) return;
  }
}

}  // namespace weft::ibverbs
