#include "ibverbs/bridge.h"

#include "ibverbs/errors.h"
#include "ibverbs/identity.h"
#include "ibverbs/qp.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

using namespace weft::ibverbs;

namespace {

struct CmState {
  std::mutex mutex;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
};
CmState* cm = new CmState;

void forget_cm() { cm = new CmState; }

}  // namespace

extern "C" {

ibv_context* weft_ibv_cm_context() {
  on_fork_child(forget_cm);
  const std::lock_guard lock(cm->mutex);
  // Programs do close it, and free its domain below: they see both in their ids.
  if (registry::find<Context>(cm->context) == nullptr) {
    cm->context = ibv_open_device(weft_device());
  }
  return cm->context;
}

ibv_pd* weft_ibv_cm_pd() {
  ibv_context* context = weft_ibv_cm_context();
  if (context == nullptr) return nullptr;
  const std::lock_guard lock(cm->mutex);
  const Pd* pd = registry::find<Pd>(cm->pd);
  if (pd == nullptr || pd->pub.context != context) cm->pd = ibv_alloc_pd(context);
  return cm->pd;
}

Context* weft_ibv_context(ibv_context* handle) { return registry::find<Context>(handle); }
Pd* weft_ibv_pd(ibv_pd* handle) { return registry::find<Pd>(handle); }
Qp* weft_ibv_qp(ibv_qp* handle) { return registry::find<Qp>(handle); }
Qp* weft_ibv_qp_by_number(std::uint32_t number) { return registry::qp_by_number(number); }

void weft_ibv_hide_devices(bool hide) { HideWeftDevices::set(hide); }

void weft_ibv_on_fork_child(void (*forget)()) { on_fork_child(forget); }

}  // extern "C"
