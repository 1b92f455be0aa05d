#include "moves.h"

#include <cstddef>
#include <cstring>
#include <optional>

#include <lwip/init.h>
#include <lwip/netif.h>
#include <lwip/pbuf.h>
#include <lwip/sys.h>
#include <lwip/tcp.h>
#include <lwip/timeouts.h>
#include <lwip_hosts.h>

#include "lwip/lwip_connection.h"
#include "rddp/endpoint.h"

namespace weft::bench {

namespace {

constexpr std::uint16_t kPort = 4791;
constexpr std::size_t kFramesMax = 64;
constexpr std::uint32_t kIdleLimitMs = 60'000;

std::uint32_t clock_ms = 1;
std::uint32_t random_state = 1;

std::uint32_t random_bits() {
  random_state ^= random_state << 13U;
  random_state ^= random_state >> 17U;
  random_state ^= random_state << 5U;
  return random_state;
}
Instant clock_now() { return Instant{std::int64_t{clock_ms} * 1'000'000}; }

std::uint8_t source[kMessageMax], target[kMessageMax];

// --- the link ---

struct Frame {
  pbuf* p = nullptr;
  int to = 0;
};
Frame frames[kFramesMax];
std::size_t frames_head = 0, frames_count = 0;
unsigned reordered_percent = 0;
netif hosts[2];
ip_addr_t addresses[2];

void enqueue(pbuf* p, int to) {
  frames[(frames_head + frames_count) % kFramesMax] = {p, to};
  ++frames_count;
}

// A copy, as an adapter's memory is: the sender keeps its pbufs.
err_t output(netif* interface, pbuf* p, const ip4_addr_t* /*to*/) {
  if (frames_count == kFramesMax) return ERR_IF;
  pbuf* copy = pbuf_alloc(PBUF_RAW, p->tot_len, PBUF_RAM);
  if (copy == nullptr) return ERR_MEM;
  pbuf_copy(copy, p);
  enqueue(copy, interface == &hosts[0] ? 1 : 0);
  return ERR_OK;
}

// The oldest frame, or now and then the one behind it.
Frame next_frame() {
  if (frames_count > 1 && reordered_percent != 0 && random_bits() % 100 < reordered_percent) {
    Frame& first = frames[frames_head];
    Frame& second = frames[(frames_head + 1) % kFramesMax];
    const Frame kept = first;
    first = second;
    second = kept;
  }
  const Frame frame = frames[frames_head];
  frames_head = (frames_head + 1) % kFramesMax;
  --frames_count;
  return frame;
}

// --- TCP, with copies ---

class TcpCopy {
 public:
  explicit TcpCopy(const Job& job) : job_(job) {}
  ~TcpCopy() {
    for (tcp_pcb* pcb : {sender_, receiver_}) {
      if (pcb == nullptr) continue;
      tcp_arg(pcb, nullptr);
      tcp_abort(pcb);
    }
    if (listener_ != nullptr) tcp_close(listener_);
  }
  TcpCopy(const TcpCopy&) = delete;
  TcpCopy& operator=(const TcpCopy&) = delete;

  bool connect() {
    tcp_pcb* pcb = tcp_new();
    if (pcb == nullptr || tcp_bind(pcb, &addresses[1], kPort) != ERR_OK) return false;
    listener_ = tcp_listen(pcb);
    sender_ = tcp_new();
    if (listener_ == nullptr || sender_ == nullptr) return false;
    tcp_arg(listener_, this);
    tcp_accept(listener_, [](void* self, tcp_pcb* accepted, err_t) {
      static_cast<TcpCopy*>(self)->accept(accepted);
      return static_cast<err_t>(ERR_OK);
    });
    tcp_arg(sender_, this);
    tcp_nagle_disable(sender_);
    tcp_sent(sender_, [](void* self, tcp_pcb*, u16_t) {
      static_cast<TcpCopy*>(self)->send();
      return static_cast<err_t>(ERR_OK);
    });
    return tcp_bind(sender_, &addresses[0], 0) == ERR_OK &&
           tcp_connect(sender_, &addresses[1], kPort,
                       [](void*, tcp_pcb*, err_t) { return static_cast<err_t>(ERR_OK); }) == ERR_OK;
  }
  [[nodiscard]] bool up() const { return receiver_ != nullptr && sender_->state == ESTABLISHED; }
  void send() {
    const std::uint64_t all = std::uint64_t{job_.size} * job_.count;
    while (sent_ < all) {
      std::uint32_t piece = tcp_sndbuf(sender_);
      if (piece > 0xffffU) piece = 0xffffU;
      if (piece > job_.size - send_at_) piece = job_.size - send_at_;
      if (piece == 0) break;
      const err_t error =
          tcp_write(sender_, source + send_at_, static_cast<u16_t>(piece), TCP_WRITE_FLAG_COPY);
      if (error != ERR_OK) break;
      sent_ += piece;
      send_at_ += piece;
      if (send_at_ == job_.size) send_at_ = 0;
    }
    tcp_output(sender_);
  }
  [[nodiscard]] bool done() const {
    return received_ == std::uint64_t{job_.size} * job_.count && sender_->unacked == nullptr;
  }
  void idle() {}

 private:
  void accept(tcp_pcb* pcb) {
    receiver_ = pcb;
    tcp_arg(pcb, this);
    tcp_recv(pcb, [](void* self, tcp_pcb* from, pbuf* p, err_t) {
      if (p == nullptr) return static_cast<err_t>(ERR_OK);
      static_cast<TcpCopy*>(self)->receive(p);
      tcp_recved(from, p->tot_len);
      pbuf_free(p);
      return static_cast<err_t>(ERR_OK);
    });
  }
  void receive(const pbuf* p) {
    for (; p != nullptr; p = p->next) {
      const auto* from = static_cast<const std::uint8_t*>(p->payload);
      for (std::uint32_t left = p->len; left != 0;) {
        const std::uint32_t room = job_.size - receive_at_;
        const std::uint32_t piece = left < room ? left : room;
        std::memcpy(target + receive_at_, from, piece);
        from += piece;
        left -= piece;
        received_ += piece;
        receive_at_ += piece;
        if (receive_at_ == job_.size) receive_at_ = 0;
      }
    }
  }

  const Job job_;
  tcp_pcb* listener_ = nullptr;
  tcp_pcb* sender_ = nullptr;
  tcp_pcb* receiver_ = nullptr;
  std::uint64_t sent_ = 0, received_ = 0;       // of all messages
  std::uint32_t send_at_ = 0, receive_at_ = 0;  // within the one under way
};

// --- RDMA ---

constexpr std::uint32_t kDepth = 4;
constexpr rddp::EndpointConfig kEndpoint{.send_depth = kDepth,
                                         .recv_depth = 2 * kDepth,
                                         .inline_bytes = 0,
                                         .batches = 4,
                                         .reads = 1,
                                         .private_data_kept = 0};
constexpr std::uint32_t kRegions = 1;
alignas(kArenaAlignment) std::byte memory[2][rddp::Endpoint::memory_needed(kEndpoint)];
alignas(kArenaAlignment) std::byte domain_memory[2][rddp::Domain::memory_needed(kRegions)];

class Rdma {
 public:
  explicit Rdma(const Job& job) : job_(job) {}

  bool connect() {
    if (!sender_.endpoint.good() || !receiver_.endpoint.good()) return false;
    const auto stag = receiver_.domain.add(target, sizeof target, 0, Access::kRemoteWrite);
    if (!stag) return false;
    stag_ = *stag;
    for (std::uint32_t i = 0; i < 2 * kDepth; ++i) {
      if (!receiver_.endpoint.post_recv(i, target, 0)) return false;
    }
    const auto acceptor = [](void* self) {
      return &static_cast<Rdma*>(self)->receiver_.connection;
    };
    return listener_.listen(&addresses[1], kPort, acceptor, this).has_value() &&
           sender_.connection.connect(&addresses[0], addresses[1], kPort, offer()).has_value();
  }
  [[nodiscard]] bool up() {
    if (receiver_.endpoint.phase() == rddp::Channel::Phase::kRequest) {
      if (!receiver_.endpoint.accept(offer())) return false;
      receiver_.connection.progress();
    }
    return sender_.endpoint.phase() == rddp::Channel::Phase::kUp &&
           receiver_.endpoint.phase() == rddp::Channel::Phase::kUp;
  }
  void send() {
    const Sge sge{reinterpret_cast<std::uintptr_t>(source), job_.size, 0};
    SendWr wr;
    wr.op = SendOp::kWriteImm;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&sge, 1};
    wr.rkey = stag_.value;
    while (posted_ < job_.count && posted_ - completed_ < kDepth && sender_.endpoint.post(wr)) {
      ++posted_;
    }
    sender_.connection.progress();
  }
  [[nodiscard]] bool done() const { return received_ == job_.count && completed_ == job_.count; }
  // Between frames.
  void idle() {
    while (const auto done = receiver_.endpoint.poll()) {
      if (done->status == WcStatus::kSuccess) ++received_;
      (void)receiver_.endpoint.post_recv(done->wr_id, target, 0);
    }
    bool more = false;
    while (const auto done = sender_.endpoint.poll()) {
      if (done->status == WcStatus::kSuccess) ++completed_;
      more = true;
    }
    if (more) send();
    sender_.connection.time(clock_now());
    receiver_.connection.time(clock_now());
  }
  [[nodiscard]] const lwip::Connection::AheadCounters& ahead() const {
    return receiver_.connection.ahead();
  }

 private:
  struct Side {
    explicit Side(int host)
        : domain(random_bits, kRegions, domain_memory[host]),
          endpoint(kEndpoint, domain, clock_now, memory[host]),
          connection(endpoint) {}
    rddp::Domain domain;
    rddp::Endpoint endpoint;
    lwip::Connection connection;
  };

  [[nodiscard]] proto::StartupOffer offer() const {
    proto::StartupOffer offer;
    offer.crc = job_.way != Way::kRdma;
    offer.markers = job_.way == Way::kRdmaMarkers;
    offer.ird = offer.ord = 1;
    return offer;
  }

  const Job job_;
  Side sender_{0}, receiver_{1};
  lwip::Listener listener_;
  Stag stag_;
  std::uint32_t posted_ = 0, completed_ = 0, received_ = 0;
};

// --- a run ---

// One frame, or time, when no frame is under way. False: nothing has happened for long.
template <class Mover>
bool step(Mover& mover, std::uint32_t& idle_ms) {
  if (frames_count != 0) {
    const Frame frame = next_frame();
    netif& interface = hosts[frame.to];
    if (interface.input(frame.p, &interface) != ERR_OK) pbuf_free(frame.p);
    idle_ms = 0;
  } else {
    const std::uint32_t sleep = sys_timeouts_sleeptime();
    const std::uint32_t ms = sleep == 0 || sleep > 1000 ? 1 : sleep;
    clock_ms += ms;
    idle_ms += ms;
    sys_check_timeouts();
  }
  mover.idle();
  return idle_ms < kIdleLimitMs;
}

// Not inlined: bench/embedded/evaluate.py has the instructions counted that this function executes.
template <class Mover>
[[gnu::noinline]] Outcome run_messages(Mover& mover, std::uint64_t (*clock)()) {
  Outcome outcome;
  std::uint32_t idle_ms = 0;
  if (!mover.connect()) return outcome;
  while (!mover.up()) {
    if (!step(mover, idle_ms)) return outcome;
  }
  outcome.begun = clock();
  mover.send();
  while (!mover.done()) {
    if (!step(mover, idle_ms)) return outcome;
  }
  outcome.ended = clock();
  outcome.right = true;
  return outcome;
}

void drop_frames() {
  while (frames_count != 0) pbuf_free(next_frame().p);
}

}  // namespace

const char* name_of(Way way) {
  switch (way) {
#ifdef WEFT_LWIP_OWN_CHECKSUM
    case Way::kTcpCopy: return "tcp-copy-plain";
#else
    case Way::kTcpCopy: return "tcp-copy";
#endif
    case Way::kRdma: return "rdma";
    case Way::kRdmaCrc: return "rdma-crc";
    case Way::kRdmaMarkers: return "rdma-crc-markers";
  }
  return "";
}

void start() {
  lwip_init();
  for (int host = 0; host < 2; ++host) {
    weft_lwip_host_address(host, &addresses[host]);
    weft_lwip_add_host(&hosts[host], host, output, TCP_MSS + 40);
  }
}

Outcome move_messages(const Job& job, std::uint64_t (*clock)()) {
  if (job.size == 0 || job.size > kMessageMax) return {};
  for (std::uint32_t i = 0; i < job.size; ++i) {
    source[i] = static_cast<std::uint8_t>((i + job.count) * 2654435761U >> 24U);
    target[i] = static_cast<std::uint8_t>(~source[i]);
  }
  reordered_percent = job.reordered;
  Outcome outcome;
  if (job.way == Way::kTcpCopy) {
    TcpCopy mover(job);
    outcome = run_messages(mover, clock);
  } else {
    Rdma mover(job);
    outcome = run_messages(mover, clock);
    outcome.segments_ahead = mover.ahead().segments;
    outcome.segments_placed = mover.ahead().segments_placed;
  }
  reordered_percent = 0;
  drop_frames();
  outcome.right = outcome.right && std::memcmp(source, target, job.size) == 0;
  return outcome;
}

}  // namespace weft::bench

// lwIP asks its machine for these.

u32_t sys_now() { return weft::bench::clock_ms; }
