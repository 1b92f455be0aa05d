// The ibv_wr_ builder: wr_start, one or more requests, wr_complete.
//
// Requests are collected and posted by wr_complete, all or none: every mistake is found before the
// first of them reaches the engine.
#pragma once

#include "ibverbs/objects.h"

namespace weft::ibverbs {

// Sets the builder's operations. REQUIRES: qp.send_ops != 0.
void set_builder_operations(Qp& qp);
// A batch is given up when it is complete: the queue pair is gone.
void refuse_batches(Qp& qp);

}  // namespace weft::ibverbs
