// Functions that librdmacm has had since release 60 of rdma-core, and repoll of a later one. Names
// of InfiniBand services cannot be resolved over iWARP; a real rdma_cm that serves this process may
// do it.

#include <rdma/rdma_cma.h>
#include <sys/epoll.h>

#include <cerrno>

#include <cstring>

#include "os/lock.h"
#include "rdmacm/cm.h"
#include "rdmacm/forward.h"

using namespace weft::rdmacm;

namespace {

// Values of rdma_cm_event_type that the headers of release 44 do not have.
constexpr int kEventUser = 18;
constexpr int kEventInternal = 19;

}  // namespace

extern "C" {

// The headers of release 44 do not declare them.
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument);
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, epoll_event* event);
int repoll_wait(int epfd, epoll_event* events, int maxevents, int timeout);

// epoll for rsockets is not there: programs use rpoll().
int repoll_create(int flags) {
  WEFT_CM_FORWARD(repoll_create, flags)
  return fail_minus(ENOSYS);
}

int repoll_ctl(int epfd, int op, int fd, epoll_event* event) {
  WEFT_CM_FORWARD(repoll_ctl, epfd, op, fd, event)
  return fail_minus(ENOSYS);
}

int repoll_wait(int epfd, epoll_event* events, int maxevents, int timeout) {
  WEFT_CM_FORWARD(repoll_wait, epfd, events, maxevents, timeout)
  return fail_minus(ENOSYS);
}

int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints) {
  WEFT_CM_FORWARD(rdma_resolve_addrinfo, id, node, service, hints)
  return fail_minus(ENOSYS);
}

int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
  WEFT_CM_FORWARD(rdma_query_addrinfo, id, info)
  return fail_minus(ENOSYS);
}

int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument) {
  WEFT_CM_FORWARD(rdma_write_cm_event, id, event, status, argument)
  const auto type = static_cast<int>(event);  // no value of the headers that Weft is built with
  return or_minus([&]() -> int {
    if (type != kEventUser && type != kEventInternal) return fail_minus(EINVAL);
    const weft::os::MutexLock lock(state().mutex);
    const std::shared_ptr<Id> owner = live_id(id);
    if (owner == nullptr) return fail_minus(EINVAL);
    auto written = std::make_unique<Event>();
    written->pub.id = id;
    written->pub.event = static_cast<rdma_cm_event_type>(type);
    written->pub.status = status;
    std::memcpy(&written->pub.param, &argument, sizeof argument);  // param.arg of newer headers
    queue_event(owner, std::move(written));
    return 0;
  });
}

}  // extern "C"
