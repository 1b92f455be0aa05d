// ibv_alloc_dm and its family: the context's operations, see ibv_operations.cc.
#pragma once

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// The size of the heap: WEFT_DEVICE_MEMORY, in bytes, or 64 MiB. 0: there is none.
std::uint64_t device_memory_bytes();

// EINVAL (null, unknown fields, length 0), ENOMEM, EOPNOTSUPP (the size is 0)
ibv_dm* alloc_dm(ibv_context* handle, ibv_alloc_dm_attr* attr);
// EINVAL, EBUSY (a region is registered on it)
int free_dm(ibv_dm* handle);
// EINVAL (also when IBV_ACCESS_ZERO_BASED is missing, as Linux has it)
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                  unsigned access);

}  // namespace weft::ibverbs
