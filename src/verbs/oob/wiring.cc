#include "verbs/oob/wiring.h"

#include <sys/socket.h>
#include <weft/limits.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <new>

#include "io/path_transport.h"
#include "io/socket.h"
#include "io/tcp_transport.h"
#include "os/calls.h"
#include "os/clock.h"
#include "os/log.h"
#include "roce/qp_number.h"
#include "verbs/ulpdu_size.h"
#include "wire/mpa_startup.h"

namespace weft::verbs {

namespace {

constexpr std::uint32_t kPsnMask = 0xff'ffff;
// How long a Send waits for its receive before it is refused. Most receives that are late are not
// later than this, and meanwhile nothing is sent twice.
constexpr Duration kReceiveWait{std::chrono::milliseconds(1)};
// The same of unreliable queue pairs, before it is lost. Programs count on an adapter that places
// faster than they send; here the receiver may have to wait for its turn on the CPU.
constexpr Duration kReceiveWaitLossy{std::chrono::milliseconds(100)};

std::uint32_t choose_ulpdu(FpduPolicy policy, bool crc, int fd) {
  switch (policy) {
    case FpduPolicy::kMss: return mulpdu(io::effective_mss(fd), false);
    case FpduPolicy::kCapped: return kCappedUlpdu;
    case FpduPolicy::kLarge: return kMaxUlpdu;
    case FpduPolicy::kAuto: break;
  }
  return large_ulpdu(crc);  // both are Weft
}

}  // namespace

Wiring::Wiring(std::shared_ptr<DeviceImpl> device, std::uint32_t number, roce::QpType type)
    : device_(std::move(device)),
      type_(type),
      calling_(device_->engine()),
      retries_(device_->engine()) {
  mine_ = {device_->peer_directory()->gid(), number};
}

Wiring::~Wiring() {
  if (!device_->usable()) return;
  // A callback may be waiting for mutex_; it finds nothing to do, but it has to find it.
  device_->engine().wait_for(this);
}

void Wiring::moves_on(WiringStep what) noexcept { advance(wiring_arrows(), phase_, what); }

// --- for the queue pair ---

Status Wiring::begin(const WiringToReceive& attributes, std::uint32_t generation) {
  const bool number_fits = roce::is_number(attributes.peer_number);
  const OwnGid& own = device_->peer_directory()->choose(attributes.own);
  const auto own_address = address_of(own.gid, 0, own.interface);
  const auto address = address_of(attributes.peer_gid,
                                  roce::split_number(attributes.peer_number).port, own.interface);
  if (!address || !own_address || !number_fits || attributes.psn > kPsnMask ||
      attributes.reads_served > limits::kIrd) {
    return fail(Error::kInvalidArgument);
  }
  const os::MutexLock lock(mutex_);
  receiver_ = attributes;
  generation_ = generation;
  mine_.gid = own.gid;
  own_address_ = *own_address;
  peer_ = {attributes.peer_gid, attributes.peer_number};
  peer_address_ = *address;
  sending_ = psn_logged_ = secret_logged_ = false;
  lost_early_ = stranded_ = given_up_ = false;
  bool at_once = roce::goes_first(mine_, peer_) || is_itself();
  if (attributes.turn != WiringTurn::kByNumber) at_once = attributes.turn == WiringTurn::kMine;
  if (seek(at_once ? Duration{0} : roce::kTurnOfOther)) return {};
  unwire();
  return fail(Error::kNoMemory);
}

void Wiring::begin_sending(const WiringToSend& attributes) {
  const os::MutexLock lock(mutex_);
  sender_ = attributes;
  sending_ = true;
}

bool Wiring::agrees(std::uint32_t peer_psn) {
  const os::MutexLock lock(mutex_);
  return psn_agrees(peer_psn);
}

void Wiring::stop() {
  const os::MutexLock lock(mutex_);
  unwire();
}

void Wiring::unwire() {
  moves_on(WiringStep::kStopped);
  stranded_ = false;
  drop_attempt();
  retries_.stop();
}

void Wiring::link_lost(std::uint32_t generation, LinkEnd how) {
  const os::MutexLock lock(mutex_);
  if (generation != generation_) return;
  if (how == LinkEnd::kError) return unwire();
  stranded_ = how == LinkEnd::kStranded;
  if (stranded_) {
    os::log(LogLevel::kInfo,
            "qp {:#x}: qp {:#x} at {} has gone while requests were outstanding: they end when the "
            "retries are used up",
            mine_.number, peer_.number, peer_address_.shown().view());
  }
  if (phase_ == Phase::kLinking) lost_early_ = true;
  if (phase_ == Phase::kLinked) rest();
}

// There is no connection, and the peer is not sought for now.
void Wiring::rest() {
  moves_on(WiringStep::kLost);
  dormant_ = true;
}

Wiring::Wait Wiring::work_waits() {
  const os::MutexLock lock(mutex_);
  if (phase_ != Phase::kSeeking) return Wait::kGoesOn;
  const bool first = !retries_.runs() && !given_up_;
  if (first) retries_.start(budget(), weak_from_this());
  // No memory for a timer. Where the peer is sought, the next call that comes to nothing starts it.
  if (first && !retries_.runs() && stranded_) {
    unwire();
    return Wait::kOver;
  }
  // A program posts when it has heard that the peer is there: the next call does not wait for a
  // pause that has grown long.
  if (first) attempt_.count = std::min(attempt_.count, 1U);
  const bool pauses = attempt_.count != 0 && !attempt_.socket && !calling_.any();
  if ((dormant_ || (first && pauses)) && !stranded_) static_cast<void>(seek(Duration{0}));
  return given_up_ ? Wait::kLost : Wait::kGoesOn;
}

Duration Wiring::budget() const {
  const bool fast = device_->config().retry == RetryMode::kFast || type_ == roce::QpType::kUc;
  if (fast) return roce::kRetryFloor;
  return roce::retry_budget(sender_.timeout, sender_.retry_count);
}

roce::Hello Wiring::hello() const {
  roce::Hello h;
  h.crc = device_->config().crc;
  h.from = mine_;
  h.to = peer_;
  h.type = type_;
  h.psn = receiver_.psn;
  h.reads_served = receiver_.reads_served;
  h.min_rnr_timer = receiver_.min_rnr_timer;
  h.generation = generation_;
  return h;
}

bool Wiring::psn_agrees(std::uint32_t expected_by_peer) {
  if (!sending_ || device_->config().psn == PsnMode::kLenient) return true;
  if (sender_.psn == expected_by_peer) return true;
  if (std::exchange(psn_logged_, true)) return false;
  os::log(LogLevel::kWarning,
          "qp {:#x}: it sends from PSN {} on, and {} expects {}: nothing will get through (psn = "
          "lenient would let it)",
          mine_.number, sender_.psn, peer_address_.shown().view(), expected_by_peer);
  return false;
}

// --- attempts ---

// Does a part of them. Where there is no memory for it, the peer is sought again later.
template <class Work>
void Wiring::step(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {  // the mutex is held again
  }
  if (phase_ != Phase::kSeeking && phase_ != Phase::kLinking) return;
  moves_on(WiringStep::kLost);
  dormant_ = false;
  attempt_failed(describe(Error::kNoMemory));
}

// False: it rests, since no timer is to be had. The next request that is posted tries again.
bool Wiring::seek(Duration first_pause) {
  moves_on(WiringStep::kSought);
  dormant_ = false;
  attempt_.count = 0;
  drop_attempt();
  return try_again(first_pause);
}

bool Wiring::try_again(Duration pause) {
  if (set_timer(pause)) return true;
  rest();
  return false;
}

bool Wiring::set_timer(Duration pause) {
  device_->engine().forget_timer(attempt_.timer);
  attempt_.timer = device_->engine().schedule(os::now() + pause, weak_from_this());
  return attempt_.timer != 0;
}

void Wiring::drop_attempt() {
  device_->engine().forget_timer(attempt_.timer);
  attempt_.timer = 0;
  if (std::exchange(attempt_.watching, false)) device_->engine().forget(attempt_.socket.get());
  attempt_.socket.reset();
  calling_.drop();
  attempt_.said_hello = false;
}

void Wiring::attempt_failed(std::string_view why) {
  os::log(LogLevel::kDebug, "qp {:#x}: no connection to qp {:#x} at {} yet: {}", mine_.number,
          peer_.number, peer_address_.shown().view(), why);
  retries_.peer_is_not_there();
  try_later();
}

void Wiring::try_later() {
  drop_attempt();
  static_cast<void>(try_again(roce::pause_before(attempt_.count++)));
}

void Wiring::declined() {
  const roce::Verdict verdict = attempt_.greeting.verdict();
  if (verdict == roce::Verdict::kOtherSecret && !std::exchange(secret_logged_, true)) {
    os::log(LogLevel::kWarning, "qp {:#x}: no connection to qp {:#x} at {}: {}", mine_.number,
            peer_.number, peer_address_.shown().view(), describe(verdict));
  }
  if (verdict == roce::Verdict::kBusy) return try_later();  // it is calling itself
  attempt_failed(describe(verdict));
}

void Wiring::attempt() {
  if (is_itself()) return meet_itself();
  attempt_.greeting = roce::Greeting::connector(hello(), device_->peer_directory()->sealer());
  attempt_.unanswered = 0;
  call();
}

// A first time, or once more beside the socket that calls already.
void Wiring::call() {
  const Status called =
      calling_.call(device_->config(), own_address_, peer_address_, weak_from_this());
  if (!calling_.any()) return attempt_failed(describe(called.error()));
  if (!set_timer(roce::handshake_limit(attempt_.unanswered++))) {
    attempt_failed(describe(Error::kNoMemory));
  }
}

// A socket that connects to its own port is its own peer: what it sends comes back.
void Wiring::meet_itself() {
  assert(is_itself());
  SocketAddress own = own_address_;
  auto socket = io::open_socket(own.family());
  if (!socket) return attempt_failed(describe(socket.error()));
  if (auto bound = io::bind_socket(socket->get(), own, false, false); !bound) {
    return attempt_failed(describe(bound.error()));
  }
  own = io::local_address(socket->get());
  // No answer carries TCP's acknowledgement, so with Nagle's algorithm each message waits for it.
  io::tune_before_connect(socket->get(), device_->config());
  io::tune_connected(socket->get(), device_->config(), true);
  if (auto begun = io::begin_connect(socket->get(), own); !begun) {
    return attempt_failed(describe(begun.error()));
  }
  roce::Hello mine = hello();
  mine.kind = roce::HelloKind::kAnswer;
  hand_over(std::move(*socket), mine, true);
}

void Wiring::on_io(std::uint32_t /*events*/) {
  const os::MutexLock lock(mutex_);
  if (phase_ != Phase::kSeeking) return;  // late
  if (calling_.any()) {
    auto connected = calling_.take_connected();
    if (!connected) return attempt_failed(describe(connected.error()));
    if (!*connected) return;
    attempt_.socket = std::move(*connected);
    attempt_.watching = true;
    if (!set_timer(roce::kAnswerLimit)) return attempt_failed(describe(Error::kNoMemory));
    io::tune_connected(
        attempt_.socket.get(), device_->config(),
        io::is_loopback_path(io::local_address(attempt_.socket.get()), peer_address_));
    attempt_.said_hello = true;
    retries_.peer_is_there();
  }
  if (!attempt_.watching) return;  // late
  step([&]() WEFT_REQUIRES(mutex_) { pump(); });
}

void Wiring::pump() {
  assert(phase_ == Phase::kSeeking && attempt_.watching && attempt_.socket);
  while (move_octets()) {
  }
  switch (attempt_.greeting.state()) {
    case roce::GreetingState::kAccepted: {
      const roce::Hello peer = attempt_.greeting.peer();
      device_->engine().forget(attempt_.socket.get());
      attempt_.watching = false;
      os::Fd socket = std::move(attempt_.socket);
      drop_attempt();
      return hand_over(std::move(socket), peer, true);
    }
    case roce::GreetingState::kDeclined: return declined();
    case roce::GreetingState::kFailed: return attempt_failed(describe(attempt_.greeting.error()));
    default: return;
  }
}

// False: no more now, or it is over.
bool Wiring::move_octets() {
  if (const auto out = attempt_.greeting.to_send(); roce::is_sending(attempt_.greeting.state())) {
    const ssize_t n =
        os::calls::send(attempt_.socket.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) attempt_.greeting.sent(static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) attempt_.greeting.peer_closed();
    const bool said = roce::is_receiving(attempt_.greeting.state());
    static_cast<void>(device_->engine().modify(attempt_.socket.get(), said ? EPOLLIN : EPOLLOUT));
    return n > 0;
  }
  if (!roce::is_receiving(attempt_.greeting.state())) return false;
  std::array<std::uint8_t, roce::Hello::kSize> buffer;
  const ssize_t n = os::calls::recv(attempt_.socket.get(), buffer.data(),
                                    attempt_.greeting.missing(), MSG_DONTWAIT);
  if (n > 0) attempt_.greeting.received(std::span(buffer).first(static_cast<std::size_t>(n)));
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) attempt_.greeting.peer_closed();
  return n > 0;
}

void Wiring::on_timer(io::TimerId id) {
  const os::MutexLock lock(mutex_);
  if (id == attempt_.timer) {
    attempt_.timer = 0;
    if (phase_ != Phase::kSeeking || dormant_) return;
    if (attempt_.socket) return attempt_failed("no answer in time");
    if (calling_.any()) return step([&]() WEFT_REQUIRES(mutex_) { call(); });
    return step([&]() WEFT_REQUIRES(mutex_) { attempt(); });
  }
  if (!retries_.is_over(id)) return;
  if (phase_ != Phase::kSeeking) return;
  given_up_ = type_ == roce::QpType::kUc;
  const std::shared_ptr<WiredHost> qp = qp_.lock();
  const std::uint32_t generation = generation_;
  bool failed = false;
  {
    const os::MutexUnlock meanwhile(mutex_);
    failed = qp != nullptr && qp->retries_exhausted(generation);
  }
  if (failed && generation == generation_) unwire();
}

// --- being found ---

roce::Verdict Wiring::consider(const roce::Hello& hello, const roce::Gid& source,
                               roce::Hello& mine) {
  const os::MutexLock lock(mutex_);
  const bool first = roce::goes_first(mine_, peer_);
  const roce::Standing standing{.wired = phase_ != Phase::kUnwired && !stranded_,
                                .linked = phase_ == Phase::kLinking || phase_ == Phase::kLinked,
                                .committed = first && attempt_.said_hello,
                                .mine = mine_,
                                .peer = peer_,
                                .type = type_};
  const roce::Verdict verdict = roce::judge(hello, source, standing);
  if (verdict != roce::Verdict::kAccept) return verdict;
  if (!psn_agrees(hello.psn)) return roce::Verdict::kNotYet;
  mine = this->hello();
  drop_attempt();
  moves_on(WiringStep::kFound);
  return verdict;
}

void Wiring::not_adopted() {
  const os::MutexLock lock(mutex_);
  if (phase_ == Phase::kLinking) static_cast<void>(seek(roce::pause_before(0)));
}

void Wiring::adopt(os::Fd socket, const roce::Hello& peer) {
  const os::MutexLock lock(mutex_);
  if (phase_ != Phase::kLinking) return;
  step([&]() WEFT_REQUIRES(mutex_) { hand_over(std::move(socket), peer, false); });
}

// --- hand-over ---

// Wireshark knows a connection of iWARP by its MPA frames. Here there were none: in the capture the
// hellos stand as the private data of a Request and a Reply, so that it reads what follows. Null:
// nothing is captured, or the other end is of this process and captured already.
std::unique_ptr<trace::Trace> Wiring::start_trace(const os::Fd& socket, const roce::Hello& peer,
                                                  bool connector, bool crc) const {
  trace::Tracer* const tracer = device_->tracer();
  if (tracer == nullptr || is_itself()) return nullptr;
  auto trace = tracer->start(io::local_address(socket.get()).unmapped(),
                             io::peer_address(socket.get()).unmapped(), connector);
  if (trace == nullptr) return nullptr;
  const auto show = [&](roce::Hello hello, bool is_reply, bool ours) {
    hello.kind = is_reply ? roce::HelloKind::kAnswer : roce::HelloKind::kRequest;
    std::array<std::uint8_t, roce::Hello::kSize> said;
    ByteWriter hello_out{std::span(said)};
    encode(hello, hello_out);
    std::array<std::uint8_t, MpaFrame::kSize + roce::Hello::kSize> octets;
    ByteWriter out{std::span(octets)};
    encode(MpaFrame{.is_reply = is_reply, .crc = crc, .revision = 1, .private_data = said}, out);
    ours ? trace->tx(octets) : trace->rx(octets);
  };
  show(connector ? hello() : peer, false, connector);
  show(connector ? peer : hello(), true, !connector);
  return trace;
}

void Wiring::hand_over(os::Fd socket, const roce::Hello& peer, bool connector) {
  assert(socket);
  if (connector && !psn_agrees(peer.psn)) return attempt_failed("its PSN is another");
  if (peer.type != type_) return attempt_failed(describe(roce::Verdict::kOtherType));
  moves_on(WiringStep::kFound);
  lost_early_ = false;
  const Config& config = device_->config();
  const SocketAddress local = io::local_address(socket.get()).unmapped();
  proto::StreamParams params;
  params.initiator = connector;
  params.both_ready = true;
  params.crc = config.crc || peer.crc;
  if (type_ == roce::QpType::kRc) {
    params.ird = std::max<std::uint16_t>(receiver_.reads_served, 1);
    params.ord = std::max<std::uint16_t>(peer.reads_served, 1);
  }
  params.max_ulpdu = choose_ulpdu(config.fpdu, params.crc, socket.get());
  params.recv_wait = type_ == roce::QpType::kRc ? kReceiveWait : kReceiveWaitLossy;
  params.close_timeout = config.close_timeout;
  params.keeps_work = true;
  params.not_ready_pause = roce::rnr_pause(peer.min_rnr_timer);
  auto trace = start_trace(socket, peer, connector, params.crc);
  std::unique_ptr<io::Transport> transport;
  if (config.path != PathMode::kTcp && !is_itself() && io::is_loopback_path(local, peer_address_)) {
    params.path = config.path;
    transport = std::make_unique<io::PathTransport>(std::move(socket));
  } else {
    transport = std::make_unique<io::TcpTransport>(std::move(socket));
  }
  const std::shared_ptr<WiredHost> qp = qp_.lock();
  const std::uint32_t generation = generation_;
  bool linked = false;
  {
    const os::MutexUnlock meanwhile(mutex_);
    linked =
        qp != nullptr &&
        qp->link(std::move(transport), std::move(trace), params, generation, peer.psn).has_value();
  }
  if (phase_ != Phase::kLinking || generation != generation_) return;  // stopped meanwhile
  if (linked && !lost_early_) {
    moves_on(WiringStep::kLinked);
    given_up_ = false;
    retries_.stop();
    os::log(LogLevel::kInfo, "qp {:#x} - qp {:#x} at {}: connected, CRC {}, ULPDU {}", mine_.number,
            peer_.number, peer_address_.shown().view(), params.crc ? "on" : "off",
            params.max_ulpdu);
    return;
  }
  rest();
  if (!stranded_) {
    dormant_ = false;
    static_cast<void>(try_again(roce::pause_before(attempt_.count++)));
  }
  // A wiring that had a connection was not told of requests posted meanwhile.
  const os::MutexUnlock meanwhile(mutex_);
  if (qp != nullptr) qp->look_for_waiting_work();
}

}  // namespace weft::verbs
