#include "ibverbs/drivers.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "ibverbs/identity.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "os/lock.h"

using namespace weft::ibverbs;

namespace {

// Drivers that are linked into a program (perftest links two) register from constructors, long
// before anybody knows whether the real library will be needed. They are kept and handed over when
// it is.
using Register = void (*)(const void* driver_ops);

struct Registrations {
  weft::os::Mutex mutex;
  std::vector<const void*> waiting WEFT_GUARDED_BY(mutex);
  Register real WEFT_GUARDED_BY(mutex) = nullptr;
};

Registrations& registrations() {
  static auto* all = new Registrations;
  return *all;
}

void register_driver(const void* driver_ops) {
  Registrations& all = registrations();
  Register real = nullptr;
  {
    const weft::os::MutexLock lock(all.mutex);
    real = all.real;
    if (real == nullptr) all.waiting.push_back(driver_ops);
  }
  if (real != nullptr) real(driver_ops);
}

// enum ibv_gid_type_sysfs of rdma-core: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
int query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  if (registry::find<Context>(context)) {
    if (port != kPort || !is_gid_index(index)) return fail_minus(EINVAL);
    *type = is_roce() ? 1 : 0;
    return 0;
  }
  auto* real =
      reinterpret_cast<decltype(&query_gid_type)>(real_ibverbs().symbol("ibv_query_gid_type"));
  return real != nullptr ? real(context, port, index, type) : fail_minus(EINVAL);
}

}  // namespace

namespace weft::ibverbs {

void* private_function(std::string_view name) {
  if (name == "ibv_query_gid_type") return reinterpret_cast<void*>(&query_gid_type);
  if (name.starts_with("verbs_register_driver_")) return reinterpret_cast<void*>(&register_driver);
  return nullptr;
}

void replay_driver_registrations() {
  // Tied to the release of the real library; a driver of another release would not have loaded.
  static constexpr const char* kNames[] = {"verbs_register_driver_34", "verbs_register_driver_33",
                                           "verbs_register_driver_57", "verbs_register_driver_59",
                                           "verbs_register_driver_64", "verbs_register_driver_65"};
  Registrations& all = registrations();
  std::vector<const void*> drivers;
  Register real = nullptr;
  {
    const os::MutexLock lock(all.mutex);
    for (const char* name : kNames) {
      real = reinterpret_cast<Register>(real_ibverbs().symbol(name));
      if (real != nullptr) break;
    }
    if (real == nullptr) return;
    all.real = real;
    drivers.swap(all.waiting);
  }
  for (const void* driver : drivers) real(driver);
}

}  // namespace weft::ibverbs

extern "C" {

// rdma-core had this function before 2017. Some programs look for it to see whether verbs are
// usable.
void ibv_register_driver(const char* name, void* init);
void ibv_register_driver(const char* /*name*/, void* /*init*/) {}

}  // extern "C"
