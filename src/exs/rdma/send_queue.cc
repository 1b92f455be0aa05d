#include "exs/rdma/send_queue.h"

#include <algorithm>
#include <cassert>

namespace weft::exs {

void SendQueue::report_every(unsigned requests) {
  assert(requests != 0 && posted_.empty());
  report_every_ = std::min(report_every_, requests);
}

bool SendQueue::post(std::size_t requests, int slot, bool wanted) {
  assert(requests != 0 && has_room(requests));
  ++serial_;
  silent_ += static_cast<unsigned>(requests);
  const bool report = wanted || silent_ >= report_every_;
  if (report) silent_ = 0;
  posted_.push_back({serial_, requests, slot});
  used_ += requests;
  return report;
}

SendQueue::Posted SendQueue::take_first() {
  assert(!posted_.empty());
  const Posted first = posted_.front();
  assert(first.serial > retired_ && first.requests <= used_);
  retired_ = first.serial;
  used_ -= first.requests;
  posted_.pop_front();
  return first;
}

}  // namespace weft::exs
