// The channel on which rdma_cm reports to this process.
//
// Any thread.
#pragma once

#include <rdma/rdma_cma.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <vector>

#include "os/lock.h"

namespace weft::exs {

// An event of rdma_cm, copied, so that it can be acknowledged before it is dealt with.
struct CmEvent {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  std::vector<std::uint8_t> private_data;
  int responder_resources = 0;
  int initiator_depth = 0;
};

class CmChannel {
 public:
  // Once. Without any RDMA device, in the kernel or besides it, there is no channel afterwards.
  void open();
  // Null: there is none.
  [[nodiscard]] rdma_event_channel* get() const { return channel_.load(); }
  // There is no device for it. It is leaked: a thread may be looking at it.
  void forget() { channel_ = nullptr; }
  // False: no event has come.
  [[nodiscard]] bool next(CmEvent& out);
  // Destroys the QP of an id: not while rdma_get_cm_event looks at it.
  void destroy_qp(rdma_cm_id* id);

 private:
  std::atomic<rdma_event_channel*> channel_{nullptr};
  os::Mutex mutex_;  // innermost: an id's QP is there as long as an event is being taken
};

}  // namespace weft::exs
