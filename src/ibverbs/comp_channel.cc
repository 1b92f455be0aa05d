// Completion channels and their events.

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "ibverbs/errors.h"
#include "ibverbs/observed.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"

using namespace weft::ibverbs;

namespace {

bool blocks(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

}  // namespace

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* handle) {
  return or_null([&]() -> ibv_comp_channel* {
    const auto context = registry::find<Context>(handle);
    if (!context) return forward_null(WEFT_REAL(ibv_create_comp_channel), handle);
    WEFT_MAY_FAIL(ibv_create_comp_channel, fail_null);
    auto engine = context->engine->create_channel();
    if (!engine) return fail_null(errno_of(engine.error()));
    auto channel = std::make_unique<Channel>();
    channel->engine = std::move(*engine);
    channel->context = context.object();
    channel->pub.context = handle;
    channel->pub.fd = channel->engine->fd();
    channel->pub.refcnt = 0;
    return registry::adopt(std::move(channel));
  });
}

int ibv_destroy_comp_channel(ibv_comp_channel* handle) {
  const auto channel = registry::find<Channel>(handle);
  if (!channel) return forward_int(WEFT_REAL(ibv_destroy_comp_channel), handle);
  if (const int error = close_users(*channel); error != 0) return fail_number(error);
  if (!registry::quarantine(handle, channel)) return fail_number(EINVAL);
  channel->engine.reset();
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** cq_context) {
  std::shared_ptr<Channel> own;
  std::shared_ptr<weft::CompletionChannel> engine;
  {
    const auto channel = registry::find<Channel>(handle);
    if (!channel) return forward_minus(WEFT_REAL(ibv_get_cq_event), handle, cq, cq_context);
    if (checked) own = channel.object();
    engine = channel->engine;
  }
  WEFT_MAY_FAIL(ibv_get_cq_event, fail_minus);
  if (cq == nullptr || cq_context == nullptr) return fail_minus(EINVAL);
  bool looks_first = checked && observer != nullptr && blocks(handle->fd);
  for (;;) {
    const auto wait = looks_first ? std::optional(std::chrono::nanoseconds(0)) : std::nullopt;
    const weft::Result<weft::CompletionQueue*> event = engine->wait(wait);
    if (std::exchange(looks_first, false) && !event) {
      observe_wait(*own);
      continue;
    }
    if (event) {
      // Alive: the event is not acknowledged, and destroying the CQ waits for that.
      Cq* object = static_cast<Cq*>((*event)->context());
      object->events_got.fetch_add(1, std::memory_order_relaxed);
      if (checked) observe_event(*object);
      if (shaking != nullptr) shake_event(*object);
      *cq = handle_of(*object);
      *cq_context = object->pub.cq_context;
      return 0;
    }
    if (event.error() == weft::Error::kTimedOut) return fail_minus(EAGAIN);
    if (event.error() != weft::Error::kAborted) return fail_minus(errno_of(event.error()));
    if (signals_interrupt()) return fail_minus(EINTR);
  }
}

void ibv_ack_cq_events(ibv_cq* handle, unsigned count) {
  if (const auto cq = registry::find<Cq>(handle)) {
    if (count == 0) return;
    // rdma-core counts in the public struct, and programs such as UCX read it there.
    pthread_mutex_lock(&handle->mutex);
    handle->comp_events_completed += count;
    pthread_cond_signal(&handle->cond);
    pthread_mutex_unlock(&handle->mutex);
    return cq->engine->ack_events(count);
  }
  if (auto* real = unless_quarantined(handle, WEFT_REAL(ibv_ack_cq_events))) real(handle, count);
}

}  // extern "C"
