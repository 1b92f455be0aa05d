#include "rdmacm/cm_operations.h"

#include <cerrno>
#include <utility>

#include "os/lock.h"

namespace weft::rdmacm {

Call::Call(const Operation& operation, const rdma_cm_id* handle) : operation_(operation) {
  const os::MutexLock lock(state().mutex);
  std::shared_ptr<Id> id = live_id(handle);
  if (id == nullptr) ibverbs::observe_not_live(handle);
  if (id == nullptr || !operation.from.has(id->state)) return;
  before_ = std::exchange(id->state, operation.during);
  connection_ = id->connection;
  listener_ = id->listener;
  open_ = true;
  id_ = std::move(id);
}

Call::~Call() {
  if (open_) finish(before_);
}

void Call::finish(IdState state_now) {
  const os::MutexLock lock(state().mutex);
  // The engine's event, when it was quicker, knows better.
  if (id_->state == operation_.during) id_->state = state_now;
  open_ = false;
}

}  // namespace weft::rdmacm
