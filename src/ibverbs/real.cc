#include "ibverbs/real.h"

#include "ibverbs/drivers.h"

namespace weft::ibverbs {

int& HideWeftDevices::depth() {
  static thread_local int depth = 0;
  return depth;
}

RealLibrary& real_ibverbs() {
  static constinit RealLibrary library("libibverbs.so.1", WEFT_SYSTEM_IBVERBS,
                                       replay_driver_registrations);
  return library;
}

}  // namespace weft::ibverbs
