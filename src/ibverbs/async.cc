#include "ibverbs/async.h"

#include <cerrno>

#include "ibverbs/errors.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

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

bool is_about(const ibv_async_event& event, const void* handle) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR: return event.element.cq == handle;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return event.element.srq == handle;
    case IBV_EVENT_DEVICE_FATAL: return false;
    default: return event.element.qp == handle;
  }
}

void push(Context& context, const ibv_async_event& event) {
  if (const auto queue = context.async()) queue->push(event);
}

// Calls `fill` with the adapter object, unless its handle was destroyed meanwhile.
template <class Engine, class Fill>
void deliver_to(const std::weak_ptr<Engine>& weak, Kind kind, Fill fill) {
  const std::shared_ptr<Engine> engine = weak.lock();
  if (engine == nullptr) return;
  // Each engine object carries its adapter object; null once that is gone.
  const std::shared_ptr<void> object = registry::find(engine->context(), kind);
  if (object != nullptr) fill(object.get());
}

// Waits for the acknowledgements, as the man page of ibv_ack_async_event promises.
template <class Handle>
void wait_for_acks(Handle& pub, std::uint32_t& completed, const std::uint32_t& delivered) {
  pthread_mutex_lock(&pub.mutex);
  // A program that acknowledges too often must not be made to wait for ever.
  while (static_cast<std::int32_t>(delivered - completed) > 0) {
    pthread_cond_wait(&pub.cond, &pub.mutex);
  }
  pthread_mutex_unlock(&pub.mutex);
}

template <class Handle>
void count_one(Handle& pub, std::uint32_t& counter) {
  pthread_mutex_lock(&pub.mutex);
  ++counter;
  pthread_cond_broadcast(&pub.cond);
  pthread_mutex_unlock(&pub.mutex);
}

void drop_queued(Context& context, const void* handle) {
  if (const auto queue = context.async()) {
    queue->take_if([handle](const ibv_async_event& event) { return is_about(event, handle); });
  }
}

// Counts a fetched event on its object, so that destroying the object waits for the ack.
void mark_delivered(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      if (Cq* cq = registry::find<Cq>(event.element.cq)) count_one(cq->pub, cq->async_delivered);
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      if (Srq* srq = registry::find<Srq>(event.element.srq)) {
        count_one(srq->pub, srq->async_delivered);
      }
      break;
    case IBV_EVENT_DEVICE_FATAL: break;
    default:
      if (Qp* qp = registry::find<Qp>(event.element.qp)) {
        count_one(qp->pub.qp_base, qp->async_delivered);
      }
  }
}

}  // namespace

void deliver_async(const AsyncEvent& event) {
  ibv_async_event out{};
  out.event_type = event_type(event.type);
  switch (event.type) {
    case AsyncEventType::kCqError:
      return deliver_to(event.cq, Kind::kCq, [&](void* object) {
        auto* cq = static_cast<Cq*>(object);
        out.element.cq = handle_of(*cq);
        push(*cq->context, out);
      });
    case AsyncEventType::kSrqLimitReached:
    case AsyncEventType::kSrqError:
      return deliver_to(event.srq, Kind::kSrq, [&](void* object) {
        auto* srq = static_cast<Srq*>(object);
        out.element.srq = handle_of(*srq);
        push(*srq->pd->context, out);
      });
    case AsyncEventType::kDeviceFatal:
      return registry::each_context([&](Context& context) {
        out.element.port_num = 1;
        push(context, out);
      });
    default:
      return deliver_to(event.qp, Kind::kQp, [&](void* object) {
        auto* qp = static_cast<Qp*>(object);
        out.element.qp = handle_of(*qp);
        push(*qp->context, out);
      });
  }
}

void settle_async(Cq& cq) {
  drop_queued(*cq.context, handle_of(cq));
  wait_for_acks(cq.pub, cq.pub.async_events_completed, cq.async_delivered);
}

void settle_async(Qp& qp) {
  drop_queued(*qp.context, handle_of(qp));
  wait_for_acks(qp.pub.qp_base, qp.pub.qp_base.events_completed, qp.async_delivered);
}

void settle_async(Srq& srq) {
  drop_queued(*srq.pd->context, handle_of(srq));
  wait_for_acks(srq.pub, srq.pub.events_completed, srq.async_delivered);
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

int ibv_get_async_event(ibv_context* handle, ibv_async_event* event) {
  auto* context = registry::find<Context>(handle);
  if (context == nullptr) return forward_minus(WEFT_REAL(ibv_get_async_event), handle, event);
  const auto queue = context->async();
  if (event == nullptr || queue == nullptr) return fail_minus(EINVAL);
  const std::optional<ibv_async_event> taken = queue->pop();
  if (!taken) return -1;
  *event = *taken;
  mark_delivered(*event);
  return 0;
}

void ibv_ack_async_event(ibv_async_event* event) {
  if (event == nullptr) return;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      if (Cq* cq = registry::find<Cq>(event->element.cq)) {
        return count_one(cq->pub, cq->pub.async_events_completed);
      }
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      if (Srq* srq = registry::find<Srq>(event->element.srq)) {
        return count_one(srq->pub, srq->pub.events_completed);
      }
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      if (Qp* qp = registry::find<Qp>(event->element.qp)) {
        return count_one(qp->pub.qp_base, qp->pub.qp_base.events_completed);
      }
      break;
    default: break;
  }
  if (auto* real = WEFT_REAL(ibv_ack_async_event)) real(event);
}

}  // extern "C"
