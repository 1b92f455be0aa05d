// Options, names, ports, devices, and calls of rdma_cm that mean nothing on iWARP.

#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "os/lock.h"
#include "rdmacm/cm.h"
#include "rdmacm/forward.h"

using namespace weft::rdmacm;

namespace {

// 0 or an errno.
int set_id_option(Id& id, int name, const void* value, std::size_t length)
    WEFT_REQUIRES(state().mutex) {
  int number = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      // For a listener: of the connections that it takes.
      if (length != sizeof(std::uint8_t)) return EINVAL;
      id.traffic_class = *static_cast<const std::uint8_t*>(value);
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      // An attribute of a RoCE-like device's queue pair. An iWARP one has none: TCP has its own
      // time limits.
      if (length != sizeof(std::uint8_t)) return EINVAL;
      id.ack_timeout = *static_cast<const std::uint8_t*>(value);
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
      if (length != sizeof number) return EINVAL;
      std::memcpy(&number, value, sizeof number);
      if (id.state != IdState::kIdle) return EINVAL;
      (name == RDMA_OPTION_ID_AFONLY ? id.v6_only : id.reuse_address) = number != 0;
      return 0;
    default: return ENOSYS;
  }
}

__be16 port_of(const sockaddr& address) {
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  switch (address.sa_family) {
    case AF_INET: std::memcpy(&v4, &address, sizeof v4); return v4.sin_port;
    case AF_INET6: std::memcpy(&v6, &address, sizeof v6); return v6.sin6_port;
    default: return 0;
  }
}

}  // namespace

extern "C" {

int rdma_set_option(rdma_cm_id* handle, int level, int name, void* value, size_t length) {
  WEFT_CM_FORWARD(rdma_set_option, handle, level, name, value, length)
  WEFT_MAY_FAIL(rdma_set_option, fail_minus);
  const weft::os::MutexLock lock(state().mutex);
  const std::shared_ptr<Id> id = live_id(handle);
  if (id == nullptr || value == nullptr) return fail_minus(EINVAL);
  if (level == RDMA_OPTION_IB) return fail_minus(EINVAL);  // there are no path records
  if (level != RDMA_OPTION_ID) return fail_minus(ENOSYS);
  const int error = set_id_option(*id, name, value, length);
  return error == 0 ? 0 : fail_minus(error);
}

const char* rdma_event_str(rdma_cm_event_type event) {
  // The last four: release 60 and later.
  static constexpr std::array<const char*, 20> kNames = {"RDMA_CM_EVENT_ADDR_RESOLVED",
                                                         "RDMA_CM_EVENT_ADDR_ERROR",
                                                         "RDMA_CM_EVENT_ROUTE_RESOLVED",
                                                         "RDMA_CM_EVENT_ROUTE_ERROR",
                                                         "RDMA_CM_EVENT_CONNECT_REQUEST",
                                                         "RDMA_CM_EVENT_CONNECT_RESPONSE",
                                                         "RDMA_CM_EVENT_CONNECT_ERROR",
                                                         "RDMA_CM_EVENT_UNREACHABLE",
                                                         "RDMA_CM_EVENT_REJECTED",
                                                         "RDMA_CM_EVENT_ESTABLISHED",
                                                         "RDMA_CM_EVENT_DISCONNECTED",
                                                         "RDMA_CM_EVENT_DEVICE_REMOVAL",
                                                         "RDMA_CM_EVENT_MULTICAST_JOIN",
                                                         "RDMA_CM_EVENT_MULTICAST_ERROR",
                                                         "RDMA_CM_EVENT_ADDR_CHANGE",
                                                         "RDMA_CM_EVENT_TIMEWAIT_EXIT",
                                                         "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
                                                         "RDMA_CM_EVENT_ADDRINFO_ERROR",
                                                         "RDMA_CM_EVENT_USER",
                                                         "RDMA_CM_EVENT_INTERNAL"};
  const auto index = static_cast<std::size_t>(event);
  return index < kNames.size() ? kNames[index] : "UNKNOWN EVENT";
}

__be16 rdma_get_src_port(rdma_cm_id* id) {
  WEFT_CM_FORWARD(rdma_get_src_port, id)
  return port_of(id->route.addr.src_addr);
}

__be16 rdma_get_dst_port(rdma_cm_id* id) {
  WEFT_CM_FORWARD(rdma_get_dst_port, id)
  return port_of(id->route.addr.dst_addr);
}

ibv_context** rdma_get_devices(int* count) {
  WEFT_CM_FORWARD(rdma_get_devices, count)
  WEFT_MAY_FAIL(rdma_get_devices, fail_null);
  if (count != nullptr) *count = 0;
  std::size_t found = 0;
  ibv_context** list = weft_ibv_cm_contexts(&found);
  if (list != nullptr && count != nullptr) *count = static_cast<int>(found);
  return list;
}

void rdma_free_devices(ibv_context** list) {
  WEFT_CM_FORWARD(rdma_free_devices, list)
  std::free(list);
}

// Tells rdma_cm of the first message on a connection; the engine saw it itself.
int rdma_notify(rdma_cm_id* handle, ibv_event_type event) {
  WEFT_CM_FORWARD(rdma_notify, handle, event)
  const weft::os::MutexLock lock(state().mutex);
  return live_id(handle) != nullptr ? 0 : fail_minus(EINVAL);
}

int rdma_set_local_ece(rdma_cm_id* handle, ibv_ece* ece) {
  WEFT_CM_FORWARD(rdma_set_local_ece, handle, ece)
  const weft::os::MutexLock lock(state().mutex);
  return live_id(handle) != nullptr && ece != nullptr ? 0 : fail_minus(EINVAL);
}

int rdma_get_remote_ece(rdma_cm_id* handle, ibv_ece* ece) {
  WEFT_CM_FORWARD(rdma_get_remote_ece, handle, ece)
  const weft::os::MutexLock lock(state().mutex);
  if (live_id(handle) == nullptr || ece == nullptr) return fail_minus(EINVAL);
  *ece = {};
  return 0;
}

// iWARP is connected only.
int rdma_join_multicast(rdma_cm_id* handle, sockaddr* address, void* context) {
  WEFT_CM_FORWARD(rdma_join_multicast, handle, address, context)
  return fail_minus(EOPNOTSUPP);
}

int rdma_join_multicast_ex(rdma_cm_id* handle, rdma_cm_join_mc_attr_ex* attr, void* context) {
  WEFT_CM_FORWARD(rdma_join_multicast_ex, handle, attr, context)
  return fail_minus(EOPNOTSUPP);
}

int rdma_leave_multicast(rdma_cm_id* handle, sockaddr* address) {
  WEFT_CM_FORWARD(rdma_leave_multicast, handle, address)
  return fail_minus(EOPNOTSUPP);
}

}  // extern "C"
