#include "sockets/granted/number_states.h"

#include <sys/ipc.h>
#include <sys/shm.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <ctime>

#include "os/clock.h"
#include "os/signals_blocked.h"
#include "sockets/socket_settings.h"

namespace weft::sockets::granted {
namespace {

std::atomic<StateTable*> g_table{nullptr};
std::atomic<bool> g_refused{false};

constexpr std::int64_t kNsPerMs = 1'000'000;

void store(int fd, Number& number, const NumberState& state) {
  assert(fd >= 0);
  const std::uint64_t word = state.word();
  number.state.store(word, std::memory_order_relaxed);
  StateTable* table = g_table.load(std::memory_order_acquire);
  const auto at = static_cast<std::size_t>(fd);
  if (table != nullptr && at < StateTable::kMost) {
    table->words[at].store(word, std::memory_order_relaxed);
  }
}

}  // namespace

const char* path_of(Why why) {
  if (why == Why::kHidden) return "?";
  if (why == Why::kRing) return "ring";
  return why == Why::kRdma ? "rdma" : "tcp";
}

const char* reason_of(Why why) {
  switch (why) {
    case Why::kUnseen: return "made by a call that Weft does not see, or passed to this program";
    case Why::kQuiet: return "not busy: few calls have moved data";
    case Why::kLooking: return "busy, and its other end has not come yet";
    case Why::kRing: return "both ends run under Weft, on this machine";
    case Why::kRdma: return "the program asked for it: WEFT_MODE";
    case Why::kRule: return "a rule says tcp";
    case Why::kShared: return "copied, inherited by a process, or passed on";
    case Why::kOption: return "it has an option that a ring does not know";
    case Why::kSendBuffer: return "its send buffer is below 512 KiB";
    case Why::kCall: return "used by a call that only the kernel serves";
    case Why::kShutdown: return "one direction was shut down";
    case Why::kRights: return "the process gave up rights that a ring needs";
    case Why::kNoPeer: return "its other end is on another machine, or not under Weft";
    case Why::kNoMemory: return "no shared memory for a ring";
    case Why::kHidden:
      return "its state can't be read from here: another IPC namespace, or no right";
  }
  return "?";
}

namespace states {

void begin(int fd, From from) {
  Number* number = numbers::find(fd);
  if (number == nullptr) return;
  const std::int64_t now = os::clock_ns(CLOCK_REALTIME_COARSE) / kNsPerMs;
  store(fd, *number, {Why::kQuiet, from == From::kAccept, now});
}

void change(int fd, Number& number, Why why) {
  NumberState state = NumberState::of(number.state.load(std::memory_order_relaxed));
  if (state.why == why) return;
  state.why = why;
  state.since_ms = os::clock_ns(CLOCK_REALTIME_COARSE) / kNsPerMs;
  store(fd, number, state);
}

void tell(int fd, Number& number, Why why) {
  change(fd, number, why);
  const NumberState state = NumberState::of(number.state.load(std::memory_order_relaxed));
  tell_why(fd, state.accepted ? "accept" : "connect", path_of(why), reason_of(why));
}

void copy(int from, int to) {
  const Number* known = numbers::find(from);
  Number* number = numbers::find(to);
  if (known == nullptr || number == nullptr) return;
  store(to, *number, NumberState::of(known->state.load(std::memory_order_relaxed)));
}

void share() {
  if (g_table.load() != nullptr || g_refused.load()) return;
  const int error = errno;
  const os::SignalsBlocked blocked;
  const int id = shmget(IPC_PRIVATE, sizeof(StateTable), IPC_CREAT | 0600);
  void* at = id < 0 ? reinterpret_cast<void*>(-1) : shmat(id, nullptr, 0);
  // It is gone with the last process that has it; until then others may still attach to it.
  if (id >= 0) shmctl(id, IPC_RMID, nullptr);
  if (at == reinterpret_cast<void*>(-1)) {
    g_refused = true;
    errno = error;
    return;
  }
  auto* table = static_cast<StateTable*>(at);
  StateTable* before = nullptr;
  if (!g_table.compare_exchange_strong(before, table)) {
    shmdt(table);
    errno = error;
    return;
  }
  const int end = std::min(numbers::end(), static_cast<int>(StateTable::kMost));
  for (int fd = 0; fd < end; ++fd) {
    const Number* number = numbers::find(fd);
    if (number == nullptr) continue;
    // One that another thread has stored meanwhile is newer.
    std::uint64_t none = 0;
    table->words[static_cast<std::size_t>(fd)].compare_exchange_strong(none, number->state.load());
  }
  table->magic = StateTable::kMagic;
  errno = error;
}

void in_child() {
  if (StateTable* parents = g_table.exchange(nullptr); parents != nullptr) shmdt(parents);
  g_refused = false;
}

}  // namespace states
}  // namespace weft::sockets::granted
