#include "ibverbs/bridge.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/fork_child.h"
#include "ibverbs/ibv_qp.h"
#include "ibverbs/observed.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken.h"
#include "os/lock.h"

using namespace weft::ibverbs;

namespace {

// rdma_cm's own context of one device, and its domain.
struct CmDevice {
  const ibv_device* device = nullptr;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
};

struct CmState {
  weft::os::Mutex mutex;
  std::vector<CmDevice> devices WEFT_GUARDED_BY(mutex);
};
CmState* cm = new CmState;

void forget_cm() { cm = new CmState; }

// Null with errno.
ibv_context* context_of_device(const DeviceInfo* of) {
  if (of == nullptr) return fail_null(ENODEV);
  on_fork_child(forget_cm);
  const weft::os::MutexLock lock(cm->mutex);
  auto one = std::ranges::find(cm->devices, of->device, &CmDevice::device);
  if (one == cm->devices.end()) one = cm->devices.insert(one, CmDevice{of->device});
  // Programs see the context and its domain in their ids, and some of them close both.
  if (!registry::find<Context>(one->context)) one->context = ibv_open_device(of->device);
  return one->context;
}

}  // namespace

extern "C" {

ibv_context* weft_ibv_cm_context() {
  return or_null([]() -> ibv_context* {
    if (const auto known = load_devices(); !known) return fail_null(errno_of(known.error()));
    return context_of_device(first_device());
  });
}

ibv_context* weft_ibv_cm_context_at(const weft::SocketAddress& own) {
  return or_null([&]() -> ibv_context* {
    if (const auto known = load_devices(); !known) return fail_null(errno_of(known.error()));
    return context_of_device(device_of(own));
  });
}

ibv_context** weft_ibv_cm_contexts(std::size_t* count) {
  return or_null([&]() -> ibv_context** {
    if (const auto known = refresh_devices(); !known) return fail_null(errno_of(known.error()));
    std::vector<ibv_context*> found;
    for (const DeviceInfo& one : device_table().devices) {
      if (!one.is_there) continue;
      found.push_back(context_of_device(&one));
      if (found.back() == nullptr) return nullptr;
    }
    auto** list = static_cast<ibv_context**>(std::calloc(found.size() + 1, sizeof(ibv_context*)));
    if (list == nullptr) return fail_null(ENOMEM);
    std::ranges::copy(found, list);
    *count = found.size();
    return list;
  });
}

ibv_pd* weft_ibv_cm_pd(ibv_context* context) {
  const weft::os::MutexLock lock(cm->mutex);
  const auto one = std::ranges::find(cm->devices, context, &CmDevice::context);
  if (one == cm->devices.end()) return fail_null(EINVAL);
  const auto pd = registry::find<Pd>(one->pd);
  if (!pd || pd->pub.context != context) one->pd = ibv_alloc_pd(context);
  return one->pd;
}

std::uint8_t weft_ibv_gid_index(ibv_context* context, const weft::Gid& gid) {
  return index_of_gid(*context, gid);
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

weft::check::Observer* weft_ibv_observer(void (*raise_cm)(int event)) {
  raise_in_rdma_cm.store(raise_cm);
  return observer;
}

bool weft_ibv_fills_what_ends() { return shakes(weft::shake::Effect::kUndefined); }

}  // extern "C"
