#include "ibverbs/observed.h"

#include <poll.h>

#include <array>

#include "ibverbs/completion.h"
#include "ibverbs/local_keys.h"
#include "os/cancel.h"
#include "os/host_text.h"
#include "shake/undefined.h"

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

// `weft run --faults` lets a completion fail: the queue pair is in the error state then, as with an
// adapter.
void inject(const check::Polled& completion, ibv_wc_status& status) {
  if (observer == nullptr) return;
  if (const int other = observer->inject(completion); other != 0)
    status = static_cast<ibv_wc_status>(other);
}

void tell(std::uint32_t qp, std::uint64_t wr_id, ibv_wc_status status, bool receive) {
  if (observer == nullptr) return;
  observer->completed({qp, wr_id, ibv_wc_status_str(status), status == IBV_WC_SUCCESS,
                       status == IBV_WC_WR_FLUSH_ERR, receive});
}

// As it is told to the program.
void tell_completion(const WorkCompletion& one, ibv_wc_status& status) {
  const bool receive = shake::was_receive(one);
  inject({one.qp_num, one.wr_id, receive, status, one.byte_len}, status);
  tell(one.qp_num, one.wr_id, status, receive);
  if (observer != nullptr && one.status == WcStatus::kSuccess &&
      has(one.flags, WcFlags::kWithInvalidate))
    observer->invalidated(one.invalidated_rkey, true);
}

int observed_poll_cq(ibv_cq* handle, int count, ibv_wc* out) {
  observe_heir(handle, "ibv_poll_cq");
  const InCall in("ibv_poll_cq");
  const Alone promised(cq_of(handle)->one_thread, handle, "ibv_poll_cq");
  const ObservedPoll alone(*cq_of(handle));
  observe_poll(*cq_of(handle));
  return poll_cq_told(handle, count, out, [](const WorkCompletion& from, ibv_wc& to) {
    tell_completion(from, to.status);
  });
}

// One of its queues has made it.
bool has_event(const Channel& channel) {
  const os::NoCancel guard;
  pollfd one{channel.pub.fd, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0;
}

int observed_req_notify_cq(ibv_cq* handle, int solicited_only) {
  observe_heir(handle, "ibv_req_notify_cq");
  const InCall in("ibv_req_notify_cq");
  WEFT_MAY_FAIL(ibv_req_notify_cq, fail_number);
  if (!checked) return req_notify_cq(handle, solicited_only);
  Cq& cq = *cq_of(handle);
  // Another thread may poll just now what is counted here.
  const ObservedPoll alone(cq);
  const std::size_t before = cq.engine->queued();
  const int error = req_notify_cq(handle, solicited_only);
  if (observer == nullptr || error != 0) return error;
  // Where it was armed before, what is there has made an event, perhaps.
  if (cq.event_due.exchange(true)) {
    if (cq.channel && has_event(*cq.channel)) cq.armed_again.store(true);
    return 0;
  }
  if (cq.channel) cq.channel->events_due.fetch_add(1);
  // Others make no event then, whether they came before or come behind.
  if (before == 0 || solicited_only != 0) return 0;
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
  options.link = [to = observer, handle](const SocketAddress& peer) {
    return to->link(handle, os::host_text(peer.get(), peer.size()));
  };
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

namespace {

// Names this thread.
const void* me() {
  static thread_local const char name = 0;
  return &name;
}

}  // namespace

void enter(OneThread& what, const void* handle, const char* call) {
  if (!what.promised || !checked || observer == nullptr) return;
  const void* const other = what.inside.exchange(me());
  if (other != nullptr && other != me()) observer->entered_twice(handle, call);
}

void leave(OneThread& what) {
  if (what.promised && checked) what.inside.store(nullptr);
}

void observe_depth(Cq& cq) {
  if (!checked) return;
  if (cq.armed_late.load(std::memory_order_relaxed) ||
      cq.poller.load(std::memory_order_relaxed) != me()) {
    cq.armed_late.store(false);
    cq.poller.store(me());
    observer->polls(handle_of(cq));
  }
  const std::uint32_t asked = cq.asked_depth.load(std::memory_order_relaxed);
  const std::size_t queued = cq.engine->queued();
  if (queued > asked || cq.engine->overflowed()) observer->overflows(handle_of(cq), queued, asked);
}

// It may block for good: what the queues had when they were armed makes no event.
void observe_wait(Channel& channel) {
  if (observer != nullptr) observer->waits(handle_of(channel), channel.events_due.load());
}

void event_is_not_due(Cq& cq) {
  if (cq.event_due.exchange(false) && cq.channel) cq.channel->events_due.fetch_sub(1);
}

void observe_event(Cq& cq) {
  // Another thread may arm it just now.
  const ObservedPoll alone(cq);
  if (!cq.armed_again.exchange(false)) event_is_not_due(cq);
  if (observer != nullptr && cq.armed_late.load()) observer->took_event(handle_of(cq));
}

void observe_completion(const WorkCompletion& completion, ibv_wc_status& status) {
  const InCall in("ibv_start_poll or ibv_next_poll");
  tell_completion(completion, status);
}

void observe_operations(ibv_context_ops& ops) {
  ops.poll_cq = observed_poll_cq;
  ops.req_notify_cq = observed_req_notify_cq;
  observe_posts(ops);
}

}  // namespace weft::ibverbs
