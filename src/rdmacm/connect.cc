// rdma_connect, accept, reject, disconnect, and QPs that programs bring themselves.

#include <algorithm>
#include <cerrno>
#include <optional>

#include "os/lock.h"
#include "rdmacm/addresses.h"
#include "rdmacm/carried.h"
#include "rdmacm/cm.h"
#include "rdmacm/cm_operations.h"
#include "rdmacm/forward.h"

namespace weft::rdmacm {
namespace {

// The highest value that the device has, as rdma_cm checks it before anything is sent.
std::uint8_t device_maximum(std::uint16_t configured) {
  return static_cast<std::uint8_t>(std::min<unsigned>(configured, 254));
}

// 0, or EINVAL: over the device's limits.
int check_parameters(const Id& id, const Config& config, const rdma_conn_param* params) {
  if (params == nullptr) return 0;
  // rdma_cm counts them in an octet.
  if (id.endpoint.connect_data.size() + params->private_data_len > 255) return EINVAL;
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

// Private data from the addrinfo of rdma_create_ep (ai_connect) comes first, then the program's
// own.
void copy_private_data(const Id& id, const rdma_conn_param* params, ConnectionParams& out) {
  out.private_data = id.endpoint.connect_data;
  if (params != nullptr && params->private_data_len > 0) {
    const auto* data = static_cast<const std::uint8_t*>(params->private_data);
    out.private_data.insert(out.private_data.end(), data, data + params->private_data_len);
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

// Parameters that the program leaves open take the values of the request.
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

// The engine's QP for this id, id->qp or the one named in `params`. Null: there is none.
std::shared_ptr<QueuePair> choose_qp(Id& id, const rdma_conn_param* params) {
  const os::MutexLock lock(state().mutex);
  if (id.pub.qp == nullptr) id.external_qp = params != nullptr ? params->qp_num : 0;
  const auto qp = qp_of(id);
  return qp ? qp->engine : nullptr;
}

// The part that rdma_connect and rdma_accept share, before they call the engine.   0 or an errno
int prepare_connection(const Call& call, const rdma_conn_param* params,
                       std::shared_ptr<QueuePair>& qp) {
  if (call.refused() != 0) return call.refused();
  const auto engine = device();
  if (engine == nullptr) return errno;
  if (const int error = check_parameters(call.id(), engine->config(), params); error != 0) {
    return error;
  }
  if (is_roce_like(*engine)) {  // the connection carries a number alone
    return call.id().pub.qp != nullptr || params != nullptr ? 0 : EINVAL;
  }
  qp = choose_qp(call.id(), params);
  return qp != nullptr ? 0 : EINVAL;
}

// A disconnect that the peer, or an earlier call, has made already: no mistake, both sides may do
// so at once. Nothing: it is a mistake, or there is something to do.
std::optional<int> disconnected_already(const rdma_cm_id* handle) {
  os::MutexLock lock(state().mutex);
  const std::shared_ptr<Id> id = live_id(handle);
  if (id == nullptr) return std::nullopt;
  if (id->state == IdState::kDisconnecting) return 0;
  const std::shared_ptr<Connection> connection = id->connection;
  if (id->state != IdState::kDown || connection == nullptr) return std::nullopt;
  lock.unlock();
  // Nothing is left to do but for a RoCE-like device, whose peer waits for this answer. No event
  // comes of a connection that was never up.
  if (!connection->disconnect()) return 0;
  return complete_if_queued(*id);
}

// Tells the QP that its connection ends in good order, or that it does not after all.
void mark_closing(const Id& id, bool closing) {
  const os::MutexLock lock(state().mutex);
  if (const auto qp = qp_of(id)) qp->closing.store(closing);
}

}  // namespace
}  // namespace weft::rdmacm

using namespace weft::rdmacm;

extern "C" {

int rdma_connect(rdma_cm_id* handle, rdma_conn_param* params) {
  WEFT_CM_FORWARD(rdma_connect, handle, params)
  WEFT_MAY_FAIL(rdma_connect, fail_minus);
  return or_minus([&]() -> int {
    Call call(op::kConnect, handle);
    std::shared_ptr<weft::QueuePair> qp;
    if (const int error = weft::rdmacm::prepare_connection(call, params, qp); error != 0) {
      return fail_minus(error);
    }
    Id& id = call.id();
    weft::ConnectionParams wanted = active_parameters(id, params);
    wanted.by_service = true;
    if (qp == nullptr) wanted.carried = offer_of(id, params);
    const weft::Status connecting =
        call.connection()->connect(qp, to_weft(&id.pub.route.addr.dst_addr), wanted);
    if (!connecting) return fail_minus(errno_of(connecting.error()));
    call.done();
    return complete(id);
  });
}

int rdma_accept(rdma_cm_id* handle, rdma_conn_param* params) {
  WEFT_CM_FORWARD(rdma_accept, handle, params)
  WEFT_MAY_FAIL(rdma_accept, fail_minus);
  return or_minus([&]() -> int {
    Call call(op::kAccept, handle);
    std::shared_ptr<weft::QueuePair> qp;
    if (const int error = weft::rdmacm::prepare_connection(call, params, qp); error != 0) {
      return fail_minus(error);
    }
    Id& id = call.id();
    weft::ConnectionParams answer = passive_parameters(id, params);
    if (qp == nullptr) {
      answer.carried = offer_of(id, params);
      agree(id, answer.ird, answer.ord);
      if (const int error = make_ready(id, weft::WiringTurn::kOther); error != 0) {
        return fail_minus(error);
      }
    }
    const weft::Status accepted = call.connection()->accept(qp, answer);
    if (!accepted) {
      if (accepted.error() == weft::Error::kConnectionLost) call.finish(IdState::kDown);
      return fail_minus(errno_of(accepted.error()));
    }
    call.done();
    return complete(call.id());
  });
}

int rdma_reject(rdma_cm_id* handle, const void* private_data, uint8_t private_data_len) {
  WEFT_CM_FORWARD(rdma_reject, handle, private_data, private_data_len)
  WEFT_MAY_FAIL(rdma_reject, fail_minus);
  Call call(op::kReject, handle);
  if (call.refused() != 0) return fail_minus(call.refused());
  if (private_data == nullptr && private_data_len > 0) return fail_minus(EINVAL);
  const auto* data = static_cast<const std::uint8_t*>(private_data);
  const weft::Status rejected = call.connection()->reject(std::span(data, private_data_len));
  call.done();  // also where it failed: the peer is gone
  return rejected ? 0 : fail_minus(errno_of(rejected.error()));
}

// Enhanced connection establishment is InfiniBand's; a rejection for its sake is a rejection.
int rdma_reject_ece(rdma_cm_id* handle, const void* private_data, uint8_t private_data_len) {
  WEFT_CM_FORWARD(rdma_reject_ece, handle, private_data, private_data_len)
  return rdma_reject(handle, private_data, private_data_len);
}

int rdma_disconnect(rdma_cm_id* handle) {
  WEFT_CM_FORWARD(rdma_disconnect, handle)
  end_carried_qp(handle);
  if (const auto result = disconnected_already(handle)) return *result;
  Call call(op::kDisconnect, handle);
  if (call.refused() != 0) return fail_minus(call.refused());
  mark_closing(call.id(), true);
  const weft::Status ended = call.connection()->disconnect();
  if (!ended) {
    mark_closing(call.id(), false);
    return fail_minus(errno_of(ended.error()));
  }
  call.done();
  return complete(call.id());
}

// The answer to CONNECT_RESPONSE. iWARP does not have that: the connection is up already.
int rdma_establish(rdma_cm_id* handle) {
  WEFT_CM_FORWARD(rdma_establish, handle)
  WEFT_MAY_FAIL(rdma_establish, fail_minus);
  const Call call(op::kEstablish, handle);
  if (call.refused() != 0 || handle->qp != nullptr) return fail_minus(EINVAL);
  if (!call.id().mine) return 0;
  const weft::Status told = call.connection()->establish();
  return told ? 0 : fail_minus(errno_of(told.error()));
}

int rdma_init_qp_attr(rdma_cm_id* handle, ibv_qp_attr* attr, int* mask) {
  WEFT_CM_FORWARD(rdma_init_qp_attr, handle, attr, mask)
  WEFT_MAY_FAIL(rdma_init_qp_attr, fail_minus);
  const weft::os::MutexLock lock(state().mutex);
  const std::shared_ptr<Id> id = live_id(handle);
  if (id == nullptr || attr == nullptr || mask == nullptr) return fail_minus(EINVAL);
  if (id->pub.verbs == nullptr) return fail_minus(EINVAL);
  const auto engine = weft_ibv_engine_of(id->pub.verbs);
  if (engine != nullptr && is_roce_like(*engine)) {
    const int error = fill_attributes(*id, *attr, *mask);
    return error == 0 ? 0 : fail_minus(error);
  }
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
