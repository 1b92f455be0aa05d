#include "ibverbs/driver_registrations.h"

#include <vector>

#include "os/lock.h"

namespace weft::ibverbs {

namespace {

// Drivers that are linked into a program (perftest links two) register from constructors, long
// before anybody knows whether the real library will be needed. They are kept and handed over when
// it is.
using Register = void (*)(const void* driver_ops);

struct Registrations {
  os::Mutex mutex;
  std::vector<const void*> waiting WEFT_GUARDED_BY(mutex);
  Register real WEFT_GUARDED_BY(mutex) = nullptr;
};

Registrations& registrations() {
  static auto* all = new Registrations;
  return *all;
}

}  // namespace

void register_driver(const void* driver_ops) {
  Registrations& all = registrations();
  Register real = nullptr;
  {
    const os::MutexLock lock(all.mutex);
    real = all.real;
    if (real == nullptr) all.waiting.push_back(driver_ops);
  }
  if (real != nullptr) real(driver_ops);
}

void replay_driver_registrations(const RealLibrary& library) {
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
      real = reinterpret_cast<Register>(library.symbol(name));
      if (real != nullptr) break;
    }
    if (real == nullptr) return;
    all.real = real;
    drivers.swap(all.waiting);
  }
  for (const void* driver : drivers) real(driver);
}

}  // namespace weft::ibverbs
