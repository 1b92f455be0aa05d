// Memory windows: operations that contexts reach through their table.
#pragma once

#include <infiniband/verbs.h>
#include <weft/types.h>

namespace weft::ibverbs {

ibv_mw* alloc_mw(ibv_pd* handle, ibv_mw_type type);
int dealloc_mw(ibv_mw* handle);
// Type 1: posts the bind on `qp`; the window has its new rkey when this returns.
int bind_mw(ibv_qp* qp, ibv_mw* handle, ibv_mw_bind* bind);

// Writes the bind of `window` into `out`. 0 or an errno; `out` is half filled after a failure.
int fill_bind(SendWr& out, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info& info);

}  // namespace weft::ibverbs
