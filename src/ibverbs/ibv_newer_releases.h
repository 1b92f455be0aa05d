// Types and values of releases of rdma-core after 44, whose headers this tree is not built with.
// Laid out as in <infiniband/verbs.h> of release 65; programs hand them over by pointer.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace weft::ibverbs {

// ibv_mr_init_attr: what ibv_reg_mr_ex registers. `comp_mask` says which fields are valid.
struct MrInitAttr {
  std::size_t length;
  int access;
  std::uint64_t comp_mask;
  std::uint64_t iova;
  void* addr;
  int fd;
  std::uint64_t fd_offset;
  void* dmah;
};

enum MrInitMask : std::uint64_t {
  kMrIova = 1U << 0U,
  kMrAddr = 1U << 1U,
  kMrFd = 1U << 2U,
  kMrFdOffset = 1U << 3U,
  kMrDmah = 1U << 4U,
};

}  // namespace weft::ibverbs
