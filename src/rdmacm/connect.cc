// rdma_connect, accept, reject, disconnect, and QPs that programs bring themselves.

#include <algorithm>
#include <cerrno>

#include "rdmacm/addresses.h"
#include "rdmacm/cm.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

// The highest value that the device has, as rdma_cm checks it before anything is sent.
std::uint8_t device_maximum(std::uint16_t configured) {
  return static_cast<std::uint8_t>(std::min<unsigned>(configured, 254));
}

// 0, or EINVAL: over the device's limits.
int check_parameters(const Config& config, const rdma_conn_param* params) {
  if (params == nullptr) return 0;
  if (params->responder_resources != RDMA_MAX_RESP_RES &&
      params->responder_resources > device_maximum(config.ird)) {
    return EINVAL;
  }
  if (params->initiator_depth != RDMA_MAX_INIT_DEPTH &&
      params->initiator_depth > device_maximum(config.ord)) {
    return EINVAL;
  }
  if (params->private_data_len > 0 && params->private_data == nullptr) return EINVAL;
  return 0;
}

void copy_private_data(const Id& id, const rdma_conn_param* params, ConnectionParams& out) {
  if (params != nullptr && params->private_data_len > 0) {
    const auto* data = static_cast<const std::uint8_t*>(params->private_data);
    out.private_data.assign(data, data + params->private_data_len);
  } else if (params == nullptr) {
    out.private_data = id.endpoint.connect_data;
  }
}

constexpr std::uint16_t kDeviceMaximum = 0xffff;

ConnectionParams active_parameters(const Id& id, const rdma_conn_param* params) {
  ConnectionParams out;
  copy_private_data(id, params, out);
  out.traffic_class = id.traffic_class;
  if (params == nullptr) return out;
  out.ird = params->responder_resources == RDMA_MAX_RESP_RES ? kDeviceMaximum
                                                             : params->responder_resources;
  out.ord =
      params->initiator_depth == RDMA_MAX_INIT_DEPTH ? kDeviceMaximum : params->initiator_depth;
  return out;
}

// What is left open takes the values of the request.
ConnectionParams passive_parameters(const Id& id, const rdma_conn_param* params) {
  ConnectionParams out;
  copy_private_data(id, params, out);
  out.traffic_class = id.traffic_class;
  const bool ird_open = params == nullptr || params->responder_resources == RDMA_MAX_RESP_RES;
  const bool ord_open = params == nullptr || params->initiator_depth == RDMA_MAX_INIT_DEPTH;
  out.ird = ird_open ? id.responder_resources : params->responder_resources;
  out.ord = ord_open ? id.initiator_depth : params->initiator_depth;
  return out;
}

// The engine's QP for this id, id->qp or the one named in `params`. Null: there is none. With the
// mutex.
std::shared_ptr<QueuePair> choose_qp(Id& id, const rdma_conn_param* params) {
  if (id.pub.qp == nullptr) id.external_qp = params != nullptr ? params->qp_num : 0;
  const ibverbs::Qp* qp = qp_of(id);
  return qp != nullptr ? qp->engine : nullptr;
}

const Config& device_config() { return weft_ibv_context(weft_ibv_cm_context())->engine->config(); }

// What rdma_connect and rdma_accept do before they call the engine. With the mutex.
struct Start {
  Id* id = nullptr;
  std::shared_ptr<QueuePair> qp;
  int error = EINVAL;
};
Start begin(rdma_cm_id* handle, const rdma_conn_param* params, IdState from, IdState to) {
  Start start;
  Id* id = live_id(handle);
  if (id == nullptr || id->state != from) return start;
  if (check_parameters(device_config(), params) != 0) return start;
  start.qp = choose_qp(*id, params);
  if (start.qp == nullptr) return start;
  start.id = id;
  start.error = 0;
  id->state = to;
  return start;
}

}  // namespace
}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

int rdma_connect(rdma_cm_id* handle, rdma_conn_param* params) {
  WEFT_CM_FORWARD(rdma_connect, handle, params)
  std::unique_lock lock(state().mutex);
  const Start start = begin(handle, params, IdState::kRouteResolved, IdState::kConnecting);
  lock.unlock();
  if (start.error != 0) return fail_minus(start.error);

  Id& id = *start.id;
  const weft::Status connecting = id.connection->connect(
      start.qp, to_weft(&id.pub.route.addr.dst_addr), active_parameters(id, params));
  if (!connecting) {
    lock.lock();
    id.state = IdState::kRouteResolved;
    return fail_minus(errno_of(connecting.error()));
  }
  return complete(id);
}

int rdma_accept(rdma_cm_id* handle, rdma_conn_param* params) {
  WEFT_CM_FORWARD(rdma_accept, handle, params)
  std::unique_lock lock(state().mutex);
  const Start start = begin(handle, params, IdState::kRequested, IdState::kAccepting);
  lock.unlock();
  if (start.error != 0) return fail_minus(start.error);

  Id& id = *start.id;
  const weft::Status accepted = id.connection->accept(start.qp, passive_parameters(id, params));
  if (!accepted) {
    lock.lock();
    const bool gone = accepted.error() == weft::Error::kConnectionLost;
    id.state = gone ? IdState::kDown : IdState::kRequested;
    return fail_minus(errno_of(accepted.error()));
  }
  return complete(id);
}

int rdma_reject(rdma_cm_id* handle, const void* private_data, uint8_t private_data_len) {
  WEFT_CM_FORWARD(rdma_reject, handle, private_data, private_data_len)
  std::unique_lock lock(state().mutex);
  Id* id = live_id(handle);
  if (id == nullptr || id->state != IdState::kRequested) return fail_minus(EINVAL);
  if (private_data == nullptr && private_data_len > 0) return fail_minus(EINVAL);
  id->state = IdState::kDown;
  lock.unlock();
  const auto* data = static_cast<const std::uint8_t*>(private_data);
  const weft::Status rejected = id->connection->reject(std::span(data, private_data_len));
  return rejected ? 0 : fail_minus(errno_of(rejected.error()));
}

// Enhanced connection establishment is InfiniBand's; a rejection for its sake is a rejection.
int rdma_reject_ece(rdma_cm_id* handle, const void* private_data, uint8_t private_data_len) {
  WEFT_CM_FORWARD(rdma_reject_ece, handle, private_data, private_data_len)
  return rdma_reject(handle, private_data, private_data_len);
}

int rdma_disconnect(rdma_cm_id* handle) {
  WEFT_CM_FORWARD(rdma_disconnect, handle)
  std::unique_lock lock(state().mutex);
  Id* id = live_id(handle);
  if (id == nullptr) return fail_minus(EINVAL);
  const IdState before = id->state;
  // Both sides may disconnect at once: saying it after the peer did is no mistake.
  if (before == IdState::kDown && id->connection != nullptr) {
    if (id->sync) {
      lock.unlock();
      return complete_if_queued(*id);
    }
    return 0;
  }
  if (before == IdState::kDisconnecting) return 0;
  if (before != IdState::kConnected && before != IdState::kAccepting) return fail_minus(EINVAL);
  id->state = IdState::kDisconnecting;
  if (auto* qp = qp_of(*id)) qp->closing.store(true);
  lock.unlock();

  const weft::Status ended = id->connection->disconnect();
  if (!ended) {
    lock.lock();
    if (id->state == IdState::kDisconnecting) id->state = before;
    return fail_minus(errno_of(ended.error()));
  }
  return complete(*id);
}

// The answer to CONNECT_RESPONSE, which iWARP does not have: the connection is up already.
int rdma_establish(rdma_cm_id* handle) {
  WEFT_CM_FORWARD(rdma_establish, handle)
  const std::lock_guard lock(state().mutex);
  const Id* id = live_id(handle);
  if (id == nullptr || id->pub.qp != nullptr) return fail_minus(EINVAL);
  return id->state == IdState::kConnected ? 0 : fail_minus(EINVAL);
}

int rdma_init_qp_attr(rdma_cm_id* handle, ibv_qp_attr* attr, int* mask) {
  WEFT_CM_FORWARD(rdma_init_qp_attr, handle, attr, mask)
  const std::lock_guard lock(state().mutex);
  const Id* id = live_id(handle);
  if (id == nullptr || attr == nullptr || mask == nullptr) return fail_minus(EINVAL);
  if (id->pub.verbs == nullptr) return fail_minus(EINVAL);
  switch (attr->qp_state) {
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
      *mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
      attr->qp_access_flags =
          IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
      break;
    case IBV_QPS_RTS: *mask = IBV_QP_PORT; break;
    default: return fail_minus(EINVAL);
  }
  attr->port_num = id->pub.port_num;
  return 0;
}

}  // extern "C"
