// The events of a program's calls: the only thing between the drop-in libraries and the rules
// of `weft run --check`. Where it is off, their pointer is null and they make no call here.
//
// Any thread. Handles are those of the program. With rules or faults an object's handle is not used
// again: the libraries keep what is destroyed.
#pragma once

#include <weft/link.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft {
struct Step;
}

namespace weft::check {

// The kind of an object, for its reader and for the rules.
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
  kAh,
  kCmId,
  kCmChannel
};

class Follower;

struct Made {
  const void* handle = nullptr;
  Kind kind{};
  Follower* follower = nullptr;          // of a queue pair or a shared receive queue
  std::array<const void*, 4> parents{};  // what it keeps from being destroyed; null: none
  std::uint32_t number = 0;              // of a queue pair
  std::uint32_t depth = 0;               // of a completion queue, as it was asked for
  bool is_datagram = false;              // a queue pair of datagrams
  // Those of a queue pair: as the program asked for it.
  std::uint32_t send_depth = 0;
  std::uint32_t send_sges = ~0U;
  std::uint32_t inline_bytes = ~0U;
  std::uint32_t receive_depth = ~0U;  // none where it has a shared receive queue
  std::uint32_t receive_sges = ~0U;
};

// A key of a region or of a window that is bound: the octets behind it, as the key's user
// addresses them.
struct Keyed {
  const void* object = nullptr;  // a Made
  std::uint32_t key = 0;
  std::uint64_t first = 0;
  std::uint64_t length = 0;
  unsigned rights = 0;       // IBV_ACCESS_...
  bool shifted = false;      // its user addresses them otherwise than the program
  std::uint64_t memory = 0;  // where the first is for the program; 0: unknown
};

// Memory that a request may not use: RefusedMemory of <weft/types.h>.
enum class Fault : std::uint8_t { kNone, kKey, kOwner, kRight, kWrap, kBounds };
struct Refused {
  const void* qp = nullptr;
  Fault why{};
  bool to_peer = false;
  unsigned need = 0;      // IBV_ACCESS_...; 0: to read it locally
  std::uint32_t key = 0;  // the engine's
  std::uint64_t addr = 0;
  std::uint64_t length = 0;
  std::uint32_t shown = 0;  // as the program has it; 0: the same
};

// An lkey that a program gets is that of the engine, xor this: it differs from the rkey.
inline constexpr std::uint32_t kLkeyMark = 0x00a5'0000;

// Memory of the program, and the key by which a request uses it.
struct Octets {
  std::uint64_t addr = 0;
  std::uint64_t length = 0;
  std::uint32_t lkey = 0;  // the engine's
  bool by_lkey = true;     // false: the program gave another number, an rkey perhaps
  friend bool operator==(const Octets&, const Octets&) = default;
};

// Memory of this side that the peer of a queue pair uses: PeerAccess of <weft/types.h>.
struct Accessed {
  const void* qp = nullptr;
  unsigned how = 0;  // one of IBV_ACCESS_REMOTE_...
  Octets memory;
  bool begins = false, ends = false;
};

// A request of a send queue.
struct Posted {
  static constexpr std::uint8_t kNoOp = 255;

  const void* qp = nullptr;
  Follower* follower = nullptr;  // of this queue pair
  std::uint64_t wr_id = 0;
  const char* opcode = "";
  std::uint8_t op = kNoOp;  // SendOp of <weft/types.h>
  bool signaled = false;
  std::uint64_t remote_addr = 0;  // with a key, for those that have one
  std::uint32_t rkey = 0;
  bool has_remote = false;
  bool rkey_is_lkey = false;       // of this process, or was
  bool sinks_need_remote = false;  // an RDMA Read of iWARP
  std::uint64_t bytes = 0;
  // The memory that it reads, unless it is inline; and that it writes to. For rules alone.
  std::vector<Octets> sources, sinks;
  std::size_t sges = 0;
  bool is_inline = false;
};

struct PostedReceive {
  const void* queue = nullptr;  // a queue pair, or a shared receive queue
  std::uint64_t wr_id = 0;
  std::vector<Octets> sinks;  // for rules alone
  std::size_t sges = 0;
  Follower* follower = nullptr;  // of this queue
  std::uint64_t octets = 0;      // the room that it has
};

// As it is polled.
struct Polled {
  std::uint32_t qp_number = 0;
  std::uint64_t wr_id = 0;
  bool receive = false;
  int status = 0;            // ibv_wc_status
  std::uint32_t octets = 0;  // of a receive
};

struct Completed {
  std::uint32_t qp_number = 0;
  std::uint64_t wr_id = 0;
  const char* status = "";  // as ibv_wc_status_str names it
  bool success = false;
  bool flushed = false;
  bool receive = false;
};

// An event of rdma_cm in place of one that says success, or behind one.
struct InjectedCm {
  bool is_one = false;
  int event = 0;  // rdma_cm_event_type
  int error = 0;  // errno
  bool follows = false;
  std::string private_data = {};
};

// The requests that a call posts.
struct Listed {
  bool has_second = false;   // a list of several
  std::uint64_t octets = 0;  // with wants_octets()
};

// A call that has to fail.
struct Failing {
  int error = 0;        // errno; 0: it need not
  bool second = false;  // of a post: its first request goes through, and the second is refused
};

// The libraries have it of an object, and the program has not taken it.
struct Unread {
  struct Event {
    std::string name;
    const void* handle = nullptr;  // of what it is about; null: the device
  };
  std::size_t completions = 0;  // of a completion queue
  bool broken = false;          // a queue pair in the error state
  std::vector<Event> events;    // of a context: asynchronous ones that want an answer
};

// The libraries' own side: how the module has something happen that no call asks for. Any thread;
// the module holds no lock of its own meanwhile. A handle that is not alive is passed over.
struct Hands {
  // Moves a queue pair to the error state.
  void (*break_qp)(const void* qp) = nullptr;
  // Breaks its connection.
  void (*disconnect)(const void* qp) = nullptr;
  // Queues an asynchronous event (ibv_event_type) of this object; null: of the device.
  void (*raise)(int event, const void* handle) = nullptr;
  // Queues an event of rdma_cm (rdma_cm_event_type) for each id that has a device.
  void (*raise_cm)(int event) = nullptr;
  // How a queue pair (its state, its peer) or a completion queue (what was not polled) is now, for
  // a reader. Empty: there is nothing to say.
  std::string (*look)(const void* handle, Kind kind) = nullptr;
  // It may be called with a lock of the module, if it is a queue pair.
  Unread (*unread)(const void* handle, Kind kind) = nullptr;
};

// Acknowledgments that a destroy call waits for.
enum class Owed : std::uint8_t { kCqEvents, kAsyncEvents, kCmEvents };

// A message for which no receive is posted, and how that goes on: LateReceive of <weft/types.h>.
enum class Late : std::uint8_t { kBegins, kCame, kRefused, kLost, kFailed };

// Whoever wants to know of one queue pair, or of one shared receive queue: without a search for it,
// and perhaps for longer than it is alive.
class Follower {
 public:
  virtual ~Follower() = default;
  // Its steps (Step of <weft/types.h>). By any thread, with locks of the engine held.
  virtual void step(const Step& /*what*/) {}
  // As those of Observer.
  virtual void posting(const Posted& /*request*/) {}
  virtual void posting_receive() {}
  virtual void not_posted_receive() {}
};

class Observer {
 public:
  virtual ~Observer() = default;

  // This thread is in a call whose function no symbol names; null: not any more.
  virtual void in_call(const char* name) = 0;

  // A call that may fail, and that it returns now: calls nest. How it has to fail, having done
  // nothing else (`weft faults sweep`). `qp`: the queue pair that it is about, if it is about one.
  virtual Failing may_fail(const char* call, const void* qp, const Listed& list) = 0;
  // It wants Listed::octets. The same at all times.
  [[nodiscard]] virtual bool wants_octets() const = 0;
  virtual void is_over() = 0;

  virtual void made(const Made& object) = 0;
  virtual void destroyed(const void* handle) = 0;
  // The program closes a device.
  virtual void closing(const void* context, const Unread& left) = 0;
  // The object has this key from now on, and those that it had before are dead. No octets: none.
  virtual void keyed(const Keyed& key) = 0;
  // A key is invalidated, by this program or by its peer.
  virtual void invalidated(std::uint32_t key, bool by_peer) = 0;
  // A call got a handle that is not alive: was it ever?
  virtual void not_live(const void* handle) = 0;
  // In a child of fork(): a call got a handle that is not the child's. That of its parent? `call`:
  // as in_call(); null: it has a symbol.
  virtual void inherited(const void* handle, const char* call) = 0;
  // A call returns an error to the program.
  virtual void failed(int error) = 0;
  // To destroy this one was refused: others need it.
  virtual void busy(const void* handle) = 0;
  // A destroy call waits for so many acknowledgments.
  virtual void owes(const void* handle, Owed what, std::uint32_t count) = 0;

  // Before the request is posted, and that the last one of this thread was refused: 1.
  virtual void posting(const Posted& request) = 0;
  virtual void not_posted(const void* qp) = 0;
  // A batch is refused, of which posting() was not told.
  virtual void refuses_batch(const void* qp) = 0;
  // The request that is being posted is to be lost, and to end with an error: by `weft run
  // --faults`.
  virtual bool loses(const void* qp, std::uint64_t wr_id) = 0;
  // A request has completed with this status (ibv_wc_status), and has not been told to the program
  // yet. The status that it is told instead, by `weft run --faults`; 0: its own.
  virtual int inject(const Polled& completion) = 0;
  // An event of rdma_cm (rdma_cm_event_type) is fetched.
  virtual InjectedCm inject_cm(int event) = 0;
  // A queue pair has a new connection to a host (os::host_text()), on a link like that. By any
  // thread, with locks of the engine held.
  virtual LinkTrouble link(const void* qp, const std::string& peer) = 0;
  // Whether messages to new queue pairs may have to wait for their receives; and how long the next
  // one has to, as link().
  virtual bool delays_receives() = 0;
  virtual std::chrono::nanoseconds receive_late(const void* qp) = 0;
  // This thread is about to take completions from a queue, and to tell of them.
  virtual void begins_poll() = 0;
  virtual void completed(const Completed& completion) = 0;
  // The program reads a field of a completion (`call`) that is undefined: because of its status, or
  // with success because of what it is a completion of.
  virtual void reads_undefined(const void* cq, const char* call, const char* status,
                               bool success) = 0;
  // A completion queue has more than was asked for, or had.
  virtual void overflows(const void* cq, std::size_t queued, std::uint32_t asked) = 0;
  // A completion queue was armed when so many completions were there; somebody polls it, told where
  // it was armed so, or somebody else polled last; the program waits for an event of its channel,
  // for good perhaps, and so many completion queues of that are armed.
  virtual void armed(const void* cq, std::size_t queued) = 0;
  virtual void polls(const void* cq) = 0;
  // Another thread is in an object that was promised to one.
  virtual void entered_twice(const void* handle, const char* call) = 0;
  virtual void waits(const void* channel, std::size_t armed) = 0;
  // It takes an event of a completion queue that had some when it was armed, and that nobody has
  // polled since.
  virtual void took_event(const void* cq) = 0;
  // Before a receive is posted, and that it was refused.
  virtual void posting_receive(const PostedReceive& receive) = 0;
  virtual void not_posted_receive(const PostedReceive& receive) = 0;
  // By any thread, with locks of the engine held.
  virtual void late_receive(const void* qp, Late what, std::uint64_t waited_ns) = 0;
  // As late_receive().
  virtual void refused(const Refused& what) = 0;
  // As late_receive(): before the octets are there, or were read.
  virtual void accessed(const Accessed& what) = 0;
  // Before made(): of a queue pair, and of a shared receive queue. Null: nobody wants to know.
  virtual std::shared_ptr<Follower> follow() = 0;
  virtual std::shared_ptr<Follower> follow_receives() = 0;
  // The queue pair was moved to RESET: its requests are gone without a completion.
  virtual void emptied(const void* qp) = 0;
};

}  // namespace weft::check
