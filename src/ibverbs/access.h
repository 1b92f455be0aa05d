// Access flags of verbs and of the engine.
#pragma once

#include <infiniband/verbs.h>
#include <weft/types.h>

#include <optional>

namespace weft::ibverbs {

// Rights of a region. Optional flags (relaxed ordering) are dropped, as are hints about huge pages.
// Returns nothing for a flag that Weft does not know or support (on-demand paging).
[[nodiscard]] std::optional<Access> region_access(unsigned flags);

// Rights of a window. Returns nothing for flags that no window can have.
[[nodiscard]] std::optional<Access> window_access(unsigned flags);

// No bits but access flags, of whatever use.
[[nodiscard]] bool is_access(unsigned flags);

// IBV_ACCESS_REMOTE_* of a QP. Other flags have no meaning there.
[[nodiscard]] Access qp_access(unsigned flags);

}  // namespace weft::ibverbs
