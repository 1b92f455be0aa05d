#include "exs/rdma/cm_connection.h"

#include <cerrno>

namespace weft::exs {
namespace {

void* context_of(std::uint32_t number) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
}

}  // namespace

int CmConnection::make(const std::shared_ptr<Socket>& socket) {
  if (number_ == 0) number_ = engine_.connections.add(socket);
  if (id_ != nullptr) return 0;
  const int made = rdma_create_id(engine_.cm.get(), &id_, context_of(number_), RDMA_PS_TCP);
  return made == 0 ? 0 : errno;
}

void CmConnection::adopt(rdma_cm_id* id, const std::shared_ptr<Socket>& socket) {
  assert(id != nullptr && id_ == nullptr && number_ == 0);
  number_ = engine_.connections.add(socket);
  id_ = id;
  id->context = context_of(number_);
}

const std::shared_ptr<Device>& CmConnection::find_device() {
  assert(id_ != nullptr && device_ == nullptr);
  device_ = engine_.devices.of(id_->verbs);
  return device_;
}

int CmConnection::make_qp(Sizes& sizes) {
  assert(id_ != nullptr && number_ != 0 && device_ != nullptr && !has_qp_ && shard_ == nullptr);
  shard_entries_ = static_cast<int>(sizes.sends + sizes.receives);
  shard_ = device_->take_shard(shard_entries_);
  if (shard_ == nullptr) return errno;
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = shard_->cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = sizes.sends;
  attr.cap.max_recv_wr = sizes.receives;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.cap.max_inline_data = sizes.inline_bytes;
  if (rdma_create_qp(id_, device_->pd(), &attr) != 0) {
    attr.cap.max_inline_data = 0;
    if (rdma_create_qp(id_, device_->pd(), &attr) != 0) return errno;
  }
  has_qp_ = true;
  sizes.inline_bytes = attr.cap.max_inline_data;
  return 0;
}

void CmConnection::end() {
  if (has_qp_) {
    assert(id_ != nullptr && number_ != 0);
    engine_.cm.destroy_qp(id_);
    has_qp_ = false;
  }
  if (id_ != nullptr) {
    assert(number_ != 0);
    engine_.destroy_later(id_);
    id_ = nullptr;
  }
  if (shard_ != nullptr) {
    Device::give_back(shard_, shard_entries_);
    shard_ = nullptr;
  }
}

void CmConnection::dismiss() {
  assert(id_ == nullptr);
  if (number_ != 0) engine_.connections.remove(number_);
  number_ = 0;
}

}  // namespace weft::exs
