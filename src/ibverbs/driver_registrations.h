// Drivers of rdma-core that are linked into a program, and register before anybody knows whether
// the machine's own libibverbs will be needed. Any thread.
#pragma once

#include "ibverbs/real_library.h"

namespace weft::ibverbs {

// verbs_register_driver() of whatever release: keeps the driver for the real library, or hands it
// over.
void register_driver(const void* driver_ops);

// Hands the drivers that registered so far to the real library, which was just loaded.
void replay_driver_registrations(const RealLibrary& library);

}  // namespace weft::ibverbs
