#include "rdmacm/deliver.h"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "ibverbs/ibv_qp.h"
#include "rdmacm/addresses.h"
#include "rdmacm/carried.h"

namespace weft::rdmacm {
namespace {

std::uint8_t octet(std::uint16_t value) {
  return static_cast<std::uint8_t>(
      std::min<unsigned>(value, std::numeric_limits<std::uint8_t>::max()));
}

rdma_cm_event_type type_of(ConnectionEvent::Type type) {
  using Type = ConnectionEvent::Type;
  switch (type) {
    case Type::kConnectRequest: return RDMA_CM_EVENT_CONNECT_REQUEST;
    case Type::kResponse: return RDMA_CM_EVENT_CONNECT_RESPONSE;
    case Type::kEstablished: return RDMA_CM_EVENT_ESTABLISHED;
    case Type::kRejected: return RDMA_CM_EVENT_REJECTED;
    case Type::kUnreachable: return RDMA_CM_EVENT_UNREACHABLE;
    case Type::kConnectError: return RDMA_CM_EVENT_CONNECT_ERROR;
    case Type::kDisconnected: break;
  }
  return RDMA_CM_EVENT_DISCONNECTED;
}

// Reasons of InfiniBand's REJ.
constexpr int kNoSuchService = 8;
constexpr int kRejectedByConsumer = 28;

// The status is a negative errno; of a rejection on a RoCE-like device InfiniBand's reason.
// DISCONNECTED always has 0.
int status_of(const ConnectionEvent& event, bool roce_like) {
  using Type = ConnectionEvent::Type;
  switch (event.type) {
    case Type::kConnectRequest:
    case Type::kResponse:
    case Type::kEstablished:
    case Type::kDisconnected: return 0;
    case Type::kRejected:
      if (roce_like) return event.error == Error::kRefused ? kRejectedByConsumer : kNoSuchService;
      break;
    default: break;
  }
  return -errno_of(event.error.value_or(Error::kRefused));
}

void fill_parameters(Event& event) {
  rdma_conn_param& params = event.pub.param.conn;
  std::vector<std::uint8_t>& data = event.raw.private_data;
  // The length is an octet in rdma_cm; MPA allows more.
  params.private_data_len = octet(static_cast<std::uint16_t>(data.size()));
  params.private_data = data.empty() ? nullptr : data.data();
  params.responder_resources = octet(event.raw.ird);
  params.initiator_depth = octet(event.raw.ord);
  if (!event.raw.carried) return;
  params.qp_num = event.raw.carried->number;
  params.srq = event.raw.carried->shared_queue ? 1 : 0;
  params.retry_count = event.raw.carried->retry_count;
  params.rnr_retry_count = event.raw.carried->rnr_retry;
}

void follow_qp_state(const Id& id) {
  if (const auto qp = qp_of(id)) {
    qp->pub.qp_base.state = ibverbs::qp_state(qp->engine->state());
  }
}

}  // namespace

bool prepare(Event& event) {
  if (event.is_raw && event.raw.type == ConnectionEvent::Type::kResponse) take_response(event);
  if (!is_request(event)) return true;
  auto child = make_id();
  child->state = IdState::kRequested;
  child->connection = event.raw.connection;
  child->initiator_depth = octet(event.raw.ord);
  child->responder_resources = octet(event.raw.ird);
  if (attach_device(*child, child->connection->local_address()) != 0) return false;
  store(child->connection->local_address(), child->pub.route.addr.src_storage);
  store(child->connection->peer_address(), child->pub.route.addr.dst_storage);
  if (event.raw.carried) know_peer(*child, *event.raw.carried);
  event.child = std::move(child);
  return true;
}

void inject(Event& event) {
  const auto injected = ibverbs::observer->inject_cm(event.pub.event);
  if (!injected.is_one) return;
  if (injected.follows) {
    const os::MutexLock lock(state().mutex);
    if (event.owner->alive) queue_plain(event.owner, injected.event);
    return;
  }
  std::shared_ptr<Connection> connection;
  Id& owner = *event.owner;
  {
    const os::MutexLock lock(state().mutex);
    event.pub.event = static_cast<rdma_cm_event_type>(injected.event);
    event.pub.status = -injected.error;
    event.pub.param.conn = {};
    if (event.is_raw) {
      event.raw.private_data.assign(injected.private_data.begin(), injected.private_data.end());
      event.pub.param.conn.private_data = event.raw.private_data.data();
      event.pub.param.conn.private_data_len =
          static_cast<std::uint8_t>(event.raw.private_data.size());
    }
    if (event.pub.event == RDMA_CM_EVENT_ADDR_ERROR) owner.state = IdState::kIdle;
    if (event.pub.event == RDMA_CM_EVENT_ROUTE_ERROR) owner.state = IdState::kAddrResolved;
    if (!event.is_raw) return;
    owner.state = IdState::kDown;
    connection = event.raw.connection;
    // Its end is no news: it never came to be.
    if (connection != nullptr) connection->context = nullptr;
  }
  // An end that is queued already is no news either. It is let go of here, outside the mutex.
  const auto over = event.owner->channel->queue.take_if([&](const EventPtr& queued) {
    return queued->is_raw && queued->raw.connection == connection && connection != nullptr;
  });
  if (const auto qp = qp_of(owner)) static_cast<void>(qp->engine->modify(QpState::kError));
  if (connection != nullptr) connection->abort();
}

void finish(Event& event) {
  Id& owner = *event.owner;
  if (event.child != nullptr) enter(event.child);
  ++owner.events_delivered;
  state().events.merge(event.listed);
  if (!event.is_raw) return;
  event.pub.event = event.shown_as.value_or(type_of(event.raw.type));
  event.pub.status =
      event.failed != 0 ? event.failed : status_of(event.raw, owner.mine.has_value());
  event.pub.id = &owner.pub;
  fill_parameters(event);
  if (event.child == nullptr) return follow_qp_state(owner);

  // The new id is on the listener's channel, with its context.
  const std::shared_ptr<Id> child = std::move(event.child);
  child->pub.channel = owner.pub.channel;
  child->pub.context = owner.pub.context;
  child->pub.ps = owner.pub.ps;
  child->pub.qp_type = owner.pub.qp_type;
  child->traffic_class = owner.traffic_class;
  child->ack_timeout = owner.ack_timeout;
  // Its port is rdma_cm's, whichever TCP port serves that.
  SocketAddress local = to_weft(&child->pub.route.addr.src_addr);
  local.set_port(to_weft(&owner.pub.route.addr.src_addr).port());
  store(local, child->pub.route.addr.src_storage);
  child->channel = owner.channel;
  child->connection->context = child.get();
  event.pub.id = &child->pub;
  event.pub.listen_id = &owner.pub;
}

}  // namespace weft::rdmacm
