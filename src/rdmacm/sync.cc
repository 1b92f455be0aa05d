// Synchronous ids: calls that wait for their event, endpoints, and rdma_get_request.

#include <cerrno>
#include <cstdlib>

#include <rdma/rdma_verbs.h>

#include "rdmacm/cm.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

constexpr int kResolveTimeoutMs = 2000;

int wait_for_event(Id& id) {
  rdma_cm_id& pub = id.pub;
  if (pub.event != nullptr) {
    rdma_ack_cm_event(pub.event);
    pub.event = nullptr;
  }
  if (rdma_get_cm_event(pub.channel, &pub.event) != 0) return -1;
  if (pub.event->status == 0) return 0;
  if (pub.event->event == RDMA_CM_EVENT_REJECTED) return fail_minus(ECONNREFUSED);
  return fail_minus(std::abs(pub.event->status));
}

// The listening half of rdma_create_ep.
int make_passive(Id& id, const rdma_addrinfo& res, ibv_pd* pd, const ibv_qp_init_attr* attr) {
  if (rdma_bind_addr(&id.pub, res.ai_src_addr) != 0) return -1;
  id.endpoint.pd = pd;
  if (attr != nullptr) {
    id.endpoint.qp_attr = *attr;
    id.endpoint.qp_attr->qp_type = static_cast<ibv_qp_type>(res.ai_qp_type);
  }
  return 0;
}

int make_active(Id& id, const rdma_addrinfo& res, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (rdma_resolve_addr(&id.pub, res.ai_src_addr, res.ai_dst_addr, kResolveTimeoutMs) != 0) {
    return -1;
  }
  if (rdma_resolve_route(&id.pub, kResolveTimeoutMs) != 0) return -1;
  if (attr != nullptr) {
    attr->qp_type = static_cast<ibv_qp_type>(res.ai_qp_type);
    if (rdma_create_qp(&id.pub, pd, attr) != 0) return -1;
  }
  if (res.ai_connect_len > 0) {
    const auto* data = static_cast<const std::uint8_t*>(res.ai_connect);
    id.endpoint.connect_data.assign(data, data + res.ai_connect_len);
  }
  return 0;
}

}  // namespace

int complete(Id& id) { return id.sync ? wait_for_event(id) : 0; }

int complete_if_queued(Id& id) {
  if (!id.sync) return 0;
  const rdma_cm_event* last = id.pub.event;
  if (last != nullptr && last->event == RDMA_CM_EVENT_DISCONNECTED) return 0;
  return wait_for_event(id);
}

}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

int rdma_create_ep(rdma_cm_id** out, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* attr) {
  WEFT_CM_FORWARD(rdma_create_ep, out, res, pd, attr)
  WEFT_MAY_FAIL(rdma_create_ep, fail_minus);
  return or_minus([&]() -> int {
    if (out == nullptr || res == nullptr) return fail_minus(EINVAL);
    rdma_cm_id* handle = nullptr;
    if (rdma_create_id(nullptr, &handle, nullptr,
                       static_cast<rdma_port_space>(res->ai_port_space)) != 0) {
      return -1;
    }
    const std::shared_ptr<Id> id = find_id(handle);
    if (id == nullptr) return fail_minus(EINVAL);
    handle->qp_type = static_cast<ibv_qp_type>(res->ai_qp_type);
    const bool passive = (res->ai_flags & RAI_PASSIVE) != 0;
    const int made = passive ? make_passive(*id, *res, pd, attr) : make_active(*id, *res, pd, attr);
    if (made != 0) {
      const int error = errno;
      rdma_destroy_ep(handle);
      return fail_minus(error);
    }
    *out = handle;
    return 0;
  });
}

void rdma_destroy_ep(rdma_cm_id* id) {
  WEFT_CM_FORWARD(rdma_destroy_ep, id)
  if (id == nullptr) return;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** out) {
  WEFT_CM_FORWARD(rdma_get_request, listen, out)
  WEFT_MAY_FAIL(rdma_get_request, fail_minus);
  return or_minus([&]() -> int {
    const std::shared_ptr<Id> id = find_id(listen);
    if (id == nullptr || !id->sync || out == nullptr) return fail_minus(EINVAL);
    if (wait_for_event(*id) != 0) return -1;
    rdma_cm_event* event = listen->event;
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) return fail_minus(EINVAL);
    if (id->endpoint.qp_attr) {
      ibv_qp_init_attr attr = *id->endpoint.qp_attr;
      if (rdma_create_qp(event->id, id->endpoint.pd, &attr) != 0) {
        const int error = errno;
        rdma_destroy_id(event->id);
        return fail_minus(error);
      }
    }
    // The request, with its private data, is the first event of the new id.
    listen->event = nullptr;
    event->id->event = event;
    *out = event->id;
    return 0;
  });
}

}  // extern "C"
