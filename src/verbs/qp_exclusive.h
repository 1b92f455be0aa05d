// How a thread gets a queue pair to itself. Included by the qp_*.cc files only.
#pragma once

#include "verbs/qp.h"

namespace weft::verbs {

// Waits for whoever makes progress now; what is done here is as if it were progress.
template <class Work>
void QueuePairImpl::exclusively(Work&& work) {
  progress_lock_.lock();
  work();
  epilogue();
  settle();
}

}  // namespace weft::verbs
