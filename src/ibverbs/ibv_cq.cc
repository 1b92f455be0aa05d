// Creating, resizing and destroying completion queues.

#include <weft/limits.h>

#include <cerrno>

#include "ibverbs/async.h"
#include "ibverbs/completion.h"
#include "ibverbs/errors.h"
#include "ibverbs/likeness.h"
#include "ibverbs/observed.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"

namespace weft::ibverbs {
namespace {

struct CqRequest {
  std::uint32_t depth;
  void* cq_context;
  ibv_comp_channel* channel;
  std::uint32_t vector;
};

// As many as the program may count on: under --check no more than it is checked for.
std::uint32_t granted_depth(Cq& cq, std::uint32_t depth) {
  cq.asked_depth.store(depth, std::memory_order_relaxed);
  if (checked) return depth;
  return imitate(like::Size::kCqe, depth, cq.engine->depth());
}

// Null with errno.
std::unique_ptr<Cq> make_cq(ibv_context* handle, const CqRequest& request) {
  const auto context = registry::find<Context>(handle);
  const auto channel = registry::find<Channel>(request.channel);
  if (request.channel != nullptr && !channel) return fail_null(EINVAL);
  if (!context || request.depth < 1 || request.depth > limits::kCompletionsPerQueue ||
      request.vector >= static_cast<std::uint32_t>(handle->num_comp_vectors)) {
    return fail_null(EINVAL);
  }
  int error = refused(like::Act::kCqCqeBeyond, like::Number::kMaxCqe, request.depth);
  if (error == 0) error = refused_one_more(like::Number::kMaxCq, registry::count(Kind::kCq));
  if (error != 0) return fail_null(error);
  auto cq = std::make_unique<Cq>();
  CqOptions options;
  options.depth = request.depth;
  options.context = cq.get();
  if (channel) {
    if (!cq->channel.take(channel.object())) return fail_null(EINVAL);
    options.channel = channel->engine;
  }
  auto engine = context->engine->create_cq(options);
  if (!engine) return fail_null(errno_of(engine.error()));
  cq->engine = std::move(*engine);
  cq->delivers_to = cq->engine;
  if (shaking != nullptr) shake(*cq, request.depth);
  cq->context = context.object();
  ibv_cq_ex& pub = cq->pub;
  pub.context = handle;
  pub.channel = request.channel;
  pub.cq_context = request.cq_context;
  pub.cqe = static_cast<int>(granted_depth(*cq, request.depth));
  init_async(cq->async, pub, pub.async_events_completed);
  return cq;
}

// The handle that the program gets. Then the channel counts it.
ibv_cq* give_out(std::unique_ptr<Cq> cq) {
  ibv_comp_channel* const channel = cq->pub.channel;
  ibv_cq* const handle = registry::adopt(std::move(cq));
  if (channel != nullptr) __atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_ACQ_REL);
  return handle;
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* handle, ibv_cq_init_attr_ex* attr) {
  WEFT_MAY_FAIL(ibv_create_cq_ex, fail_null);
  if (const int error = refused(like::Act::kCqExtended); error != 0) return fail_null(error);
  return or_null([&]() -> ibv_cq_ex* {
    constexpr std::uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    constexpr std::uint32_t kKnownFlags =
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    // Timestamps, VLAN tags, flow and matching tags are not kept.
    constexpr std::uint64_t kKnownWc = IBV_WC_STANDARD_FLAGS;
    if (attr == nullptr || (attr->comp_mask & ~kKnownMask) != 0) return fail_null(EINVAL);
    const std::uint32_t flags =
        (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
    if ((flags & ~kKnownFlags) != 0) return fail_null(EINVAL);
    if ((attr->wc_flags & ~kKnownWc) != 0) return fail_null(EOPNOTSUPP);
    bool one_thread = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
      const auto pd = registry::find<Pd>(attr->parent_domain);
      if (!pd) return fail_null(EINVAL);
      one_thread = one_thread || pd->thread;
    }
    auto cq = make_cq(handle, {attr->cqe, attr->cq_context, attr->channel, attr->comp_vector});
    if (cq == nullptr) return nullptr;
    cq->one_thread.promised = one_thread;
    set_polling_operations(cq->pub);
    return &cq_of(give_out(std::move(cq)))->pub;
  });
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

ibv_cq* ibv_create_cq(ibv_context* handle, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int comp_vector) {
  return or_null([&]() -> ibv_cq* {
    if (!registry::find<Context>(handle)) {
      return forward_null(WEFT_REAL(ibv_create_cq), handle, cqe, cq_context, channel, comp_vector);
    }
    WEFT_MAY_FAIL(ibv_create_cq, fail_null);
    if (cqe < 1 || comp_vector < 0) return fail_null(EINVAL);
    auto cq = make_cq(handle, {static_cast<std::uint32_t>(cqe), cq_context, channel,
                               static_cast<std::uint32_t>(comp_vector)});
    if (cq == nullptr) return nullptr;
    return give_out(std::move(cq));
  });
}

int ibv_resize_cq(ibv_cq* handle, int cqe) {
  const auto cq = registry::find<Cq>(handle);
  if (!cq) return forward_int(WEFT_REAL(ibv_resize_cq), handle, cqe);
  WEFT_MAY_FAIL(ibv_resize_cq, fail_number);
  if (cqe < 1) return fail_number(EINVAL);
  const auto depth = static_cast<std::uint32_t>(cqe);
  int error = refused(weft::like::Act::kCqResize);
  if (error == 0)
    error = refused(weft::like::Act::kCqCqeBeyond, weft::like::Number::kMaxCqe, depth);
  if (error != 0) return fail_number(error);
  const weft::Status done = cq->engine->resize(depth);
  if (!done) return fail_number(errno_of(done));
  handle->cqe = static_cast<int>(granted_depth(*cq, depth));
  return 0;
}

int ibv_destroy_cq(ibv_cq* handle) {
  const auto cq = registry::find<Cq>(handle);
  if (!cq) return forward_int(WEFT_REAL(ibv_destroy_cq), handle);
  if (observer != nullptr) observe_depth(*cq);
  if (const int error = close_users(*cq); error != 0) return fail_number(error);
  observe_owed(handle, weft::check::Owed::kCqEvents, [&] {
    return static_cast<std::int32_t>(cq->events_got.load() - cq->pub.comp_events_completed);
  });
  cq->engine->wait_for_acks();
  settle_async(*cq->context, cq->async, handle);
  if (!registry::quarantine(handle, cq)) return fail_number(EINVAL);
  event_is_not_due(*cq);
  cq->engine.reset();
  cq->delivers_to.reset();
  if (cq->channel) __atomic_sub_fetch(&cq->channel->pub.refcnt, 1, __ATOMIC_ACQ_REL);
  cq->channel.reset();
  return 0;
}

}  // extern "C"
