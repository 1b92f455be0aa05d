#include "rdmacm/carried.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "ibverbs/bridge.h"
#include "os/cancel.h"
#include "os/lock.h"

namespace weft::rdmacm {
namespace {

constexpr std::uint32_t k24Bits = 0xff'ffff;
constexpr std::uint8_t kRetriesMax = 7;
constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kRnrTimer = 12;    // 0.64 ms
constexpr std::uint8_t kAckTimeout = 18;  // 1.07 s, as the kernel's for RoCE
constexpr int kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// Attributes that only a reliable connected queue pair is given.
constexpr int kReliableRtr = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kReliableRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

// Without an object of the thread: where there is no memory to note its destructor, the C library
// ends the program.
std::uint32_t random_psn() {
  const os::NoCancel guard;
  std::uint32_t bits = 0;
  static_cast<void>(!getrandom(&bits, sizeof bits, 0));
  return bits & k24Bits;
}

Gid own_gid(const Id& id) {
  Gid gid;
  std::copy_n(id.pub.route.addr.addr.ibaddr.sgid.raw, gid.size(), gid.begin());
  return gid;
}

void fill_to_init(const Id& id, ibv_qp_attr& attr, int& mask) {
  mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  attr.pkey_index = 0;
  attr.port_num = id.pub.port_num;
  attr.qp_access_flags = kRights;
}

void fill_to_rtr(const Id& id, ibv_qp_attr& attr, int& mask) {
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         (id.pub.qp_type == IBV_QPT_RC ? kReliableRtr : 0);
  attr.ah_attr = {};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = id.pub.port_num;
  std::copy(id.peer->gid.begin(), id.peer->gid.end(), attr.ah_attr.grh.dgid.raw);
  attr.ah_attr.grh.sgid_index = weft_ibv_gid_index(id.pub.verbs, own_gid(id));
  attr.ah_attr.grh.hop_limit = kHopLimit;
  attr.ah_attr.grh.traffic_class = id.traffic_class.value_or(0);
  ibv_port_attr port{};
  // The macro of this name is undone where the function behind it is defined.
  const int queried = ___ibv_query_port(id.pub.verbs, id.pub.port_num, &port);
  attr.path_mtu = queried == 0 ? port.active_mtu : IBV_MTU_1024;
  attr.dest_qp_num = id.peer->number;
  attr.rq_psn = id.peer->psn;
  attr.max_dest_rd_atomic = id.reads_served;
  attr.min_rnr_timer = kRnrTimer;
}

void fill_to_rts(const Id& id, ibv_qp_attr& attr, int& mask) {
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN | (id.pub.qp_type == IBV_QPT_RC ? kReliableRts : 0);
  attr.sq_psn = id.mine->psn;
  attr.timeout = id.ack_timeout.value_or(kAckTimeout);
  // The request names it for both ends; how often a peer without a receive is tried, the peer says.
  attr.retry_cnt = id.asks ? id.mine->retry_count : id.peer->retry_count;
  attr.rnr_retry = id.peer->rnr_retry;
  attr.max_rd_atomic = id.reads_asked;
}

// 0 or an errno.
int move_qp(Id& id, ibv_qp_state to) {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = to;
  if (const int error = fill_attributes(id, attr, mask); error != 0) return error;
  return ibv_modify_qp(id.pub.qp, &attr, mask);
}

}  // namespace

std::shared_ptr<Device> weft_ibv_engine_of(ibv_context* context) {
  std::shared_ptr<Device> engine;
  weft_ibv_engine(context, engine);
  return engine;
}

CarriedQp offer_of(Id& id, const rdma_conn_param* params) {
  CarriedQp out;
  out.gid = own_gid(id);
  out.psn = random_psn();
  if (id.pub.qp != nullptr) {
    out.number = id.pub.qp->qp_num & k24Bits;
    out.shared_queue = id.pub.qp->srq != nullptr;
  } else if (params != nullptr) {
    out.number = params->qp_num & k24Bits;
    out.shared_queue = params->srq != 0;
  }
  if (params != nullptr) {
    out.retry_count = std::min(params->retry_count, kRetriesMax);
    out.rnr_retry = std::min(params->rnr_retry_count, kRetriesMax);
  }
  const os::MutexLock lock(state().mutex);
  // Programs ask for attributes before they accept (rdma_init_qp_attr): the PSN stays.
  if (id.mine) out.psn = id.mine->psn;
  id.mine = out;
  id.asks = !id.peer.has_value();
  return out;
}

void know_peer(Id& id, const CarriedQp& peer) {
  id.peer = peer;
  std::copy(peer.gid.begin(), peer.gid.end(), id.pub.route.addr.addr.ibaddr.dgid.raw);
  if (id.mine) return;
  id.mine.emplace();
  id.mine->gid = own_gid(id);
  id.mine->psn = random_psn();
}

void agree(Id& id, std::uint16_t served, std::uint16_t asked) {
  const auto engine = weft_ibv_engine_of(id.pub.verbs);
  if (engine == nullptr) return;
  const auto capped = [](std::uint16_t value, std::uint16_t most) {
    return static_cast<std::uint8_t>(std::min<unsigned>({value, most, 255}));
  };
  id.reads_served = capped(served, engine->config().ird);
  id.reads_asked = capped(asked, engine->config().ord);
}

int make_ready(Id& id, WiringTurn turn) {
  if (id.pub.qp == nullptr) return 0;
  if (const auto qp = qp_of(id)) qp->turn.store(turn);
  constexpr std::array kMoves{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
  if (std::exchange(id.moved, id.pub.qp) != id.pub.qp) id.moves = 0;
  for (; id.moves < kMoves.size(); ++id.moves) {
    if (const int error = move_qp(id, kMoves[id.moves]); error != 0) return error;
  }
  return 0;
}

void take_response(Event& event) {
  const std::shared_ptr<Id> id = event.owner;
  {
    const os::MutexLock lock(state().mutex);
    if (!id->alive || !event.raw.carried) return;
    know_peer(*id, *event.raw.carried);
  }
  agree(*id, event.raw.ird, event.raw.ord);
  if (id->pub.qp == nullptr) return;
  int error = make_ready(*id, WiringTurn::kMine);
  if (error == 0) error = errno_of(event.raw.connection->establish());
  event.shown_as = error == 0 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_ERROR;
  event.failed = -error;
}

void end_carried_qp(const rdma_cm_id* handle) {
  ibv_qp* qp = nullptr;
  {
    const os::MutexLock lock(state().mutex);
    const std::shared_ptr<Id> id = live_id(handle);
    if (id == nullptr || !id->mine) return;
    const bool connected = id->state == IdState::kConnected || id->state == IdState::kAccepting ||
                           id->state == IdState::kDown;
    if (!connected) return;
    qp = id->pub.qp;
  }
  if (qp == nullptr) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  static_cast<void>(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

int fill_attributes(const Id& id, ibv_qp_attr& attr, int& mask) {
  switch (attr.qp_state) {
    case IBV_QPS_INIT: fill_to_init(id, attr, mask); return 0;
    case IBV_QPS_RTR:
      if (!id.peer) return EINVAL;
      fill_to_rtr(id, attr, mask);
      return 0;
    case IBV_QPS_RTS:
      if (!id.peer || !id.mine) return EINVAL;
      fill_to_rts(id, attr, mask);
      return 0;
    default: return EINVAL;
  }
}

}  // namespace weft::rdmacm
