// Protection domains, parent domains and thread domains.

#include <cerrno>

#include "ibverbs/domains.h"
#include "ibverbs/errors.h"
#include "ibverbs/likeness.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

namespace weft::ibverbs {

ibv_td* alloc_td(ibv_context* handle, ibv_td_init_attr* attr) {
  WEFT_MAY_FAIL(ibv_alloc_td, fail_null);
  return or_null([&]() -> ibv_td* {
    const auto context = registry::find<Context>(handle);
    if (!context || attr == nullptr) return fail_null(EINVAL);
    if (attr->comp_mask != 0) return fail_null(EINVAL);
    auto domain = std::make_unique<ThreadDomain>();
    domain->pub.context = handle;
    domain->context = context.object();
    return registry::adopt(std::move(domain));
  });
}

int dealloc_td(ibv_td* handle) {
  const auto domain = registry::find<ThreadDomain>(handle);
  if (!domain) return fail_number(EINVAL);
  if (const int error = close_users(*domain); error != 0) return fail_number(error);
  return fail_number(registry::quarantine(handle, domain) ? 0 : EINVAL);
}

ibv_pd* alloc_parent_domain(ibv_context* handle, ibv_parent_domain_init_attr* attr) {
  WEFT_MAY_FAIL(ibv_alloc_parent_domain, fail_null);
  return or_null([&]() -> ibv_pd* {
    constexpr std::uint32_t kKnown =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (attr == nullptr || (attr->comp_mask & ~kKnown) != 0) return fail_null(EINVAL);
    const auto parent = registry::find<Pd>(attr->pd);
    if (!parent || parent->parent) return fail_null(EINVAL);
    const auto thread = registry::find<ThreadDomain>(attr->td);
    if (attr->td != nullptr && !thread) return fail_null(EINVAL);
    auto pd = std::make_unique<Pd>();
    pd->pub.context = handle;
    pd->context = parent->context;
    pd->engine = parent->engine;
    if (!pd->parent.take(parent.object())) return fail_null(EINVAL);
    if (thread && !pd->thread.take(thread.object())) return fail_null(EINVAL);
    return registry::adopt(std::move(pd));
  });
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* handle) {
  return or_null([&]() -> ibv_pd* {
    const auto context = registry::find<Context>(handle);
    if (!context) return forward_null(WEFT_REAL(ibv_alloc_pd), handle);
    WEFT_MAY_FAIL(ibv_alloc_pd, fail_null);
    const int error = refused_one_more(weft::like::Number::kMaxPd, registry::count(Kind::kPd));
    if (error != 0) return fail_null(error);
    auto engine = context->engine->create_pd();
    if (!engine) return fail_null(errno_of(engine.error()));
    auto pd = std::make_unique<Pd>();
    pd->pub.context = handle;
    pd->context = context.object();
    pd->engine = std::move(*engine);
    return registry::adopt(std::move(pd));
  });
}

int ibv_dealloc_pd(ibv_pd* handle) {
  const auto pd = registry::find<Pd>(handle);
  if (!pd) return forward_int(WEFT_REAL(ibv_dealloc_pd), handle);
  if (const int error = close_users(*pd); error != 0) return fail_number(error);
  if (!registry::quarantine(handle, pd)) return fail_number(EINVAL);
  pd->parent.reset();
  pd->thread.reset();
  pd->engine.reset();
  return 0;
}

}  // extern "C"
