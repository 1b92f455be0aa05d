// rdma_cm over Weft's connections: channels, ids and events, and the state that they share.
//
// Locking: one mutex, state().mutex, guards every Id and which ids are alive. It is taken by
// programs' threads and by the engine's (in Sink::post), and is never held while the engine is
// called: the engine calls back with its own locks held.
//
// Lifetime: ids and channels live from their create to their destroy call; an event lives from
// rdma_get_cm_event to rdma_ack_cm_event. Each is looked up in the maps of live ones before it is
// touched, since programs do pass stale pointers; what is found there is owned, so that an id which
// another thread destroys meanwhile stays readable until the call is over. Calls that depend on an
// id's state go through cm_operations.h.
#pragma once

#include <rdma/rdma_cma.h>
#include <weft/connection.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "ibverbs/bridge.h"
#include "ibverbs/errors.h"
#include "ibverbs/ibv_event_queue.h"
#include "os/lock.h"

namespace weft::rdmacm {

using ibverbs::errno_of;
using ibverbs::fail_minus;
using ibverbs::fail_null;
using ibverbs::or_minus;
using ibverbs::or_null;

enum class IdState : std::uint8_t {
  kIdle,
  kBusy,   // a call that binds, resolves or begins to listen is at work
  kBound,  // has a local address
  kListening,
  kAddrResolved,
  kRouteResolved,
  kConnecting,  // rdma_connect was called; no answer yet
  kRequested,   // child of a listener: waits for rdma_accept or rdma_reject
  kAccepting,   // rdma_accept was called
  kConnected,
  kDisconnecting,  // rdma_disconnect was called; the end is not reported yet
  kDown,           // over, or never came to be
};

struct Id;

struct Event;
using EventPtr = std::unique_ptr<Event>;

struct Channel {
  rdma_event_channel pub{};  // first
  ibverbs::EventQueue<EventPtr> queue;
  ~Channel();
};

// The parameters that rdma_create_ep remembers for later.
struct EndpointDefaults {
  std::optional<ibv_qp_init_attr> qp_attr;  // of the QPs that rdma_get_request makes
  ibv_pd* pd = nullptr;
  std::vector<std::uint8_t> connect_data;  // ai_connect: private data without a conn_param
};

struct Id {
  rdma_cm_id pub{};  // first

  IdState state = IdState::kIdle;
  bool alive = false;  // its handle is known
  std::shared_ptr<Channel> channel;
  bool sync = false;  // the channel is the id's own, and calls wait for their event
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Listener> listener;
  bool reuse_address = false;
  bool v6_only = false;
  std::optional<std::uint8_t> traffic_class;  // RDMA_OPTION_ID_TOS
  std::uint8_t initiator_depth = 0;           // of the request: what accept takes by default
  std::uint8_t responder_resources = 0;
  // For a RoCE-like device, whose connections carry queue pairs (carried.h).
  bool asks = false;  // it called rdma_connect
  std::optional<CarriedQp> mine, peer;
  std::uint8_t reads_served = 0, reads_asked = 0;  // as both ends have agreed
  // The queue pair that make_ready() has moved, and how far: a call that failed may be made again.
  const ibv_qp* moved = nullptr;
  std::size_t moves = 0;
  std::optional<std::uint8_t> ack_timeout;  // RDMA_OPTION_ID_ACK_TIMEOUT
  std::uint32_t events_delivered = 0;
  std::uint32_t events_acked = 0;
  // The QP given by number, when id->qp is null.
  std::uint32_t external_qp = 0;
  EndpointDefaults endpoint;
  // A node for State::lingering, so that to destroy the id needs no memory.
  std::list<std::shared_ptr<Connection>> lingers{1};
};

struct Event {
  rdma_cm_event pub{};        // what programs hold; first
  std::shared_ptr<Id> owner;  // whose event it is: of a request, the listener's
  // The engine's event, until it is fetched; private data after that too.
  ConnectionEvent raw;
  bool is_raw = false;
  std::shared_ptr<Id> child;  // of a request, until it is fetched
  // The type and (if not 0) the status that the program sees, where they differ from the engine's.
  std::optional<rdma_cm_event_type> shown_as;
  int failed = 0;

  // A node for State::events: to fetch it needs no memory.
  Event() { listed.insert(&pub); }
  std::set<const void*> listed;
};

struct State {
  os::Mutex mutex;
  os::Condition acked;
  std::unordered_map<const void*, std::shared_ptr<Id>> ids WEFT_GUARDED_BY(mutex);
  std::unordered_map<const void*, std::shared_ptr<Channel>> channels WEFT_GUARDED_BY(mutex);
  std::set<const void*> events WEFT_GUARDED_BY(mutex);  // fetched, not yet acknowledged
  // Connections that are closing in good order after their id was destroyed.
  std::list<std::shared_ptr<Connection>> lingering WEFT_GUARDED_BY(mutex);
  // Events that the engine's threads may not release themselves; emptied by
  // release_dropped().
  std::vector<ConnectionEvent> dropped WEFT_GUARDED_BY(mutex);
  std::list<std::shared_ptr<Connection>> done WEFT_GUARDED_BY(mutex);
};

[[nodiscard]] State& state();

// Lets go of what Sink::post() could not. Without the mutex.
void release_dropped();

// The live object behind a pointer from a program, or null.
[[nodiscard]] std::shared_ptr<Id> live_id(const rdma_cm_id* handle) WEFT_REQUIRES(state().mutex);
// The same, for calls that do not depend on its state. Without the mutex.
[[nodiscard]] std::shared_ptr<Id> find_id(const rdma_cm_id* handle);
[[nodiscard]] std::shared_ptr<Channel> live_channel(rdma_event_channel* handle)
    WEFT_REQUIRES(state().mutex);
// One that nobody knows yet.
[[nodiscard]] std::shared_ptr<Id> make_id();
// Makes an id known; its handle may be given out from now on.
void enter(std::shared_ptr<Id> id) WEFT_REQUIRES(state().mutex);

// The QP that `id` connects: id->qp or the external one. Empty when it has none.
[[nodiscard]] ibverbs::Pin<ibverbs::Qp> qp_of(const Id& id);

// The engine of rdma_cm's context. Null with errno.
[[nodiscard]] std::shared_ptr<Device> device();

// Where the engine delivers: one for the process, since ids move between channels.
[[nodiscard]] std::shared_ptr<EventChannel> sink();

// Queues an event of the owner on its channel.
void queue_event(const std::shared_ptr<Id>& owner, EventPtr event) WEFT_REQUIRES(state().mutex);

// The same for one that says all by its type (rdma_cm_event_type).
void queue_plain(const std::shared_ptr<Id>& owner, int type) WEFT_REQUIRES(state().mutex);

// A channel that is known by its handle. Null with errno.
[[nodiscard]] std::shared_ptr<Channel> make_channel();

// Makes the handle of a channel unknown again, unless it is released.
struct ForgetChannel {
  void operator()(Channel* channel) const {
    const os::MutexLock lock(state().mutex);
    state().channels.erase(&channel->pub);
  }
};
using UnkeptChannel = std::unique_ptr<Channel, ForgetChannel>;

// For a synchronous id: waits for the event of the operation that was just begun, keeps it in
// id->event, and turns a bad status into errno. For others: 0 at once.
int complete(Id& id);

// As complete(), for an end that may have been reported and taken already: then 0 at once.
int complete_if_queued(Id& id);

// A listener that is bound to `local`, for `id` but not yet its own.   errno, and null
int make_listener(const Id& id, const SocketAddress& local, std::shared_ptr<Listener>& out);
// The same, with a port of its own on every address.
int make_listener_anywhere(const Id& id, std::shared_ptr<Listener>& out);
// Gives `listener` to the id, unless that was destroyed meanwhile.
void adopt(Id& id, std::shared_ptr<Listener> listener);
// Gives the port of a bound id back, so that its connection can have it.
void release_port(Id& id);

// Names the device that has this address of the machine: verbs, pd, port_num and GIDs of the id.
// 0, or an errno; ENODEV: none has it
int attach_device(Id& id, const SocketAddress& own);

}  // namespace weft::rdmacm
