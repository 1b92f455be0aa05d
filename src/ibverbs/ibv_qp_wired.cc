// ibv_modify_qp and ibv_query_qp of queue pairs that programs wire by hand, as on a RoCE device.
//
// The rules are the kernel's (ibv_qp_rules.h).

#include <weft/limits.h>

#include <algorithm>
#include <cerrno>

#include "ibverbs/access.h"
#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/ibv_qp.h"
#include "ibverbs/ibv_qp_rules.h"
#include "os/lock.h"

namespace weft::ibverbs {
namespace {

constexpr std::uint8_t kFiveBits = 31;
constexpr std::uint8_t kThreeBits = 7;
constexpr std::uint32_t kPsnMask = 0xff'ffff;

bool address_is_good(const ibv_ah_attr& ah) { return ah.is_global != 0 && ah.port_num == kPort; }

// Each value that `mask` names is one that a RoCE device takes.
bool values_are_good(const ibv_qp_attr& a, int mask) {
  const auto named = [mask](int bit) { return (mask & bit) != 0; };
  if (named(IBV_QP_ACCESS_FLAGS) && !is_access(a.qp_access_flags)) return false;
  if (named(IBV_QP_PORT) && a.port_num != kPort) return false;
  if (named(IBV_QP_PKEY_INDEX) && a.pkey_index != 0) return false;
  if (named(IBV_QP_AV) && !address_is_good(a.ah_attr)) return false;
  if (named(IBV_QP_PATH_MTU) && (a.path_mtu < IBV_MTU_256 || a.path_mtu > IBV_MTU_4096)) {
    return false;
  }
  if (named(IBV_QP_MAX_QP_RD_ATOMIC) && a.max_rd_atomic > limits::kOrd) return false;
  if (named(IBV_QP_MAX_DEST_RD_ATOMIC) && a.max_dest_rd_atomic > limits::kIrd) return false;
  if (named(IBV_QP_MIN_RNR_TIMER) && a.min_rnr_timer > kFiveBits) return false;
  if (named(IBV_QP_TIMEOUT) && a.timeout > kFiveBits) return false;
  if (named(IBV_QP_RETRY_CNT) && a.retry_cnt > kThreeBits) return false;
  if (named(IBV_QP_ALT_PATH) && (a.alt_port_num != kPort || a.alt_timeout > kFiveBits)) {
    return false;
  }
  return !named(IBV_QP_RNR_RETRY) || a.rnr_retry <= kThreeBits;
}

// An unreliable queue pair is not given some attributes; their fields in `attr` mean nothing.
WiringToReceive receiver_of(const ibv_qp_attr& attr, int mask, const OwnGid& own, WiringTurn turn) {
  WiringToReceive out;
  out.own = own;
  out.turn = turn;
  std::copy_n(attr.ah_attr.grh.dgid.raw, out.peer_gid.size(), out.peer_gid.begin());
  out.peer_number = attr.dest_qp_num;
  out.psn = attr.rq_psn & kPsnMask;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) out.reads_served = attr.max_dest_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) out.min_rnr_timer = attr.min_rnr_timer;
  return out;
}

WiringToSend sender_of(const ibv_qp_attr& attr, int mask) {
  WiringToSend out;
  out.psn = attr.sq_psn & kPsnMask;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) out.reads_asked = attr.max_rd_atomic;
  if ((mask & IBV_QP_TIMEOUT) != 0) out.timeout = attr.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) out.retry_count = attr.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) out.rnr_retry = attr.rnr_retry;
  return out;
}

Status move(Qp& qp, ibv_qp_state to, const ibv_qp_attr& attr, int mask, const OwnGid& own) {
  QueuePair& engine = *qp.engine;
  const bool datagrams = engine.type() == QpType::kUd;
  switch (to) {
    case IBV_QPS_RESET: return engine.modify(QpState::kReset);
    case IBV_QPS_INIT: return engine.modify(QpState::kInit);
    case IBV_QPS_RTR:
      if (datagrams) return engine.modify(QpState::kRtr);
      return engine.wire(receiver_of(attr, mask, own, qp.turn.load()));
    case IBV_QPS_RTS:
      if (engine.state() == QpState::kRtr && !datagrams)
        return engine.start_sending(sender_of(attr, mask));
      return engine.modify(QpState::kRts);
    case IBV_QPS_SQD: return engine.modify(QpState::kSqd);
    default: return engine.modify(QpState::kError);
  }
}

// Keeps what was told, for ibv_query_qp.
void remember(Qp& qp, const ibv_qp_attr& a, int mask) WEFT_REQUIRES(qp.wiring) {
  ibv_qp_attr& kept = qp.wired;
  const auto keep = [&](int bit, auto ibv_qp_attr::*field) {
    if ((mask & bit) != 0) kept.*field = a.*field;
  };
  keep(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  keep(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  keep(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
  keep(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  keep(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  keep(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  keep(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  keep(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  keep(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  keep(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  keep(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  keep(IBV_QP_QKEY, &ibv_qp_attr::qkey);
}

}  // namespace

bool is_wired_by_hand(const Qp& qp) { return is_roce() && qp.engine->connection() == nullptr; }

int modify_wired(Qp& qp, const ibv_qp_attr& attr, int mask) {
  const os::MutexLock lock(qp.wiring);
  const ibv_qp_state now = qp_state(qp.engine->state());
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : now;
  if (!move_is_legal(qp.pub.qp_base.qp_type, now, to, mask) || !values_are_good(attr, mask))
    return EINVAL;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != now) return EINVAL;
  OwnGid own;
  if ((mask & IBV_QP_AV) != 0) {
    const auto& context = *qp.pub.qp_base.context;
    const int error = find_gid(context, attr.ah_attr.grh.sgid_index, own);
    if (error != 0) return error;
  }
  if ((mask & IBV_QP_STATE) != 0 && to != now) {
    if (const Status done = move(qp, to, attr, mask, own); !done) return errno_of(done.error());
    if (to == IBV_QPS_RESET) qp.wired = {};
  }
  if ((mask & IBV_QP_QKEY) != 0) {
    if (const Status set = qp.engine->set_datagram_key(attr.qkey); !set) {
      return errno_of(set.error());
    }
  }
  remember(qp, attr, mask);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    qp.remote_access = attr.qp_access_flags;
    qp.engine->set_remote_access(qp_access(attr.qp_access_flags));
  }
  if ((mask & IBV_QP_STATE) != 0) qp.pub.qp_base.state = qp_state(qp.engine->state());
  return 0;
}

void fill_wired(Qp& qp, ibv_qp_attr& out) {
  if (!is_roce() || qp.engine->connection() != nullptr) return;
  const os::MutexLock lock(qp.wiring);
  const ibv_qp_attr kept = qp.wired;
  out.ah_attr = kept.ah_attr;
  if (kept.path_mtu != 0) out.path_mtu = kept.path_mtu;
  out.dest_qp_num = kept.dest_qp_num;
  out.rq_psn = kept.rq_psn & kPsnMask;
  out.sq_psn = kept.sq_psn & kPsnMask;
  out.max_rd_atomic = kept.max_rd_atomic;
  out.max_dest_rd_atomic = kept.max_dest_rd_atomic;
  out.min_rnr_timer = kept.min_rnr_timer;
  out.timeout = kept.timeout;
  out.retry_cnt = kept.retry_cnt;
  out.rnr_retry = kept.rnr_retry;
  out.qkey = kept.qkey;
}

}  // namespace weft::ibverbs
