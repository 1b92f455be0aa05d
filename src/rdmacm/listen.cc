#include <cerrno>

#include "rdmacm/cm_operations.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

// errno
int listen(const Call& call, int backlog) {
  std::shared_ptr<Listener> listener = call.listener();
  if (listener == nullptr) {
    if (const int error = make_listener_anywhere(call.id(), listener); error != 0) return error;
    adopt(call.id(), listener);
  }
  const int error = errno_of(listener->listen(backlog));
  if (error != 0 && call.listener() == nullptr) release_port(call.id());
  return error;
}

}  // namespace
}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

int rdma_listen(rdma_cm_id* handle, int backlog) {
  WEFT_CM_FORWARD(rdma_listen, handle, backlog)
  WEFT_MAY_FAIL(rdma_listen, fail_minus);
  return or_minus([&]() -> int {
    Call call(op::kListen, handle);
    if (call.refused() != 0) return fail_minus(call.refused());
    if (handle->ps != RDMA_PS_TCP) return fail_minus(ENODEV);
    const int error = weft::rdmacm::listen(call, backlog);
    if (error != 0) return fail_minus(error);
    call.done();
    return 0;
  });
}

}  // extern "C"
