// Opening Weft's devices: the engine, one per process, and a context per open.
#pragma once

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// The process's engine, opened on first use with the configuration of the environment. A bad
// configuration is reported on stderr in full. After fork the child gets one of its own.
//
// kInvalidArgument (configuration), kSystem
[[nodiscard]] Result<std::shared_ptr<Device>> engine();

// A new context of one of Weft's devices, already registered.   As engine().
[[nodiscard]] Result<Context*> open_context(ibv_device* device);

// Fills in the operations that the inline functions of the header call.
void set_operations(verbs_context& verbs);

}  // namespace weft::ibverbs
