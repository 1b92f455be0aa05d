// Memory regions.

#include <atomic>
#include <cerrno>

#include "ibverbs/access.h"
#include "ibverbs/errors.h"
#include "ibverbs/likeness.h"
#include "ibverbs/local_keys.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"
#include "os/lock.h"

namespace weft::ibverbs {
namespace {

std::atomic<std::uint32_t> next_mr_handle{1};

void refresh(Mr& mr) {
  mr.pub.addr = mr.engine->addr();
  mr.pub.length = mr.engine->length();
  mr.pub.lkey = give_lkey(*mr.engine);
  mr.pub.rkey = mr.engine->rkey();
}

ibv_mr* register_memory(const Pin<Pd>& pd, void* addr, std::size_t length, std::uint64_t iova,
                        unsigned flags) {
  return or_null([&]() -> ibv_mr* {
    int error = refused_access(flags);
    if (error == 0) error = refused_one_more(like::Number::kMaxMr, registry::count(Kind::kMr));
    if (error != 0) return fail_null(error);
    const std::optional<Access> access = region_access(flags);
    if (!access) return fail_null((flags & IBV_ACCESS_ON_DEMAND) != 0 ? EOPNOTSUPP : EINVAL);
    if (length == 0) return fail_null(EINVAL);  // as siw; the engine would take it
    if ((flags & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
    const bool shifted = iova != reinterpret_cast<std::uintptr_t>(addr);
    auto engine = shifted ? pd->engine->register_memory_iova(addr, length, iova, *access)
                          : pd->engine->register_memory(addr, length, *access);
    if (!engine) return fail_null(errno_of(engine.error()));
    auto mr = std::make_unique<Mr>();
    mr->engine = std::move(*engine);
    if (!mr->pd.take(pd.object())) return fail_null(EINVAL);
    mr->pub.context = pd->pub.context;
    mr->pub.pd = &pd->pub;
    mr->pub.handle = next_mr_handle.fetch_add(1);
    refresh(*mr);
    if (shaking != nullptr) shake_key(*mr);
    return registry::adopt(std::move(mr));
  });
}

// The old region is valid. errno says why, since what the call returns does not.
int fail_rereg(int error) {
  static_cast<void>(fail_number(error));
  errno = error;
  return IBV_REREG_MR_ERR_INPUT;
}

int reregister(Mr& mr, int flags, ibv_pd* new_pd, void* addr, std::size_t length, int access) {
  constexpr int kKnown = IBV_REREG_MR_FLAGS_SUPPORTED;
  if ((flags & ~kKnown) != 0 || flags == 0) return EINVAL;
  if (mr.of_device_memory) return EOPNOTSUPP;
  if (const int error = refused(like::Act::kMrRereg); error != 0) return error;
  Pin<Pd> pd;
  Using<Pd> joins;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    pd = registry::find<Pd>(new_pd);
    if (!pd || !joins.take(pd.object())) return EINVAL;
  }
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  if (moves && (addr == nullptr || length == 0)) return EINVAL;
  std::optional<Access> rights;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
    rights = region_access(static_cast<unsigned>(access));
    if (!rights) return EINVAL;
  }
  const os::MutexLock lock(mr.changing);
  const Status done = mr.engine->reregister(pd ? pd->engine.get() : nullptr, moves ? addr : nullptr,
                                            moves ? length : 0, rights ? &*rights : nullptr);
  if (!done) return errno_of(done);
  if (pd) {
    mr.pd = std::move(joins);
    mr.pub.pd = &pd->pub;
    mr.pub.context = pd->pub.context;
  }
  const std::uint32_t before = engine_key(mr.pub.lkey);
  refresh(mr);
  observe_key(mr);
  if (shaking != nullptr) {
    shake_dead_key(before);
    shake_key(mr);
  }
  return 0;
}

}  // namespace
}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

ibv_mr* ibv_reg_mr_iova2(ibv_pd* handle, void* addr, std::size_t length, std::uint64_t iova,
                         unsigned access) {
  const auto pd = registry::find<Pd>(handle);
  if (!pd) {
    return forward_null(WEFT_REAL(ibv_reg_mr_iova2), handle, addr, length, iova, access);
  }
  WEFT_MAY_FAIL(ibv_reg_mr_iova2, fail_null);
  return register_memory(pd, addr, length, iova, access);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* handle, void* addr, std::size_t length, std::uint64_t iova,
                        int access) {
  const auto pd = registry::find<Pd>(handle);
  if (!pd) {
    return forward_null(WEFT_REAL(ibv_reg_mr_iova), handle, addr, length, iova, access);
  }
  WEFT_MAY_FAIL(ibv_reg_mr_iova, fail_null);
  return register_memory(pd, addr, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr(ibv_pd* handle, void* addr, std::size_t length, int access) {
  const auto pd = registry::find<Pd>(handle);
  if (!pd) return forward_null(WEFT_REAL(ibv_reg_mr), handle, addr, length, access);
  WEFT_MAY_FAIL(ibv_reg_mr, fail_null);
  return register_memory(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr),
                         static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* handle, std::uint64_t offset, std::size_t length,
                          std::uint64_t iova, int fd, int access) {
  if (!registry::find<Pd>(handle)) {
    return forward_null(WEFT_REAL(ibv_reg_dmabuf_mr), handle, offset, length, iova, fd, access);
  }
  return fail_null(EOPNOTSUPP);
}

int ibv_rereg_mr(ibv_mr* handle, int flags, ibv_pd* pd, void* addr, std::size_t length,
                 int access) {
  const auto mr = registry::find<Mr>(handle);
  if (!mr) {
    auto* real = unless_quarantined(handle, WEFT_REAL(ibv_rereg_mr));
    if (real != nullptr) return real(handle, flags, pd, addr, length, access);
    return fail_rereg(EINVAL);
  }
  WEFT_MAY_FAIL(ibv_rereg_mr, fail_rereg);
  const int error = reregister(*mr, flags, pd, addr, length, access);
  return error == 0 ? 0 : fail_rereg(error);
}

int ibv_dereg_mr(ibv_mr* handle) {
  const auto mr = registry::find<Mr>(handle);
  if (!mr) return forward_int(WEFT_REAL(ibv_dereg_mr), handle);
  {
    const weft::os::MutexLock lock(mr->changing);
    if (shaking != nullptr) shake_dead_key(mr->engine->lkey());
    if (const weft::Status done = mr->engine->deregister(); !done)
      return fail_number(errno_of(done));
  }
  if (!registry::quarantine(handle, mr)) return fail_number(EINVAL);
  mr->engine.reset();
  mr->pd.reset();
  return 0;
}

}  // extern "C"
