// Protection domains, parent domains and thread domains.

#include <cerrno>

#include "ibverbs/domains.h"
#include "ibverbs/errors.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

namespace weft::ibverbs {

ibv_td* alloc_td(ibv_context* handle, ibv_td_init_attr* attr) {
  auto context = std::static_pointer_cast<Context>(registry::find(handle, Kind::kContext));
  if (context == nullptr || attr == nullptr) return fail_null(EINVAL);
  if (attr->comp_mask != 0) return fail_null(EINVAL);
  auto domain = std::make_unique<ThreadDomain>();
  domain->pub.context = handle;
  domain->context = std::move(context);
  return registry::adopt(std::move(domain));
}

int dealloc_td(ibv_td* handle) {
  const auto* domain = registry::find<ThreadDomain>(handle);
  if (domain == nullptr) return EINVAL;
  if (domain->users.load() != 0) return EBUSY;
  return registry::bury(handle) ? 0 : EINVAL;
}

ibv_pd* alloc_parent_domain(ibv_context* handle, ibv_parent_domain_init_attr* attr) {
  constexpr std::uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (attr == nullptr || (attr->comp_mask & ~kKnown) != 0) return fail_null(EINVAL);
  auto* parent = registry::find<Pd>(attr->pd);
  if (parent == nullptr || parent->parent != nullptr) return fail_null(EINVAL);
  auto* thread = registry::find<ThreadDomain>(attr->td);
  if (attr->td != nullptr && thread == nullptr) return fail_null(EINVAL);
  auto pd = std::make_unique<Pd>();
  pd->pub.context = handle;
  pd->context = parent->context;
  pd->engine = parent->engine;
  pd->parent = parent;
  parent->users.fetch_add(1);
  pd->thread = thread;
  if (thread != nullptr) thread->users.fetch_add(1);
  return registry::adopt(std::move(pd));
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* handle) {
  auto context = std::static_pointer_cast<Context>(registry::find(handle, Kind::kContext));
  if (context == nullptr) return forward_null(WEFT_REAL(ibv_alloc_pd), handle);
  auto engine = context->engine->create_pd();
  if (!engine) return fail_null(errno_of(engine.error()));
  auto pd = std::make_unique<Pd>();
  pd->pub.context = handle;
  pd->context = std::move(context);
  pd->engine = std::move(*engine);
  return registry::adopt(std::move(pd));
}

int ibv_dealloc_pd(ibv_pd* handle) {
  auto* pd = registry::find<Pd>(handle);
  if (pd == nullptr) return forward_int(WEFT_REAL(ibv_dealloc_pd), handle);
  if (pd->users.load() != 0) return EBUSY;
  if (!registry::bury(handle)) return EINVAL;
  if (pd->parent != nullptr) pd->parent->users.fetch_sub(1);
  if (pd->thread != nullptr) pd->thread->users.fetch_sub(1);
  pd->engine.reset();
  return 0;
}

}  // extern "C"
