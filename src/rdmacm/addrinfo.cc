// rdma_getaddrinfo: getaddrinfo() with rdma_cm's result type.

#include <infiniband/ib.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ibverbs/errors.h"
#include "rdmacm/forward.h"

using namespace weft::rdmacm;
using weft::ibverbs::fail_minus;

namespace {

struct Free {
  void operator()(rdma_addrinfo* info) const { rdma_freeaddrinfo(info); }
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using RdmaInfo = std::unique_ptr<rdma_addrinfo, Free>;

// A copy by malloc(), which rdma_freeaddrinfo() ends. False: no memory.
bool copy_address(const sockaddr* from, socklen_t length, sockaddr** to, socklen_t* to_length) {
  if (from == nullptr || length == 0) return true;
  *to = static_cast<sockaddr*>(std::malloc(length));
  if (*to == nullptr) return false;
  std::memcpy(*to, from, length);
  *to_length = length;
  return true;
}

addrinfo hints_for_system(const rdma_addrinfo& hints) {
  addrinfo out{};
  if ((hints.ai_flags & RAI_PASSIVE) != 0) out.ai_flags |= AI_PASSIVE;
  if ((hints.ai_flags & RAI_NUMERICHOST) != 0) out.ai_flags |= AI_NUMERICHOST;
  // InfiniBand addresses are not getaddrinfo()'s; it refuses what else it does not know.
  if (hints.ai_family != AF_IB) out.ai_family = hints.ai_family;
  const bool datagram = hints.ai_qp_type == IBV_QPT_UD ||
                        (hints.ai_qp_type == 0 && hints.ai_port_space == RDMA_PS_UDP);
  out.ai_socktype = datagram ? SOCK_DGRAM : SOCK_STREAM;
  return out;
}

void set_types(const rdma_addrinfo& hints, rdma_addrinfo& out) {
  const bool datagram = hints.ai_qp_type == IBV_QPT_UD || hints.ai_port_space == RDMA_PS_UDP;
  out.ai_qp_type = hints.ai_qp_type != 0 ? hints.ai_qp_type : datagram ? IBV_QPT_UD : IBV_QPT_RC;
  out.ai_port_space = hints.ai_port_space != 0 ? hints.ai_port_space
                      : datagram               ? RDMA_PS_UDP
                                               : RDMA_PS_TCP;
}

// 0, EAI_ codes as getaddrinfo() gives them, or EAI_MEMORY.
int look_up(const char* node, const char* service, const rdma_addrinfo& hints, rdma_addrinfo& out) {
  const addrinfo wanted = hints_for_system(hints);
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(node, service, &wanted, &list); error != 0) return error;
  const std::unique_ptr<addrinfo, Free> owner(list);
  const bool passive = (hints.ai_flags & RAI_PASSIVE) != 0;
  out.ai_flags = hints.ai_flags;
  out.ai_family = list->ai_family;
  set_types(hints, out);
  const bool copied =
      passive ? copy_address(list->ai_addr, list->ai_addrlen, &out.ai_src_addr, &out.ai_src_len)
              : copy_address(list->ai_addr, list->ai_addrlen, &out.ai_dst_addr, &out.ai_dst_len);
  return copied ? 0 : EAI_MEMORY;
}

int copy_hints(const rdma_addrinfo& hints, rdma_addrinfo& out) {
  out.ai_flags = hints.ai_flags;
  out.ai_family = hints.ai_family;
  out.ai_qp_type = hints.ai_qp_type;
  out.ai_port_space = hints.ai_port_space;
  return copy_address(hints.ai_dst_addr, hints.ai_dst_len, &out.ai_dst_addr, &out.ai_dst_len)
             ? 0
             : EAI_MEMORY;
}

}  // namespace

extern "C" {

int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                     rdma_addrinfo** res) {
  WEFT_CM_FORWARD(rdma_getaddrinfo, node, service, hints, res)
  WEFT_MAY_FAIL(rdma_getaddrinfo, fail_minus);
  if (res == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
    return fail_minus(EINVAL);
  }
  static constexpr rdma_addrinfo kNoHints{};
  const rdma_addrinfo& wanted = hints != nullptr ? *hints : kNoHints;
  RdmaInfo info(static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))));
  if (info == nullptr) return fail_minus(ENOMEM);
  const bool named = node != nullptr || service != nullptr;
  int error = named ? look_up(node, service, wanted, *info) : copy_hints(wanted, *info);
  if (error == 0 && info->ai_src_len == 0 &&
      !copy_address(wanted.ai_src_addr, wanted.ai_src_len, &info->ai_src_addr, &info->ai_src_len)) {
    error = EAI_MEMORY;
  }
  if (error != 0) return error;
  *res = info.release();
  return 0;
}

void rdma_freeaddrinfo(rdma_addrinfo* info) {
  WEFT_CM_FORWARD(rdma_freeaddrinfo, info)
  while (info != nullptr) {
    rdma_addrinfo* next = info->ai_next;
    std::free(info->ai_connect);
    std::free(info->ai_route);
    std::free(info->ai_src_canonname);
    std::free(info->ai_dst_canonname);
    std::free(info->ai_src_addr);
    std::free(info->ai_dst_addr);
    std::free(info);
    info = next;
  }
}

}  // extern "C"
