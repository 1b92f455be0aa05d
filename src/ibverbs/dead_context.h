// How destroyed objects refuse what a program still does with them.
#pragma once

#include <infiniband/verbs.h>

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// A context whose operations all fail with EINVAL and change nothing. Lives forever.
[[nodiscard]] ibv_context* dead_context();

// From now on whatever a program does with the object by inline functions of <infiniband/verbs.h>
// fails with EINVAL. REQUIRES: no call is in the object, and dead_context() was called before:
// then this needs no memory.
void disable(Context& context);
void disable(Pd& pd);
void disable(ThreadDomain& domain);
void disable(Mr& mr);
void disable(Mw& mw);
void disable(Channel& channel);
void disable(Cq& cq);
void disable(Qp& qp);
void disable(Ah& ah);
void disable(Dm& dm);
void disable(Srq& srq);

}  // namespace weft::ibverbs
