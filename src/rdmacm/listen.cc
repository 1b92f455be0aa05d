#include <weft/limits.h>

#include <cerrno>

#include "rdmacm/cm.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

int listen(Id& id, int backlog, IdState before) {
  if (before == IdState::kIdle) {
    if (const int error = bind_any(id); error != 0) return error;
  }
  return errno_of(id.listener->listen(backlog));
}

std::uint32_t effective(int backlog) {
  const auto most = limits::kHalfOpenConnections;
  if (backlog <= 0 || static_cast<std::uint32_t>(backlog) > most) return most;
  return static_cast<std::uint32_t>(backlog);
}

}  // namespace
}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

int rdma_listen(rdma_cm_id* handle, int backlog) {
  WEFT_CM_FORWARD(rdma_listen, handle, backlog)
  std::unique_lock lock(state().mutex);
  Id* id = live_id(handle);
  if (id == nullptr) return fail_minus(EINVAL);
  const IdState before = id->state;
  if (before != IdState::kBound && before != IdState::kIdle) return fail_minus(EINVAL);
  if (id->pub.ps != RDMA_PS_TCP) return fail_minus(ENODEV);
  id->backlog = effective(backlog);
  id->state = IdState::kListening;
  lock.unlock();

  const int error = weft::rdmacm::listen(*id, backlog, before);
  if (error == 0) return 0;
  lock.lock();
  id->state = before;
  return fail_minus(error);
}

}  // extern "C"
