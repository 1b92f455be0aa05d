// ibv_get_device_list and what else concerns a device before it is opened.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "ibverbs/async.h"
#include "ibverbs/context.h"
#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/observed.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "os/cancel.h"
#include "os/guarded.h"
#include "os/lock.h"

using namespace weft::ibverbs;

namespace {

// The list that programs get is ours; the real library's own list is kept beside it, because
// freeing that one frees its devices.
struct DeviceList {
  ibv_device** real = nullptr;
  ibv_device* entries[1];  // as many as there are, then null
};

ibv_device** real_devices(int* count) {
  *count = 0;
  if (!machine_has_rdma() || !real_ibverbs().load()) return nullptr;
  auto* get = WEFT_REAL(ibv_get_device_list);
  const HideWeftDevices hide;
  // Null with ENOSYS where the kernel has no RDMA: no devices, not a failure.
  ibv_device** list = get != nullptr ? get(count) : nullptr;
  if (list == nullptr) *count = 0;
  return list;
}

DeviceList* list_of(ibv_device** entries) {
  return reinterpret_cast<DeviceList*>(reinterpret_cast<char*>(entries) -
                                       offsetof(DeviceList, entries));
}

void observe_closing(Context& context) {
  static_cast<void>(weft::os::guarded([&]() -> weft::Status {
    observer->closing(context.handle(), {0, false, unread_async(context)});
    return {};
  }));
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* num_devices) {
  WEFT_MAY_FAIL(ibv_get_device_list, fail_null);
  const weft::os::NoCancel guard;
  if (const auto known = refresh_devices(); !known) return fail_null(errno_of(known.error()));
  int real_count = 0;
  ibv_device** real = real_devices(&real_count);
  const bool hidden = HideWeftDevices::active();
  const DeviceTable& ours = device_table();
  const auto shown = [hidden](const DeviceInfo& one) { return one.is_there && !hidden; };
  const std::size_t count = static_cast<std::size_t>(real_count) +
                            static_cast<std::size_t>(std::ranges::count_if(ours.devices, shown));
  auto* list =
      static_cast<DeviceList*>(std::calloc(1, sizeof(DeviceList) + count * sizeof(ibv_device*)));
  if (list == nullptr) {
    if (auto* free_list = WEFT_REAL(ibv_free_device_list);
        free_list != nullptr && real != nullptr) {
      free_list(real);
    }
    return fail_null(ENOMEM);
  }
  list->real = real;
  std::size_t at = 0;
  for (int i = 0; i < real_count; ++i) list->entries[at++] = real[i];
  for (const DeviceInfo& one : ours.devices) {
    if (shown(one)) list->entries[at++] = one.device;
  }
  if (num_devices != nullptr) *num_devices = static_cast<int>(count);
  return list->entries;
}

void ibv_free_device_list(ibv_device** entries) {
  if (entries == nullptr) return;
  DeviceList* list = list_of(entries);
  if (list->real != nullptr) WEFT_REAL(ibv_free_device_list)(list->real);
  std::free(list);
}

const char* ibv_get_device_name(ibv_device* device) {
  // Real and Weft devices alike keep it there.
  return device != nullptr ? device->name : nullptr;
}

__be64 ibv_get_device_guid(ibv_device* device) {
  if (const DeviceInfo* ours = info_of(device)) return node_guid(*ours);
  auto* real = WEFT_REAL(ibv_get_device_guid);
  return real != nullptr ? real(device) : 0;
}

int ibv_get_device_index(ibv_device* device) {
  if (info_of(device) != nullptr) return -1;  // the kernel does not know it
  auto* real = WEFT_REAL(ibv_get_device_index);
  return real != nullptr ? real(device) : -1;
}

ibv_context* ibv_open_device(ibv_device* device) {
  if (info_of(device) == nullptr) {
    const HideWeftDevices hide;
    return forward_null(WEFT_REAL(ibv_open_device), device);
  }
  WEFT_MAY_FAIL(ibv_open_device, fail_null);
  if (const auto known = refresh_devices(); !known) return fail_null(errno_of(known.error()));
  if (!info_of(device)->is_there) return fail_null(ENODEV);
  const auto context = open_context(device);
  if (!context) return fail_null(errno_of(context.error()));
  return (*context)->handle();
}

int ibv_close_device(ibv_context* handle) {
  const auto context = registry::find<Context>(handle);
  if (!context) return forward_minus(WEFT_REAL(ibv_close_device), handle);
  if (observer != nullptr) observe_closing(*context);
  if (!registry::quarantine(handle, context)) return fail_minus(EINVAL);
  {
    const weft::os::MutexLock lock(context->async_mutex);
    context->async_queue.reset();
  }
  {
    // The context's device memory is free for others at once.
    const weft::os::MutexLock lock(context->memory_mutex);
    context->memory.reset();
  }
  context->command.reset();
  return 0;
}

}  // extern "C"
