#include "exs/core/exs_cm_channel.h"

#include <fcntl.h>

#include <memory>

namespace weft::exs {
namespace {

CmEvent copy_of(const rdma_cm_event& from) {
  CmEvent out;
  out.type = from.event;
  out.status = from.status;
  out.id = from.id;
  out.responder_resources = from.param.conn.responder_resources;
  out.initiator_depth = from.param.conn.initiator_depth;
  const auto* data = static_cast<const std::uint8_t*>(from.param.conn.private_data);
  if (data != nullptr) out.private_data.assign(data, data + from.param.conn.private_data_len);
  return out;
}

}  // namespace

void CmChannel::open() {
  assert(get() == nullptr);
  rdma_event_channel* made = rdma_create_event_channel();
  if (made != nullptr) ::fcntl(made->fd, F_SETFL, ::fcntl(made->fd, F_GETFL) | O_NONBLOCK);
  channel_ = made;
}

bool CmChannel::next(CmEvent& out) {
  rdma_event_channel* channel = get();
  rdma_cm_event* next = nullptr;
  const os::MutexLock lock(mutex_);
  if (channel == nullptr || rdma_get_cm_event(channel, &next) != 0) return false;
  const std::unique_ptr<rdma_cm_event, int (*)(rdma_cm_event*)> taken(next, rdma_ack_cm_event);
  out = copy_of(*taken);
  return true;
}

void CmChannel::destroy_qp(rdma_cm_id* id) {
  assert(id != nullptr && id->qp != nullptr);
  const os::MutexLock lock(mutex_);
  rdma_destroy_qp(id);
}

}  // namespace weft::exs
