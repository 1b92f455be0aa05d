// The objects behind the handles that programs hold: each begins with the public struct of
// <infiniband/verbs.h> and owns its engine object.
//
// Ownership: a handle owns its object until its destroy call. `pins` counts the calls that are in
// the object now (registry.h); `users` counts the objects that depend on it (users.h): the engine
// does not know, since it may keep a QP a little longer (an orderly close) than its handle lives.
#pragma once

#include <infiniband/verbs.h>
#include <unistd.h>
#include <weft/device_memory.h>
#include <weft/weft.h>
#include <weft/wiring.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ibverbs/ibv_event_queue.h"
#include "ibverbs/users.h"
#include "ibverbs/windows.h"
#include "os/fd.h"
#include "os/lock.h"

// The header renames these for callers; here they are defined.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace weft::check {
class Follower;
}

namespace weft::ibverbs {

enum class Kind : std::uint8_t {
  kContext,
  kPd,
  kThreadDomain,
  kMr,
  kMw,
  kChannel,
  kCq,
  kQp,
  kSrq,
  kDm,
  kAh
};

// The asynchronous events of one object: how many programs have fetched and acknowledged. Points
// into its public struct.
struct AsyncTarget {
  // Set when the object's end begins: no event is queued from then on.
  std::atomic<bool> closed{false};
  std::uint32_t delivered = 0;         // guarded by *mutex
  std::uint32_t* completed = nullptr;  // guarded by *mutex
  pthread_mutex_t* mutex = nullptr;
  pthread_cond_t* cond = nullptr;
};

// A queue that may have been promised to one thread at a time.
struct OneThread {
  bool promised = false;
  std::atomic<const void*> inside{nullptr};  // names it, for `weft run --check`
};

struct QueuedEvent {
  ibv_async_event event{};
  std::shared_ptr<AsyncTarget> target;  // null for events of the device
};
using AsyncQueue = EventQueue<QueuedEvent>;

struct Context {
  static constexpr Kind kKind = Kind::kContext;

  std::shared_ptr<Device> engine;
  verbs_context verbs{};  // programs hold &verbs.context
  std::atomic<std::uint32_t> pins{0};

  [[nodiscard]] ibv_context* handle() { return &verbs.context; }

  // The queue behind async_fd; null once the context is closed (children may live longer).
  [[nodiscard]] std::shared_ptr<AsyncQueue> async() {
    const os::MutexLock lock(async_mutex);
    return async_queue;
  }
  os::Mutex async_mutex;
  std::shared_ptr<AsyncQueue> async_queue WEFT_GUARDED_BY(async_mutex);
  os::Fd command;  // what cmd_fd names

  // The owner of what this context allocates with ibv_alloc_dm; made at first use.
  os::Mutex memory_mutex;
  std::shared_ptr<DeviceMemoryOwner> memory WEFT_GUARDED_BY(memory_mutex);
};
using ContextPtr = std::shared_ptr<Context>;

struct ThreadDomain {
  static constexpr Kind kKind = Kind::kThreadDomain;

  ibv_td pub{};
  std::atomic<std::uint32_t> pins{0};
  ContextPtr context;
  Users users;  // parent domains
};

struct Pd {
  static constexpr Kind kKind = Kind::kPd;

  ibv_pd pub{};
  std::atomic<std::uint32_t> pins{0};
  ContextPtr context;
  std::shared_ptr<ProtectionDomain> engine;
  Using<Pd> parent;            // of a parent domain: the domain it stands for
  Using<ThreadDomain> thread;  // of a parent domain: what it was made with
  Users users;                 // MRs, windows, QPs, SRQs and parent domains
};

struct Mr {
  static constexpr Kind kKind = Kind::kMr;

  ibv_mr pub{};
  std::atomic<std::uint32_t> pins{0};
  os::Mutex changing;  // one ibv_rereg_mr at a time; guards what that changes
  Using<Pd> pd;
  std::shared_ptr<MemoryRegion> engine;
  bool of_device_memory = false;  // programs don't get to see its address
};

struct Dm {
  static constexpr Kind kKind = Kind::kDm;

  ibv_dm pub{};
  std::atomic<std::uint32_t> pins{0};
  ContextPtr context;
  DeviceMemoryHandle handle = 0;
};

struct Mw {
  static constexpr Kind kKind = Kind::kMw;

  ibv_mw pub{};
  std::atomic<std::uint32_t> pins{0};
  Using<Pd> pd;
  std::shared_ptr<MemoryWindow> engine;
};

struct Channel {
  static constexpr Kind kKind = Kind::kChannel;

  ibv_comp_channel pub{};
  std::atomic<std::uint32_t> pins{0};
  ContextPtr context;
  Users users;                               // CQs; pub.refcnt says the same to programs
  std::atomic<std::uint32_t> events_due{0};  // CQs with event_due
  std::shared_ptr<CompletionChannel> engine;
};

struct Cq {
  static constexpr Kind kKind = Kind::kCq;

  ibv_cq_ex pub{};  // also the ibv_cq
  std::atomic<std::uint32_t> pins{0};
  ContextPtr context;
  std::shared_ptr<CompletionQueue> engine;
  std::shared_ptr<CompletionQueue> delivers_to;  // engine, or what is behind a shaken one
  Using<Channel> channel;
  Users users;                               // QPs; one that uses it twice counts twice
  std::atomic<std::uint32_t> events_got{0};  // by ibv_get_cq_event
  AsyncTarget async;

  // Guards against two threads in start_poll..end_poll of one CQ, unless the program promised that
  // there is only one. Not a lock_guard: it is held between calls.
  os::Mutex polling;
  OneThread one_thread;
  os::Mutex observing;     // completions are observed in the order in which they are polled
  WorkCompletion current;  // what the read_ functions of the extended CQ look at
  // For `weft run --check`: the depth that the program asked for; that there were completions when
  // it was armed, and nobody has polled since; that it was armed, and nobody has taken an event
  // since; that it was armed again when there was one, so another may come; who polled last.
  std::atomic<std::uint32_t> asked_depth{0};
  std::atomic<bool> armed_late{false};
  std::atomic<bool> event_due{false};
  std::atomic<bool> armed_again{false};
  std::atomic<const void*> poller{nullptr};
};

// One request of the ibv_wr_ builder. Its memory lists are places in the builder's arenas, since
// those may move while the batch grows.
struct BuiltRequest {
  SendWr wr;
  std::size_t first_sge = 0;
  std::size_t sges = 0;
  std::size_t first_byte = 0;  // of inline data
  std::size_t bytes = 0;
  bool is_inline = false;
  BindParts bind;
  DatagramPeer peer;
  bool has_peer = false;
};

struct WrBuilder {
  os::Mutex open;  // held from wr_start to wr_complete or wr_abort
  std::vector<BuiltRequest> requests;
  BuiltRequest without_place;  // there was no memory for it; never posted
  std::vector<Sge> sges;
  std::vector<std::uint8_t> bytes;
  int error = 0;  // the first mistake; wr_complete returns it and posts nothing
};

struct Srq {
  static constexpr Kind kKind = Kind::kSrq;

  ibv_srq pub{};
  std::atomic<std::uint32_t> pins{0};
  ContextPtr context;
  Using<Pd> pd;
  std::shared_ptr<SharedReceiveQueue> engine;
  std::shared_ptr<SharedReceiveQueue> takes_from;  // engine, or what is behind a shaken one
  Users users;                                     // QPs
  OneThread one_thread;
  AsyncTarget async;
  std::shared_ptr<check::Follower> follower;  // an observer's; null: none
};

// Where datagrams go: plain data, read by posts without a look at the registry.
struct Ah {
  static constexpr Kind kKind = Kind::kAh;

  ibv_ah pub{};
  std::atomic<std::uint32_t> pins{0};
  Using<Pd> pd;
  Gid gid{};
  OwnGid own;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;

  [[nodiscard]] DatagramPeer to(std::uint32_t number, std::uint32_t key) const {
    return {gid, number, key, traffic_class, hop_limit, own};
  }
};

struct Qp {
  static constexpr Kind kKind = Kind::kQp;
  static constexpr std::size_t kFutureOps = 16;

  ibv_qp_ex pub{};  // also the ibv_qp
  // Newer headers know more operations behind wr_atomic_write: all of them fail.
  void (*future_ops[kFutureOps])(ibv_qp_ex*) = {};

  std::atomic<std::uint32_t> pins{0};
  ContextPtr context;
  std::shared_ptr<QueuePair> engine;
  std::shared_ptr<QueuePair> posts_to;        // engine, or what shakes it (shaken.h)
  std::shared_ptr<check::Follower> follower;  // an observer's; null: none
  Using<Pd> pd;
  Using<Cq> send_cq;
  Using<Cq> recv_cq;
  Using<Srq> srq;
  std::uint64_t send_ops = 0;  // nonzero: made for the ibv_wr_ builder
  std::uint32_t asked_send_depth = 0;
  ibv_qp_cap granted{};  // what the program was told
  bool signal_all = false;
  OneThread one_sends, one_receives;
  std::atomic<unsigned> remote_access{0};  // IBV_ACCESS_REMOTE_*
  AsyncTarget async;
  // rdma_disconnect was called: the connection is draining and must not be cut short when this QP
  // is destroyed. Written by librdmacm.
  std::atomic<bool> closing{false};
  // Wired by hand (ibv_qp_wired.cc): what ibv_modify_qp was told, for ibv_query_qp.
  os::Mutex wiring;
  ibv_qp_attr wired WEFT_GUARDED_BY(wiring){};
  // rdma_cm connects it, and knows which end is to begin. Written by librdmacm.
  std::atomic<WiringTurn> turn{WiringTurn::kByNumber};
  WrBuilder builder;
};

// From the public handle to its object. REQUIRES: the handle is one of ours and alive.
inline Context* context_of(ibv_context* handle) {
  verbs_context* verbs = verbs_get_ctx(handle);
  // `priv` belongs to the library that made the context; in ours it points to the object.
  return reinterpret_cast<Context*>(verbs->priv);
}
inline Cq* cq_of(ibv_cq* handle) { return reinterpret_cast<Cq*>(handle); }
inline Cq* cq_of(ibv_cq_ex* handle) { return reinterpret_cast<Cq*>(handle); }
inline Qp* qp_of(ibv_qp* handle) { return reinterpret_cast<Qp*>(handle); }
inline Qp* qp_of(ibv_qp_ex* handle) { return reinterpret_cast<Qp*>(handle); }
inline Srq* srq_of(ibv_srq* handle) { return reinterpret_cast<Srq*>(handle); }
inline Ah* ah_of(ibv_ah* handle) { return reinterpret_cast<Ah*>(handle); }
inline Mw* mw_of(ibv_mw* handle) { return reinterpret_cast<Mw*>(handle); }

inline ibv_pd* handle_of(Pd& pd) { return &pd.pub; }
inline ibv_mr* handle_of(Mr& mr) { return &mr.pub; }
inline ibv_dm* handle_of(Dm& dm) { return &dm.pub; }
inline ibv_ah* handle_of(Ah& ah) { return &ah.pub; }
inline ibv_mw* handle_of(Mw& mw) { return &mw.pub; }
inline ibv_td* handle_of(ThreadDomain& domain) { return &domain.pub; }
inline ibv_comp_channel* handle_of(Channel& channel) { return &channel.pub; }
inline ibv_cq* handle_of(Cq& cq) { return reinterpret_cast<ibv_cq*>(&cq.pub); }
inline ibv_qp* handle_of(Qp& qp) { return &qp.pub.qp_base; }
inline ibv_srq* handle_of(Srq& srq) { return &srq.pub; }

}  // namespace weft::ibverbs
