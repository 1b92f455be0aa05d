// Memory windows: operations that contexts reach through their table.
#pragma once

#include <infiniband/verbs.h>
#include <weft/memory.h>
#include <weft/types.h>

#include <memory>

namespace weft::ibverbs {

ibv_mw* alloc_mw(ibv_pd* handle, ibv_mw_type type);
int dealloc_mw(ibv_mw* handle);
// Type 1: posts the bind on `qp`; the window has its new rkey when this returns.
int bind_mw(ibv_qp* qp, ibv_mw* handle, ibv_mw_bind* bind);

// The parts of a bind, kept until it is posted.
struct BindParts {
  const ibv_mw* handle = nullptr;
  const ProtectionDomain* domain = nullptr;  // of the window; to compare
  std::shared_ptr<MemoryWindow> window;
  std::shared_ptr<MemoryRegion> region;
};

// Writes the bind of `window` into `out`, which is good as long as `parts`. 0 or an errno; both are
// half filled after a failure.
int fill_bind(SendWr& out, BindParts& parts, ibv_mw* window, std::uint32_t rkey,
              const ibv_mw_bind_info& info);

}  // namespace weft::ibverbs
