#include "ibverbs/ibv_srq.h"

#include <algorithm>
#include <cerrno>

#include "ibverbs/async.h"
#include "ibverbs/errors.h"
#include "ibverbs/likeness.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"

namespace weft::ibverbs {
namespace {

ibv_srq* create(ibv_pd* pd_handle, void* srq_context, ibv_srq_attr& attr) {
  return or_null([&]() -> ibv_srq* {
    const auto pd = registry::find<Pd>(pd_handle);
    if (!pd || attr.max_wr < 1) return fail_null(EINVAL);
    int error = refused_srq(attr);
    if (error == 0) error = refused_one_more(like::Number::kMaxSrq, registry::count(Kind::kSrq));
    if (error != 0) return fail_null(error);
    auto srq = std::make_unique<Srq>();
    SrqOptions options;
    options.max_wr = attr.max_wr;
    options.max_sge = std::max(attr.max_sge, 1U);
    options.context = srq.get();
    auto engine = pd->engine->create_srq(options);
    if (!engine) return fail_null(errno_of(engine.error()));
    srq->engine = std::move(*engine);
    srq->takes_from = srq->engine;
    if (observer != nullptr) srq->follower = observer->follow_receives();
    if (shaking != nullptr) shake(*srq, options.max_wr);
    srq->context = pd->context;
    if (!srq->pd.take(pd.object())) return fail_null(EINVAL);
    srq->one_thread.promised = static_cast<bool>(pd->thread);
    srq->pub.context = pd_handle->context;
    srq->pub.srq_context = srq_context;
    srq->pub.pd = pd_handle;
    srq->pub.handle = srq->engine->number();
    init_async(srq->async, srq->pub, srq->pub.events_completed);
    attr.max_wr = imitate(like::Size::kSrqWr, attr.max_wr, srq->engine->max_wr());
    attr.max_sge = srq->engine->max_sge();
    return registry::adopt(std::move(srq));
  });
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* /*handle*/, ibv_srq_init_attr_ex* attr) {
  WEFT_MAY_FAIL(ibv_create_srq_ex, fail_null);
  constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  if (attr == nullptr) return fail_null(EINVAL);
  // The header sends basic SRQs with a domain to ibv_create_srq: what arrives here is XRC, tag
  // matching, or has no domain.
  if ((attr->comp_mask & ~kKnown) != 0) return fail_null(EOPNOTSUPP);
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr->srq_type != IBV_SRQT_BASIC) {
    return fail_null(EOPNOTSUPP);
  }
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) return fail_null(EINVAL);
  return create(attr->pd, attr->srq_context, attr->attr);
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (!registry::find<Pd>(pd)) return forward_null(WEFT_REAL(ibv_create_srq), pd, attr);
  WEFT_MAY_FAIL(ibv_create_srq, fail_null);
  if (attr == nullptr) return fail_null(EINVAL);
  return create(pd, attr->srq_context, attr->attr);
}

int ibv_modify_srq(ibv_srq* handle, ibv_srq_attr* attr, int mask) {
  const auto srq = registry::find<Srq>(handle);
  if (!srq) return forward_int(WEFT_REAL(ibv_modify_srq), handle, attr, mask);
  WEFT_MAY_FAIL(ibv_modify_srq, fail_number);
  if (attr == nullptr || (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0)
    return fail_number(EINVAL);
  const bool resizes = (mask & IBV_SRQ_MAX_WR) != 0;
  int error = resizes ? refused(weft::like::Act::kSrqResize) : 0;
  if (resizes && error == 0)
    error = refused(weft::like::Act::kSrqWrBeyond, weft::like::Number::kMaxSrqWr, attr->max_wr);
  if (error == 0 && (mask & IBV_SRQ_LIMIT) != 0) error = refused(weft::like::Act::kSrqLimit);
  if (error != 0) return fail_number(error);
  const std::uint32_t max_wr = resizes ? attr->max_wr : srq->engine->max_wr();
  if ((mask & IBV_SRQ_LIMIT) != 0 && attr->srq_limit > max_wr) return fail_number(EINVAL);
  if (resizes) {
    if (const weft::Status done = srq->engine->resize(max_wr); !done)
      return fail_number(errno_of(done));
  }
  if ((mask & IBV_SRQ_LIMIT) != 0)
    return fail_number(errno_of(srq->engine->set_limit(attr->srq_limit)));
  return 0;
}

int ibv_query_srq(ibv_srq* handle, ibv_srq_attr* attr) {
  const auto srq = registry::find<Srq>(handle);
  if (!srq) return forward_int(WEFT_REAL(ibv_query_srq), handle, attr);
  WEFT_MAY_FAIL(ibv_query_srq, fail_number);
  if (attr == nullptr) return fail_number(EINVAL);
  attr->max_wr = srq->engine->max_wr();
  attr->max_sge = srq->engine->max_sge();
  attr->srq_limit = srq->engine->limit();
  return 0;
}

int ibv_destroy_srq(ibv_srq* handle) {
  const auto srq = registry::find<Srq>(handle);
  if (!srq) return forward_int(WEFT_REAL(ibv_destroy_srq), handle);
  if (const int error = close_users(*srq); error != 0) return fail_number(error);
  settle_async(*srq->context, srq->async, handle);
  if (!registry::quarantine(handle, srq)) return fail_number(EINVAL);
  srq->engine.reset();
  srq->takes_from.reset();
  srq->pd.reset();
  return 0;
}

}  // extern "C"
