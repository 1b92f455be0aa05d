// Operations on domains that contexts reach through their table.
#pragma once

#include <infiniband/verbs.h>

namespace weft::ibverbs {

ibv_td* alloc_td(ibv_context* handle, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* handle);
// `attr->pd` must be an ordinary domain. Allocators and context are accepted and not used: Weft's
// objects need no memory that a device could see.
ibv_pd* alloc_parent_domain(ibv_context* handle, ibv_parent_domain_init_attr* attr);

}  // namespace weft::ibverbs
