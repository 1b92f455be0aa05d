// Opening Weft's device: the engine, one per process, and a context per open.
#pragma once

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// The process's engine, opened on first use with the configuration of the environment. A bad
// configuration is reported on stderr in full. After fork the child gets one of its own.
//
// kInvalidArgument (configuration), kSystem
[[nodiscard]] Result<std::shared_ptr<Device>> engine();

// A new context of Weft's device, already registered.   As engine().
[[nodiscard]] Result<Context*> open_context();

// Fills in the operations that the inline functions of the header call.
void set_operations(verbs_context& verbs);

// Runs `forget` in a child after fork, before fork() returns there. For process-wide state that
// holds objects of the parent.
void on_fork_child(void (*forget)());

}  // namespace weft::ibverbs
