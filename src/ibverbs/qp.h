// Queue pairs: what is shared between their files and with librdmacm.
#pragma once

#include <infiniband/verbs.h>
#include <weft/types.h>

#include "ibverbs/objects.h"

namespace weft::ibverbs {

ibv_qp* create_qp_ex(ibv_context* handle, ibv_qp_init_attr_ex* attr);

[[nodiscard]] ibv_qp_state qp_state(QpState state);
[[nodiscard]] ibv_qp_cap qp_caps(const QpCaps& caps);

// Sets the builder's operations. REQUIRES: qp.send_ops != 0.
void set_builder_operations(Qp& qp);

}  // namespace weft::ibverbs
