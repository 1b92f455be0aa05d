#include "ibverbs/async.h"

#include <atomic>
#include <cerrno>

#include "ibverbs/errors.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"
#include "os/cancel.h"

namespace weft::ibverbs {
namespace {

ibv_event_type event_type(AsyncEventType type) {
  switch (type) {
    case AsyncEventType::kCqError: return IBV_EVENT_CQ_ERR;
    case AsyncEventType::kQpFatal: return IBV_EVENT_QP_FATAL;
    case AsyncEventType::kQpRequestError: return IBV_EVENT_QP_REQ_ERR;
    case AsyncEventType::kQpAccessError: return IBV_EVENT_QP_ACCESS_ERR;
    case AsyncEventType::kCommEstablished: return IBV_EVENT_COMM_EST;
    case AsyncEventType::kSqDrained: return IBV_EVENT_SQ_DRAINED;
    case AsyncEventType::kQpLastWqeReached: return IBV_EVENT_QP_LAST_WQE_REACHED;
    case AsyncEventType::kSrqLimitReached: return IBV_EVENT_SRQ_LIMIT_REACHED;
    case AsyncEventType::kSrqError: return IBV_EVENT_SRQ_ERR;
    case AsyncEventType::kDeviceFatal: break;
  }
  return IBV_EVENT_DEVICE_FATAL;
}

// Queues `event` for a live object of ours, unless its end has begun.
template <class T>
void push(Context& context, const Pin<T>& object, const ibv_async_event& event) {
  const auto queue = context.async();
  if (queue == nullptr) return;
  std::shared_ptr<AsyncTarget> target(object.object(), &object->async);
  const AsyncTarget& asked = *target;
  queue->push_if({event, std::move(target)}, [&] { return !asked.closed.load(); });
}

void count_one(AsyncTarget& target, std::uint32_t& counter) {
  pthread_mutex_lock(target.mutex);
  ++counter;
  pthread_cond_broadcast(target.cond);
  pthread_mutex_unlock(target.mutex);
}

// Waits for the acknowledgments, as the man page of ibv_ack_async_event promises.
void wait_for_acks(AsyncTarget& target) {
  const os::NoCancel guard;
  pthread_mutex_lock(target.mutex);
  // A program that acknowledges too often must not be made to wait forever.
  while (static_cast<std::int32_t>(target.delivered - *target.completed) > 0) {
    pthread_cond_wait(target.cond, target.mutex);
  }
  pthread_mutex_unlock(target.mutex);
}

template <class T>
bool acknowledge(const void* handle) {
  const Pin<T> object = registry::find<T>(handle);
  if (!object) return false;
  count_one(object->async, *object->async.completed);
  return true;
}

// The handle that an event names; null for events of a port or the device.
const void* element_of(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR: return event.element.cq;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return event.element.srq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return event.element.qp;
    default: return nullptr;
  }
}

}  // namespace

void deliver_async(const AsyncEvent& event) {
  ibv_async_event out{};
  out.event_type = event_type(event.type);
  switch (event.type) {
    case AsyncEventType::kCqError:
      if (const auto cq = adapter_of<Cq>(event.cq, event.object)) {
        out.element.cq = handle_of(*cq);
        push(*cq->context, cq, out);
      }
      return;
    case AsyncEventType::kSrqLimitReached:
    case AsyncEventType::kSrqError:
      if (const auto srq = adapter_of<Srq>(event.srq, event.object)) {
        out.element.srq = handle_of(*srq);
        push(*srq->context, srq, out);
      }
      return;
    case AsyncEventType::kDeviceFatal:
      out.element.port_num = 1;
      return registry::each_context([&](Context& context) {
        if (const auto queue = context.async()) queue->push({out, nullptr});
      });
    default:
      if (const auto qp = adapter_of<Qp>(event.qp, event.object)) {
        out.element.qp = handle_of(*qp);
        push(*qp->context, qp, out);
      }
  }
}

namespace {

std::atomic<bool> port_down{false};

template <class T>
bool raise_of(const void* handle, ibv_async_event& event) {
  const Pin<T> object = registry::find<T>(handle);
  if (object) push(*object->context, object, event);
  return static_cast<bool>(object);
}

}  // namespace

bool port_is_down() { return port_down.load(std::memory_order_relaxed); }

void raise_async(int event, const void* handle) {
  ibv_async_event out{};
  out.event_type = static_cast<ibv_event_type>(event);
  if (handle != nullptr) {
    auto* const object = const_cast<void*>(handle);
    out.element.qp = static_cast<ibv_qp*>(object);  // the same place for a CQ and an SRQ
    static_cast<void>(raise_of<Qp>(handle, out) || raise_of<Cq>(handle, out) ||
                      raise_of<Srq>(handle, out));
    return;
  }
  if (event == IBV_EVENT_PORT_ERR || event == IBV_EVENT_PORT_ACTIVE)
    port_down.store(event == IBV_EVENT_PORT_ERR, std::memory_order_relaxed);
  out.element.port_num = 1;
  registry::each_context([&](Context& context) {
    if (const auto queue = context.async()) queue->push({out, nullptr});
  });
}

std::vector<check::Unread::Event> unread_async(Context& context) {
  std::vector<check::Unread::Event> out;
  const auto queue = context.async();
  if (queue == nullptr) return out;
  queue->each([&out](const QueuedEvent& queued) {
    const ibv_event_type type = queued.event.event_type;
    if (type == IBV_EVENT_COMM_EST || type == IBV_EVENT_QP_LAST_WQE_REACHED) return;
    out.push_back({ibv_event_type_str(type), element_of(queued.event)});
  });
  return out;
}

void settle_async(Context& context, AsyncTarget& target, const void* handle) {
  target.closed.store(true);
  if (const auto queue = context.async()) {
    // Destroyed here, outside the queue's mutex: they own objects.
    const auto dropped =
        queue->take_if([&](const QueuedEvent& queued) { return queued.target.get() == &target; });
  }
  observe_owed(handle, check::Owed::kAsyncEvents, [&target] {
    pthread_mutex_lock(target.mutex);
    const auto owed = static_cast<std::int32_t>(target.delivered - *target.completed);
    pthread_mutex_unlock(target.mutex);
    return owed;
  });
  wait_for_acks(target);
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

int ibv_get_async_event(ibv_context* handle, ibv_async_event* event) {
  std::shared_ptr<AsyncQueue> queue;
  {
    const auto context = registry::find<Context>(handle);
    if (!context) return forward_minus(WEFT_REAL(ibv_get_async_event), handle, event);
    queue = context->async();
  }
  if (event == nullptr || queue == nullptr) return fail_minus(EINVAL);
  // Counted before the queue is let go: a destroy call that looks now must wait for the ack.
  const auto taken = queue->pop([](const QueuedEvent& queued) {
    if (queued.target != nullptr) count_one(*queued.target, queued.target->delivered);
  });
  if (!taken) return -1;
  if (shaking != nullptr) shake_async_event();
  *event = taken->event;
  return 0;
}

void ibv_ack_async_event(ibv_async_event* event) {
  if (event == nullptr) return;
  const void* element = element_of(*event);
  if (acknowledge<Qp>(element) || acknowledge<Cq>(element) || acknowledge<Srq>(element)) return;
  if (auto* real = unless_quarantined(element, WEFT_REAL(ibv_ack_async_event))) real(event);
}

}  // extern "C"
