// Event queues and registered memory.
#include <csignal>
#include <cstring>

#include "exs/api/exs_api.h"

using namespace weft::exs;

namespace {

constexpr int kDepthMax = 1 << 20;

Instant deadline(const timeval* timeout) {
  if (timeout == nullptr) return Instant::max();
  const auto length =
      std::chrono::seconds(timeout->tv_sec) + std::chrono::microseconds(timeout->tv_usec);
  return length == std::chrono::microseconds::zero() ? Instant::min() : Clock::now() + length;
}

}  // namespace

extern "C" {

exs_qhandle_t exs_qcreate(int depth) try {
  if (!initialized() || depth < 1 || depth > kDepthMax) return fail(EINVAL);
  const int handle =
      Engine::instance().queues.add(std::make_shared<EventQueue>(static_cast<std::size_t>(depth)));
  return handle >= 0 ? handle : fail(ENOMEM);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_qdelete(exs_qhandle_t q) try {
  auto& queues = Engine::instance().queues;
  if (queues.find(q) == nullptr) return fail(EINVAL);
  const auto gone = queues.remove_if(q, [](const EventQueue& queue) { return !queue.busy(); });
  if (gone == nullptr) return fail(EBUSY);
  gone->retire();
  return 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_qdequeue(exs_qhandle_t q, exs_event_t* vec, int n, const timeval* timeout) try {
  if (n == 0 || n > EXS_EVTVEC_MAX || n < -EXS_EVTVEC_MAX) return fail(EINVAL);
  if (vec == nullptr) return fail(EFAULT);
  if (timeout != nullptr &&
      (timeout->tv_sec < 0 || timeout->tv_usec < 0 || timeout->tv_usec >= 1000000)) {
    return fail(EINVAL);
  }
  const auto queue = Engine::instance().queues.find(q);
  if (queue == nullptr) return fail(EINVAL);
  const auto most = static_cast<std::size_t>(n < 0 ? -n : n);
  const std::size_t need = n < 0 ? most : 1;
  const Instant until = deadline(timeout);
  const int error = Engine::instance().wait(*queue, need, until, queue->strategy());
  if (error != 0 && queue->waiting() < need) return fail(error);
  const auto taken = static_cast<int>(queue->pop(vec, most));
  // An event loop takes what is there and sleeps on the descriptor next.
  if (until == Instant::min() && queue->may_be_slept_on()) Engine::instance().hand_over();
  return taken;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_qmodify(exs_qhandle_t q, int attribute, const void* value) try {
  const auto queue = Engine::instance().queues.find(q);
  if (queue == nullptr) return fail(EINVAL);
  if (value == nullptr) return fail(EFAULT);
  if (attribute == EXS_QATTR_SIGNAL) {
    exs_signal_t signal;
    std::memcpy(&signal, value, sizeof signal);
    const bool enable = signal.enable == EXS_SIG_ENABLE;
    if (!enable && signal.enable != EXS_SIG_DISABLE) return fail(EINVAL);
    if (enable && (signal.signo < 1 || signal.signo > SIGRTMAX)) return fail(EINVAL);
    queue->set_signal(signal);
    return 0;
  }
  int number = 0;
  std::memcpy(&number, value, sizeof number);
  if (attribute == EXS_QATTR_DEPTH) {
    if (number < 1 || number > kDepthMax) return fail(EINVAL);
    queue->set_depth(static_cast<std::size_t>(number));
    return 0;
  }
  if (attribute != EXS_QATTR_WAIT) return fail(EINVAL);
  if (number < EXS_WAIT_ADAPTIVE || number > EXS_WAIT_NOTIFY) return fail(EINVAL);
  queue->set_strategy(number);
  return 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_qstatus(exs_qhandle_t q, int attribute, void* value) try {
  const auto queue = Engine::instance().queues.find(q);
  if (queue == nullptr) return fail(EINVAL);
  if (value == nullptr) return fail(EFAULT);
  int number = 0;
  switch (attribute) {
    case EXS_QATTR_DEPTH: number = static_cast<int>(queue->depth()); break;
    case EXS_QATTR_EVENTS: number = static_cast<int>(queue->waiting()); break;
    case EXS_QATTR_WAIT: number = queue->strategy(); break;
    case EXS_QATTR_SIGNAL: {
      const exs_signal_t signal = queue->signal();
      std::memcpy(value, &signal, sizeof signal);
      return 0;
    }
    default: return fail(EINVAL);
  }
  std::memcpy(value, &number, sizeof number);
  return 0;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_qfd(exs_qhandle_t q) try {
  const auto queue = Engine::instance().queues.find(q);
  if (queue == nullptr) return fail(EINVAL);
  const int fd = queue->readable_fd();
  // A thread that sleeps on this descriptor makes no progress, so the progress thread takes over.
  if (fd >= 0) Engine::instance().hand_over();
  return fd;
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

exs_mhandle_t exs_mregister(void* addr, size_t len, int flags) try {
  if (!initialized() || (flags & ~EXS_MRF_SHARED) != 0 || len == 0) return fail(EINVAL);
  if (addr == nullptr || len > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(addr)) {
    return fail(EFAULT);
  }
  const int handle = Engine::instance().regions.add(std::make_shared<Region>(addr, len));
  return handle >= 0 ? handle : fail(ENOMEM);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

int exs_mderegister(exs_mhandle_t mh) try {
  auto& regions = Engine::instance().regions;
  if (regions.find(mh) == nullptr) return fail(EINVAL);
  const auto gone = regions.remove_if(mh, [](const Region& region) { return !region.busy(); });
  return gone != nullptr ? 0 : fail(EBUSY);
} catch (const std::exception& thrown) {
  return refuse(thrown);
}

const char* exs_strevent(int type) {
  switch (type) {
    case EXS_EVT_POLL: return "EXS_EVT_POLL";
    case EXS_EVT_CONNECT: return "EXS_EVT_CONNECT";
    case EXS_EVT_ACCEPT: return "EXS_EVT_ACCEPT";
    case EXS_EVT_SEND: return "EXS_EVT_SEND";
    case EXS_EVT_RECV: return "EXS_EVT_RECV";
    case EXS_EVT_SENDMSG: return "EXS_EVT_SENDMSG";
    case EXS_EVT_RECVMSG: return "EXS_EVT_RECVMSG";
    case EXS_EVT_SENDFILE: return "EXS_EVT_SENDFILE";
    case EXS_EVT_SENDTIMEOUT: return "EXS_EVT_SENDTIMEOUT";
    case EXS_EVT_RECVTIMEOUT: return "EXS_EVT_RECVTIMEOUT";
    case EXS_EVT_SHUTDOWN: return "EXS_EVT_SHUTDOWN";
    case EXS_EVT_CLOSE: return "EXS_EVT_CLOSE";
    case EXS_EVT_WRITE: return "EXS_EVT_WRITE";
    case EXS_EVT_READ: return "EXS_EVT_READ";
    case EXS_EVT_FETCHADD: return "EXS_EVT_FETCHADD";
    case EXS_EVT_CMPSWAP: return "EXS_EVT_CMPSWAP";
    default: return "unknown event";
  }
}

}  // extern "C"
