#include "rdmacm/deliver.h"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "ibverbs/qp.h"
#include "rdmacm/addresses.h"

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
    case Type::kEstablished: return RDMA_CM_EVENT_ESTABLISHED;
    case Type::kRejected: return RDMA_CM_EVENT_REJECTED;
    case Type::kUnreachable: return RDMA_CM_EVENT_UNREACHABLE;
    case Type::kConnectError: return RDMA_CM_EVENT_CONNECT_ERROR;
    case Type::kDisconnected: break;
  }
  return RDMA_CM_EVENT_DISCONNECTED;
}

// On iWARP the status is a negative errno; DISCONNECTED always has 0.
int status_of(const ConnectionEvent& event) {
  using Type = ConnectionEvent::Type;
  switch (event.type) {
    case Type::kConnectRequest:
    case Type::kEstablished:
    case Type::kDisconnected: return 0;
    default: return -errno_of(event.error.value_or(Error::kRefused));
  }
}

void fill_parameters(Event& event) {
  rdma_conn_param& params = event.pub.param.conn;
  std::vector<std::uint8_t>& data = event.raw.private_data;
  // The length is an octet in rdma_cm; MPA allows more.
  params.private_data_len = octet(static_cast<std::uint16_t>(data.size()));
  params.private_data = data.empty() ? nullptr : data.data();
  params.responder_resources = octet(event.raw.ird);
  params.initiator_depth = octet(event.raw.ord);
}

void follow_qp_state(const Id& id) {
  if (const auto qp = qp_of(id)) {
    qp->pub.qp_base.state = ibverbs::qp_state(qp->engine->state());
  }
}

}  // namespace

bool prepare(Event& event) {
  if (!is_request(event)) return true;
  auto child = std::make_shared<Id>();
  child->state = IdState::kRequested;
  child->connection = event.raw.connection;
  child->initiator_depth = octet(event.raw.ord);
  child->responder_resources = octet(event.raw.ird);
  if (attach_device(*child) != 0) return false;
  store(child->connection->local_address(), child->pub.route.addr.src_storage);
  store(child->connection->peer_address(), child->pub.route.addr.dst_storage);
  event.child = std::move(child);
  return true;
}

void finish(Event& event) {
  Id& owner = *event.owner;
  ++owner.events_delivered;
  state().events.insert(&event.pub);
  if (!event.is_raw) return;
  event.pub.event = type_of(event.raw.type);
  event.pub.status = status_of(event.raw);
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
  child->channel = owner.channel;
  child->connection->context = child.get();
  enter(child);
  event.pub.id = &child->pub;
  event.pub.listen_id = &owner.pub;
}

}  // namespace weft::rdmacm
