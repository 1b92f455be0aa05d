#include "ibverbs/observed.h"

#include <weft/limits.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ibverbs/completion.h"
#include "ibverbs/devices.h"
#include "ibverbs/local_keys.h"
#include "ibverbs/post.h"
#include "os/say.h"

namespace weft::ibverbs {

constinit std::atomic<void (*)(int event)> raise_in_rdma_cm{nullptr};

namespace {

// Those of IBV_ACCESS_... that a request needs. Access has the same numbers.
constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
static_assert(static_cast<unsigned>(Access::kLocalWrite) == IBV_ACCESS_LOCAL_WRITE);
static_assert(static_cast<unsigned>(Access::kRemoteWrite) == IBV_ACCESS_REMOTE_WRITE);
static_assert(static_cast<unsigned>(Access::kRemoteRead) == IBV_ACCESS_REMOTE_READ);
static_assert(static_cast<unsigned>(Access::kRemoteAtomic) == IBV_ACCESS_REMOTE_ATOMIC);

template <class T>
check::Made basic(T& object, std::array<const void*, 4> parents = {}) {
  check::Made made;
  made.handle = handle_of(object);
  made.kind = static_cast<check::Kind>(T::kKind);
  made.parents = parents;
  return made;
}
static_assert(static_cast<int>(check::Kind::kAh) == static_cast<int>(Kind::kAh));

const char* name_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND: return "a Send";
    case IBV_WR_SEND_WITH_IMM: return "a Send with immediate data";
    case IBV_WR_SEND_WITH_INV: return "a Send with invalidate";
    case IBV_WR_RDMA_WRITE: return "an RDMA Write";
    case IBV_WR_RDMA_WRITE_WITH_IMM: return "an RDMA Write with immediate data";
    case IBV_WR_RDMA_READ: return "an RDMA Read";
    case IBV_WR_ATOMIC_CMP_AND_SWP: return "an atomic compare and swap";
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return "an atomic fetch and add";
    case IBV_WR_LOCAL_INV: return "a local invalidation";
    case IBV_WR_BIND_MW: return "a bind";
    default: return "a request";
  }
}

const char* name_of(SendOp op) {
  switch (op) {
    case SendOp::kWrite: return "an RDMA Write";
    case SendOp::kWriteImm: return "an RDMA Write with immediate data";
    case SendOp::kRead: return "an RDMA Read";
    case SendOp::kCmpSwap: return "an atomic compare and swap";
    case SendOp::kFetchAdd: return "an atomic fetch and add";
    case SendOp::kSend: return "a Send";
    default: return "a request";
  }
}

bool is_sink(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// That of <weft/types.h>, which a request of the extended interface has.
std::uint8_t op_of(ibv_wr_opcode opcode) {
  const auto number = [](SendOp op) { return static_cast<std::uint8_t>(op); };
  switch (opcode) {
    case IBV_WR_SEND: return number(SendOp::kSend);
    case IBV_WR_SEND_WITH_IMM: return number(SendOp::kImmediate);
    case IBV_WR_SEND_WITH_INV: return number(SendOp::kSendInvalidate);
    case IBV_WR_RDMA_WRITE: return number(SendOp::kWrite);
    case IBV_WR_RDMA_WRITE_WITH_IMM: return number(SendOp::kWriteImm);
    case IBV_WR_RDMA_READ: return number(SendOp::kRead);
    case IBV_WR_ATOMIC_CMP_AND_SWP: return number(SendOp::kCmpSwap);
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return number(SendOp::kFetchAdd);
    case IBV_WR_LOCAL_INV: return number(SendOp::kLocalInvalidate);
    case IBV_WR_BIND_MW: return number(SendOp::kBindWindow);
    default: return check::Posted::kNoOp;
  }
}

// The octets behind SGEs. Only rules want them.
template <class Sges>
std::vector<check::Octets> octets_of(const Sges& sges) {
  std::vector<check::Octets> out;
  if (!checked) return out;
  for (const auto& sge : sges) {
    if (sge.length != 0)
      out.push_back({sge.addr, sge.length, engine_key(sge.lkey), is_lkey(sge.lkey)});
  }
  return out;
}

check::Posted posted(ibv_qp* handle, const ibv_send_wr& wr) {
  check::Posted out;
  out.qp = handle;
  out.follower = qp_of(handle)->follower.get();
  out.wr_id = wr.wr_id;
  out.opcode = name_of(wr.opcode);
  out.op = op_of(wr.opcode);
  out.signaled = (wr.send_flags & IBV_SEND_SIGNALED) != 0 || qp_of(handle)->signal_all;
  // One with more of them is refused, and its list is perhaps none. That of these is not used.
  const bool has_list = wr.opcode != IBV_WR_LOCAL_INV && wr.opcode != IBV_WR_BIND_MW &&
                        wr.num_sge <= static_cast<int>(limits::kSgesPerRequest);
  const int sges = has_list ? wr.num_sge : 0;
  const std::span list(wr.sg_list, static_cast<std::size_t>(std::max(sges, 0)));
  for (const ibv_sge& sge : list) out.bytes += sge.length;
  out.sges = list.size();
  out.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (is_sink(wr.opcode)) {
    out.sinks = octets_of(list);
  } else if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
    out.sources = octets_of(list);
  }
  out.sinks_need_remote = wr.opcode == IBV_WR_RDMA_READ && !is_roce();
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      out.remote_addr = wr.wr.rdma.remote_addr;
      out.rkey = wr.wr.rdma.rkey;
      out.has_remote = true;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      out.remote_addr = wr.wr.atomic.remote_addr;
      out.rkey = wr.wr.atomic.rkey;
      out.has_remote = true;
      break;
    default: break;
  }
  out.rkey_is_lkey = out.has_remote && is_lkey(out.rkey);
  return out;
}

// A context that a child of fork() has from its parent has these functions, too: there nobody
// observes.

// `weft run --faults` lets a completion fail: the queue pair is in the error state then, as with an
// adapter.
void inject(std::uint32_t qp, std::uint64_t wr_id, bool receive, ibv_wc_status& status) {
  if (observer == nullptr) return;
  if (const int other = observer->inject(qp, wr_id, receive, status); other != 0)
    status = static_cast<ibv_wc_status>(other);
}

void tell(std::uint32_t qp, std::uint64_t wr_id, ibv_wc_status status, bool receive) {
  if (observer == nullptr) return;
  observer->completed({qp, wr_id, ibv_wc_status_str(status), status == IBV_WC_SUCCESS,
                       status == IBV_WC_WR_FLUSH_ERR, receive});
}

void tell_invalidated(std::uint32_t key) {
  if (observer != nullptr) observer->invalidated(key, true);
}

int observed_poll_cq(ibv_cq* handle, int count, ibv_wc* out) {
  const InCall in("ibv_poll_cq");
  const ObservedPoll alone(*cq_of(handle));
  if (observer != nullptr) observe_depth(*cq_of(handle));
  const int got = poll_cq(handle, count, out);
  for (int i = 0; i < got; ++i) {
    inject(out[i].qp_num, out[i].wr_id, (out[i].opcode & IBV_WC_RECV) != 0, out[i].status);
    tell(out[i].qp_num, out[i].wr_id, out[i].status, (out[i].opcode & IBV_WC_RECV) != 0);
    if (out[i].status == IBV_WC_SUCCESS && (out[i].wc_flags & IBV_WC_WITH_INV) != 0)
      tell_invalidated(out[i].invalidated_rkey);
  }
  return got;
}

// With the engine's lkeys.
void translate(ibv_send_wr& wr, ibv_sge* sges) {
  const bool has_list = wr.opcode != IBV_WR_LOCAL_INV && wr.opcode != IBV_WR_BIND_MW &&
                        wr.num_sge > 0 && wr.num_sge <= static_cast<int>(limits::kSgesPerRequest);
  if (!has_list) return;
  std::copy_n(wr.sg_list, wr.num_sge, sges);
  for (int i = 0; i < wr.num_sge; ++i) sges[i].lkey = engine_key(sges[i].lkey);
  wr.sg_list = sges;
}

// True: it is to be lost.
bool tell_posting(ibv_qp* handle, const ibv_send_wr& wr) {
  if (observer == nullptr) return false;
  observer->posting(posted(handle, wr));
  if (wr.opcode == IBV_WR_LOCAL_INV) observer->invalidated(wr.invalidate_rkey, false);
  if (wr.opcode == IBV_WR_BIND_MW)
    observe_key(wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
  return observer->loses(handle, wr.wr_id);
}

void tell_refused(ibv_qp* handle) {
  if (observer != nullptr) observer->not_posted(handle);
}

// Refuses the whole list, or all but its first request.
template <class Queue, class Request>
int refuse(const MayFail& failing, Queue* queue, Request* wr, Request** bad,
           int (*post)(Queue*, Request*, Request**)) {
  Request* refused = wr;
  if (failing.second()) {
    Request first = *wr;
    first.next = nullptr;
    Request* unused = nullptr;
    if (const int error = post(queue, &first, &unused); error != 0) {
      if (bad != nullptr) *bad = wr;
      return error;
    }
    refused = wr->next;
  }
  if (bad != nullptr) *bad = refused;
  return fail_number(failing.error());
}

int tell_and_post(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post_send_told(handle, wr, bad,
                        {tell_posting, tell_refused, checked ? translate : nullptr});
}

int observed_post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad) {
  const InCall in("ibv_post_send");
  const MayFail may_fail("ibv_post_send", handle, wr != nullptr && wr->next != nullptr);
  if (may_fail.error() != 0) return refuse(may_fail, handle, wr, bad, tell_and_post);
  return tell_and_post(handle, wr, bad);
}

check::Follower* follower_of(ibv_qp* handle) { return qp_of(handle)->follower.get(); }
check::Follower* follower_of(ibv_srq* handle) { return srq_of(handle)->follower.get(); }

template <class Queue>
void tell_receives(Queue* queue, const ibv_recv_wr* wr,
                   void (check::Observer::*what)(const check::PostedReceive&)) {
  for (; observer != nullptr && wr != nullptr; wr = wr->next) {
    const bool fits = wr->num_sge >= 0 && wr->num_sge <= static_cast<int>(limits::kSgesPerRequest);
    const std::size_t count = fits ? static_cast<std::size_t>(wr->num_sge) : 0;
    (observer->*what)({queue, wr->wr_id, octets_of(std::span(wr->sg_list, count)),
                       static_cast<std::size_t>(std::max(wr->num_sge, 0)), follower_of(queue)});
  }
}

// One by one, with the engine's keys.
template <class Queue>
int post_translated(Queue* queue, ibv_recv_wr* wr, ibv_recv_wr** bad,
                    int (*post)(Queue*, ibv_recv_wr*, ibv_recv_wr**)) {
  if (!checked) return post(queue, wr, bad);
  std::array<ibv_sge, limits::kSgesPerRequest> sges;
  for (; wr != nullptr; wr = wr->next) {
    ibv_recv_wr one = *wr;
    one.next = nullptr;
    if (one.num_sge > 0 && one.num_sge <= static_cast<int>(sges.size())) {
      std::copy_n(one.sg_list, one.num_sge, sges.data());
      for (ibv_sge& sge : std::span(sges).first(static_cast<std::size_t>(one.num_sge)))
        sge.lkey = engine_key(sge.lkey);
      one.sg_list = sges.data();
    }
    ibv_recv_wr* unused = nullptr;
    const int error = post(queue, &one, &unused);
    if (error == 0) continue;
    if (bad != nullptr) *bad = wr;
    return error;
  }
  return 0;
}

// They are told of before, for a receive may be polled before the call is back; and those that were
// refused are taken back.
template <class Queue>
int post_receives_told(Queue* queue, ibv_recv_wr* wr, ibv_recv_wr** bad,
                       int (*post)(Queue*, ibv_recv_wr*, ibv_recv_wr**)) {
  tell_receives(queue, wr, &check::Observer::posting_receive);
  ibv_recv_wr* refused = nullptr;
  const int error = post_translated(queue, wr, &refused, post);
  if (error == 0) return 0;
  tell_receives(queue, refused, &check::Observer::not_posted_receive);
  if (bad != nullptr && refused != nullptr) *bad = refused;
  return error;
}

int tell_and_post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_receives_told(handle, wr, bad, post_recv);
}

int tell_and_post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_receives_told(handle, wr, bad, post_srq_recv);
}

int observed_post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const InCall in("ibv_post_recv");
  const MayFail may_fail("ibv_post_recv", handle, wr != nullptr && wr->next != nullptr);
  if (may_fail.error() != 0) return refuse(may_fail, handle, wr, bad, tell_and_post_recv);
  return tell_and_post_recv(handle, wr, bad);
}

int observed_post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const InCall in("ibv_post_srq_recv");
  const MayFail may_fail("ibv_post_srq_recv", nullptr, wr != nullptr && wr->next != nullptr);
  if (may_fail.error() != 0) return refuse(may_fail, handle, wr, bad, tell_and_post_srq_recv);
  return tell_and_post_srq_recv(handle, wr, bad);
}

int observed_req_notify_cq(ibv_cq* handle, int solicited_only) {
  const InCall in("ibv_req_notify_cq");
  WEFT_MAY_FAIL(ibv_req_notify_cq, fail_number);
  if (!checked) return req_notify_cq(handle, solicited_only);
  Cq& cq = *cq_of(handle);
  // Another thread may poll just now what is counted here.
  const ObservedPoll alone(cq);
  const std::size_t before = cq.engine->queued();
  const int error = req_notify_cq(handle, solicited_only);
  if (observer == nullptr || error != 0 || before == 0) return error;
  observer->armed(handle, before);
  cq.armed_late.store(true);
  return 0;
}

}  // namespace

check::Made made_of(Context& context) {
  check::Made made;
  made.handle = context.handle();
  made.kind = check::Kind::kContext;
  return made;
}
check::Made made_of(ThreadDomain& domain) { return basic(domain); }
check::Made made_of(Channel& channel) { return basic(channel); }
check::Made made_of(Dm& dm) { return basic(dm); }
check::Made made_of(Cq& cq) {
  check::Made made = basic(cq, {cq.pub.channel});
  made.depth = cq.asked_depth.load(std::memory_order_relaxed);
  return made;
}
check::Made made_of(Srq& srq) {
  check::Made made = basic(srq, {srq.pub.pd});
  made.follower = srq.follower.get();
  return made;
}
check::Made made_of(Ah& ah) { return basic(ah, {ah.pub.pd}); }
check::Made made_of(Mw& mw) { return basic(mw, {mw.pub.pd}); }

check::Made made_of(Pd& pd) {
  return basic(pd, {pd.parent ? static_cast<const void*>(handle_of(*pd.parent)) : nullptr,
                    pd.thread ? static_cast<const void*>(handle_of(*pd.thread)) : nullptr});
}

check::Made made_of(Mr& mr) { return basic(mr, {mr.pub.pd}); }

// Its lkey and its rkey are the same number to the engine.
void observe_key(Mr& mr) {
  if (observer == nullptr) return;
  observer->keyed({handle_of(mr), mr.pub.rkey, mr.engine->iova(), mr.pub.length,
                   static_cast<unsigned>(mr.engine->access()) & kRights,
                   mr.of_device_memory ||
                       mr.engine->iova() != reinterpret_cast<std::uintptr_t>(mr.engine->addr()),
                   reinterpret_cast<std::uintptr_t>(mr.engine->addr())});
}

void observe_key(const ibv_mw* mw, std::uint32_t key, const ibv_mw_bind_info& info) {
  if (observer == nullptr) return;
  const bool zero_based = (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0;
  observer->keyed({mw, key, zero_based ? 0 : info.addr, info.length, info.mw_access_flags & kRights,
                   false, info.addr});
}

check::Made made_of(Qp& qp) {
  const ibv_qp& pub = qp.pub.qp_base;
  check::Made made = basic(qp, {pub.pd, pub.send_cq, pub.recv_cq, pub.srq});
  made.number = pub.qp_num;
  made.follower = qp.follower.get();
  made.is_datagram = pub.qp_type == IBV_QPT_UD;
  made.send_depth = qp.asked_send_depth;
  if (!qp.srq) made.receive_depth = qp.granted.max_recv_wr;
  if (!qp.srq) made.receive_sges = qp.granted.max_recv_sge;
  made.send_sges = qp.granted.max_send_sge;
  made.inline_bytes = qp.granted.max_inline_data;
  return made;
}

void observe_engine(QpOptions& options, Qp& qp) {
  const void* const handle = handle_of(qp);
  static_assert(static_cast<int>(check::Late::kFailed) == static_cast<int>(LateReceive::kFailed));
  static_assert(static_cast<int>(check::Fault::kBounds) == static_cast<int>(MemoryFault::kBounds));
  options.on_late_receive = [to = observer, handle](LateReceive what, auto waited) {
    to->late_receive(handle, static_cast<check::Late>(what),
                     static_cast<std::uint64_t>(waited.count()));
  };
  options.link = [to = observer, handle] { return to->link(handle); };
  if (observer->delays_receives())
    options.receive_late = [to = observer, handle] { return to->receive_late(handle); };
  options.on_refused_memory = [to = observer, handle](const RefusedMemory& what) {
    const std::uint32_t lkey = what.key ^ check::kLkeyMark;
    to->refused({handle, static_cast<check::Fault>(what.why), what.to_peer,
                 static_cast<unsigned>(what.need), what.key, what.addr, what.length,
                 !what.to_peer && is_lkey(lkey) ? lkey : 0});
  };
  if (checked) {
    options.on_peer_access = [to = observer, handle](const PeerAccess& what) {
      to->accessed({handle,
                    static_cast<unsigned>(what.how),
                    {reinterpret_cast<std::uintptr_t>(what.memory), what.length},
                    what.begins,
                    what.ends});
    };
  }
  qp.follower = observer->follow();
  if (qp.follower != nullptr)
    options.on_step = [to = qp.follower](const Step& what) { to->step(what); };
}

void observe_request(Qp& qp, BuiltRequest& request) {
  check::Posted out;
  out.qp = handle_of(qp);
  out.follower = qp.follower.get();
  out.wr_id = request.wr.wr_id;
  out.opcode = name_of(request.wr.op);
  out.op = static_cast<std::uint8_t>(request.wr.op);
  out.signaled = qp.signal_all || has(request.wr.flags, SendFlags::kSignaled);
  out.remote_addr = request.wr.remote_addr;
  out.rkey = request.wr.rkey;
  out.has_remote = out.rkey != 0;
  for (const Sge& sge : request.wr.sges) out.bytes += sge.length;
  out.sges = request.wr.sges.size();
  out.is_inline = request.is_inline;
  if (const SendOp op = request.wr.op;
      op == SendOp::kRead || op == SendOp::kCmpSwap || op == SendOp::kFetchAdd) {
    out.sinks = octets_of(request.wr.sges);
  } else if (!request.is_inline) {
    out.sources = octets_of(request.wr.sges);
  }
  out.sinks_need_remote = request.wr.op == SendOp::kRead && !is_roce();
  out.rkey_is_lkey = out.has_remote && is_lkey(out.rkey);
  observer->posting(out);
  if (request.wr.op == SendOp::kLocalInvalidate)
    observer->invalidated(request.wr.invalidate_rkey, false);
  if (request.wr.op == SendOp::kBindWindow) {
    observe_key(request.bind.handle, request.wr.rkey,
                {nullptr, request.wr.remote_addr, request.wr.window_length,
                 static_cast<unsigned>(request.wr.window_access)});
  }
  if (!observer->loses(out.qp, out.wr_id)) return;
  static const Sge nowhere{0, 1, kNoKey};
  request.wr.op = SendOp::kSend;
  request.wr.sges = std::span(&nowhere, 1);
  request.wr.flags = out.signaled ? SendFlags::kSignaled : SendFlags::kNone;
}

void observe_bind(Qp& qp, const ibv_mw_bind& bind) {
  check::Posted out;
  out.qp = handle_of(qp);
  out.follower = qp.follower.get();
  out.wr_id = bind.wr_id;
  out.opcode = name_of(IBV_WR_BIND_MW);
  out.op = op_of(IBV_WR_BIND_MW);
  out.signaled = (bind.send_flags & IBV_SEND_SIGNALED) != 0 || qp.signal_all;
  observer->posting(out);
}

void observe_depth(Cq& cq) {
  if (!checked) return;
  if (cq.armed_late.load(std::memory_order_relaxed)) {
    cq.armed_late.store(false);
    observer->polls(handle_of(cq));
  }
  const std::uint32_t asked = cq.asked_depth.load(std::memory_order_relaxed);
  const std::size_t queued = cq.engine->queued();
  if (queued > asked || cq.engine->overflowed()) observer->overflows(handle_of(cq), queued, asked);
}

// It may block for good: what the queues had when they were armed makes no event.
void observe_wait(ibv_comp_channel& channel) {
  if (observer != nullptr) observer->waits(&channel);
}

void observe_completion(const WorkCompletion& completion, ibv_wc_status& status) {
  const InCall in("ibv_start_poll or ibv_next_poll");
  const bool receive = (wc_opcode(completion.op) & IBV_WC_RECV) != 0;
  inject(completion.qp_num, completion.wr_id, receive, status);
  tell(completion.qp_num, completion.wr_id, status, receive);
  if (completion.status == WcStatus::kSuccess && has(completion.flags, WcFlags::kWithInvalidate))
    tell_invalidated(completion.invalidated_rkey);
}

void observe_operations(ibv_context_ops& ops) {
  ops.poll_cq = observed_poll_cq;
  ops.req_notify_cq = observed_req_notify_cq;
  ops.post_srq_recv = observed_post_srq_recv;
  ops.post_send = observed_post_send;
  ops.post_recv = observed_post_recv;
}

}  // namespace weft::ibverbs
