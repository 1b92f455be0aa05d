#include "ibverbs/bridge.h"

#include "ibverbs/errors.h"
#include "ibverbs/ibv_qp.h"
#include "ibverbs/identity.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "os/lock.h"

using namespace weft::ibverbs;

namespace {

struct CmState {
  weft::os::Mutex mutex;
  ibv_context* context WEFT_GUARDED_BY(mutex) = nullptr;
  ibv_pd* pd WEFT_GUARDED_BY(mutex) = nullptr;
};
CmState* cm = new CmState;

void forget_cm() { cm = new CmState; }

}  // namespace

extern "C" {

ibv_context* weft_ibv_cm_context() {
  on_fork_child(forget_cm);
  const weft::os::MutexLock lock(cm->mutex);
  // Programs see the context and its domain in their ids, and some of them close both.
  if (!registry::find<Context>(cm->context)) {
    cm->context = ibv_open_device(weft_device());
  }
  return cm->context;
}

ibv_pd* weft_ibv_cm_pd() {
  ibv_context* context = weft_ibv_cm_context();
  if (context == nullptr) return nullptr;
  const weft::os::MutexLock lock(cm->mutex);
  const auto pd = registry::find<Pd>(cm->pd);
  if (!pd || pd->pub.context != context) cm->pd = ibv_alloc_pd(context);
  return cm->pd;
}

void weft_ibv_engine(ibv_context* handle, std::shared_ptr<weft::Device>& out) {
  const auto context = registry::find<Context>(handle);
  out = context ? context->engine : nullptr;
}

bool weft_ibv_is_pd(ibv_pd* handle) { return static_cast<bool>(registry::find<Pd>(handle)); }

void weft_ibv_qp(ibv_qp* handle, std::uint32_t number, Pin<Qp>& out) {
  auto object =
      handle != nullptr ? registry::pin(handle, Kind::kQp) : registry::pin_qp_by_number(number);
  out = Pin<Qp>(std::static_pointer_cast<Qp>(std::move(object)));
}

void weft_ibv_hide_devices(bool hide) { HideWeftDevices::set(hide); }

void weft_ibv_on_fork_child(void (*forget)()) { on_fork_child(forget); }

}  // extern "C"
