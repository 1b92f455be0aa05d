// Shared receive queues: operations that contexts reach through their table.
#pragma once

#include <infiniband/verbs.h>

namespace weft::ibverbs {

ibv_srq* create_srq_ex(ibv_context* handle, ibv_srq_init_attr_ex* attr);

}  // namespace weft::ibverbs
