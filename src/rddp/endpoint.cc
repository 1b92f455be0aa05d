#include "rddp/endpoint.h"

#include <weft/limits.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "base/bytes.h"
#include "wire/fpdu.h"

namespace weft::rddp {

namespace {

// Local SGEs name memory by its address. The first octet of the address space is left out, so that
// no pointer arithmetic begins at null.
constexpr std::uint64_t kLocalBase = 1;

std::uint64_t secret_of(proto::StagTable::RandomFn random) {
  return std::uint64_t{random()} << 32U | random();
}

}  // namespace

// --- Domain ---

Domain::Domain(proto::StagTable::RandomFn random, std::uint32_t regions_max)
    : table_(secret_of(random), random, regions_max + 1) {
  proto::MemorySpec all;
  // The verbs carry addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
  all.addr = reinterpret_cast<std::uint8_t*>(static_cast<std::uintptr_t>(kLocalBase));
  all.length = std::numeric_limits<std::uintptr_t>::max() - kLocalBase;
  all.base = kLocalBase;
  all.access = Access::kLocalWrite;
  all.pd = kPd;
  local_ = table_.add(all).value_or(Stag{});
}

Result<Stag> Domain::add(void* addr, std::size_t size, std::uint64_t base, Access remote,
                         std::uint32_t stream) {
  if (local_.value == 0) return fail(Error::kNoMemory);
  if (addr == nullptr && size != 0) return fail(Error::kInvalidArgument);
  if (size > std::numeric_limits<std::uint64_t>::max() - base) {
    return fail(Error::kInvalidArgument);
  }
  proto::MemorySpec spec;
  spec.addr = static_cast<std::uint8_t*>(addr);
  spec.length = size;
  spec.base = base;
  spec.access = remote | Access::kLocalWrite;
  spec.pd = kPd;
  spec.stream = stream;
  return table_.add(spec);
}

// Invalidation waits until nobody uses the memory. Here it would wait forever: the acknowledgment
// that ends the use is handled by the same thread. So it is refused instead.
bool Domain::in_flight(Stag stag) const noexcept {
  const proto::MemoryEntry* entry = table_.find(stag);
  return entry != nullptr && entry->pins.load(std::memory_order_acquire) != 0;
}

Status Domain::remove(Stag stag) {
  if (in_flight(stag)) return fail(Error::kBusy);
  return table_.remove(stag);
}

Status Domain::invalidate(Stag stag) {
  if (in_flight(stag)) return fail(Error::kBusy);
  return table_.invalidate(stag);
}

// --- making one ---

Endpoint::Endpoint(const EndpointConfig& config, Domain& domain, Clock clock)
    : config_(config), domain_(domain), clock_(clock), id_{Domain::kPd, domain.next_stream()} {}

Endpoint::~Endpoint() { stream_.reset(); }

std::unique_ptr<Endpoint> Endpoint::create(const EndpointConfig& config, Domain& domain,
                                           Clock clock) {
  std::unique_ptr<Endpoint> made(new (std::nothrow) Endpoint(config, domain, clock));
  if (made == nullptr || !made->allocate()) return nullptr;
  return made;
}

bool Endpoint::allocate() {
  const std::size_t tail = std::max<std::size_t>(
      config_.inline_bytes,
      std::max<std::size_t>(proto::kSendTailMin, limits::kSgesPerRequest * sizeof(Sge)));
  if (!send_queue_.allocate(config_.send_depth, tail)) return false;
  receives_.resize(config_.recv_depth);
  done_.resize(std::size_t{config_.send_depth} + config_.recv_depth);
  carry_.resize(proto::kCarryBytesMax);
  spare_.reserve(config_.batches);
  for (std::uint32_t i = 0; i < config_.batches; ++i) {
    std::unique_ptr<proto::TxBatch> batch(new (std::nothrow) proto::TxBatch);
    if (batch == nullptr) return false;
    spare_.push_back(std::move(batch));
  }
  return true;
}

// --- start-up ---

Status Endpoint::initiate(const proto::StartupOffer& offer) {
  if (phase_ != Phase::kIdle) return fail(Error::kBadState);
  auto made = proto::Startup::initiator(offer);
  if (!made) return fail(made.error());
  startup_.emplace(*made);
  phase_ = Phase::kStarting;
  return {};
}

void Endpoint::respond() {
  if (phase_ != Phase::kIdle) return;
  startup_.emplace(proto::Startup::responder());
  phase_ = Phase::kStarting;
}

Status Endpoint::accept(const proto::StartupOffer& offer) {
  if (phase_ != Phase::kRequest) return fail(Error::kBadState);
  const Status taken = startup_->accept(offer);
  if (taken) phase_ = Phase::kStarting;
  return taken;
}

Status Endpoint::reject(std::span<const std::uint8_t> private_data) {
  if (phase_ != Phase::kRequest) return fail(Error::kBadState);
  const Status taken = startup_->reject(private_data);
  if (taken) phase_ = Phase::kStarting;
  return taken;
}

std::span<const std::uint8_t> Endpoint::private_data() const noexcept {
  if (!startup_) return {};
  return startup_->peer().private_data;
}

// Octets of `bytes` that belong to the peer's frame.
std::size_t Endpoint::startup_received(std::span<const std::uint8_t> bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && phase_ == Phase::kStarting && !stream_runs()) {
    // A responder that still has to answer gets everything: the initiator should have waited.
    const std::size_t missing = startup_->missing();
    const std::size_t rest = bytes.size() - used;
    const std::size_t give = missing == 0 ? rest : std::min(missing, rest);
    const auto taken = startup_->received(bytes.subspan(used, give));
    if (taken) used += *taken;
    follow_startup();
    if (!taken || *taken == 0) break;
  }
  return used;
}

void Endpoint::follow_startup() {
  switch (startup_->state()) {
    case proto::StartupState::kRequestReady: phase_ = Phase::kRequest; break;
    case proto::StartupState::kDone: begin_stream(); break;
    case proto::StartupState::kRejected: phase_ = Phase::kRefused; break;
    case proto::StartupState::kFailed: phase_ = Phase::kFailed; break;
    default: break;
  }
}

void Endpoint::begin_stream() {
  negotiated_ = startup_->result();
  proto::StreamParams params =
      proto::stream_params(negotiated_, config_.patience, config_.patience);
  params.id = id_;
  params.max_ulpdu = mulpdu(emss_, negotiated_.tx_markers);
  params.close_timeout = config_.close_timeout;
  stream_.reset(new (std::nothrow) proto::Stream(params, *this, domain_.table(), send_queue_));
  if (stream_ == nullptr) {
    phase_ = Phase::kFailed;
    return;
  }
  phase_ = Phase::kUp;
  stream_->start();
}

// --- the transport's side ---

void Endpoint::received(std::span<std::uint8_t> bytes) {
  if (phase_ == Phase::kRequest && !bytes.empty()) {  // the initiator did not wait for the Reply
    (void)startup_->received(bytes);
    follow_startup();
    return;
  }
  if (phase_ == Phase::kStarting) bytes = bytes.subspan(startup_received(bytes));
  if (!stream_runs()) return;
  if (!bytes.empty()) stream_->feed(bytes);
}

proto::Ahead Endpoint::place_ahead(std::uint32_t distance,
                                   std::span<const std::uint8_t> bytes) const {
  if (!stream_runs()) return {};
  return stream_->place_ahead(stream_->rx_offset() + distance, bytes);
}

void Endpoint::peer_closed() {
  if (stream_runs()) {
    stream_->peer_closed();
  } else if (startup_) {
    startup_->peer_closed();
    follow_startup();
  }
}

void Endpoint::lost(bool timed_out) {
  if (stream_runs()) {
    stream_->transport_lost(timed_out);
  } else if (phase_ != Phase::kRefused) {
    phase_ = Phase::kFailed;
  }
}

bool Endpoint::tx_pending() const noexcept {
  if (stream_runs()) return stream_->tx_pending();
  return startup_ && !startup_->to_send().empty();
}

TxPiece Endpoint::next_piece(std::size_t max) {
  TxPiece piece;
  if (!stream_runs()) {
    if (!startup_) return piece;
    const auto bytes = startup_->to_send();
    piece.data = bytes.data();
    piece.size = std::min(bytes.size(), max);
    piece.ends_fpdu = piece.size == bytes.size();
    return piece;
  }
  proto::TxBatch* batch = stream_->gather();
  if (batch == nullptr) return piece;
  const proto::Slice& slice = batch->slices[batch->slice_next];
  std::size_t i = 0;
  while (i < batch->fpdu_count && batch->fpdu_ends[i] <= batch->sent) ++i;
  const std::size_t border = batch->fpdu_ends[i] - batch->sent;
  piece.data = slice.data;
  piece.size = std::min({slice.size, border, max});
  piece.ends_fpdu = piece.size == border;
  piece.stays = true;
  return piece;
}

void Endpoint::taken(std::size_t n) {
  if (stream_runs()) {
    stream_->sent(n);
  } else if (startup_ && n != 0) {
    startup_->sent(n);
    startup_octets_ += n;
    follow_startup();
  }
}

void Endpoint::released(std::size_t n) {
  const std::size_t frame = std::min(n, startup_octets_);
  startup_octets_ -= frame;
  if (stream_runs() && n != frame) stream_->released(n - frame);
}

void Endpoint::transport_closed() {
  if (stream_runs()) stream_->transport_closed();
}

bool Endpoint::take_fin() { return stream_runs() && stream_->take_fin(); }

bool Endpoint::finished() const noexcept {
  if (stream_runs()) return stream_->finished();
  return phase_ == Phase::kRefused || phase_ == Phase::kFailed;
}

bool Endpoint::wants_reset() const noexcept { return stream_runs() && stream_->wants_reset(); }

Instant Endpoint::deadline() const noexcept {
  return stream_runs() ? stream_->deadline() : Instant::never();
}

void Endpoint::expired(Instant now) {
  if (stream_runs()) stream_->expired(now);
}

// --- requests ---

Status Endpoint::post(const SendWr& wr) {
  if (phase_ != Phase::kUp) return fail(Error::kBadState);
  if (unpolled_sends_ == config_.send_depth) return fail(Error::kNoSpace);
  if (wr.sges.size() > limits::kSgesPerRequest) return fail(Error::kInvalidArgument);
  std::uint64_t total = 0;
  for (const Sge& sge : wr.sges) total += sge.length;
  const bool is_inline = has(wr.flags, SendFlags::kInline);
  if (total > limits::kMessageBytes) return fail(Error::kInvalidArgument);
  if (is_inline && total > config_.inline_bytes) return fail(Error::kInvalidArgument);
  if (wr.op == SendOp::kRead && (is_inline || negotiated_.ord == 0)) {
    return fail(Error::kInvalidArgument);
  }
  proto::SendWqe* wqe = send_queue_.reserve();
  if (wqe == nullptr) return fail(Error::kNoSpace);
  wqe->wr_id = wr.wr_id;
  wqe->op = wr.op;
  wqe->flags = wr.flags;
  wqe->remote_to = wr.remote_addr;
  wqe->remote_stag = Stag{wr.op == SendOp::kSendInvalidate ? wr.invalidate_rkey : wr.rkey};
  wqe->imm_data = wr.imm_data;
  wqe->length = static_cast<std::uint32_t>(total);
  std::uint8_t* to = wqe->inline_data();
  for (const Sge& sge : wr.sges) {
    if (is_inline) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      std::memcpy(to, reinterpret_cast<const void*>(static_cast<std::uintptr_t>(sge.addr)),
                  sge.length);
      to += sge.length;
      continue;
    }
    Sge& mine = wqe->sges()[wqe->sge_count++];
    mine = sge;
    if (mine.lkey == 0) mine.lkey = domain_.local().value;
  }
  ++unpolled_sends_;
  send_queue_.commit();
  return {};
}

Status Endpoint::post_recv(std::uint64_t wr_id, void* buffer, std::uint32_t size) {
  if (unpolled_recvs_ == config_.recv_depth) return fail(Error::kNoSpace);
  ++unpolled_recvs_;
  Receive& slot = receives_[(recv_head_ + recv_count_++) % receives_.size()];
  slot.wr_id = wr_id;
  slot.sge = {reinterpret_cast<std::uintptr_t>(buffer), size, domain_.local().value};
  if (phase_ == Phase::kDown) flush_receives();
  return {};
}

std::optional<EndpointCompletion> Endpoint::poll() {
  if (done_count_ == 0) return std::nullopt;
  const EndpointCompletion done = done_[done_head_];
  done_head_ = (done_head_ + 1) % done_.size();
  --done_count_;
  --(done.receive ? unpolled_recvs_ : unpolled_sends_);
  return done;
}

void Endpoint::complete(const EndpointCompletion& done) {
  done_[(done_head_ + done_count_++) % done_.size()] = done;
}

void Endpoint::close() {
  if (stream_runs()) stream_->close();
}

void Endpoint::abort() {
  if (stream_runs()) {
    stream_->abort();
  } else {
    phase_ = Phase::kFailed;
  }
}

// --- StreamHost ---

std::uint8_t* Endpoint::acquire_carry(std::size_t size) {
  if (carry_out_ || size > carry_.size()) return nullptr;
  carry_out_ = true;
  return carry_.data();
}

void Endpoint::release_carry(std::uint8_t* /*carry*/, std::size_t /*size*/) { carry_out_ = false; }

bool Endpoint::take_receive(proto::RecvWqe& out) {
  if (recv_count_ == 0) return false;
  const Receive& posted = receives_[recv_head_];
  recv_head_ = (recv_head_ + 1) % receives_.size();
  --recv_count_;
  out = {};
  out.wr_id = posted.wr_id;
  out.length = posted.sge.length;
  out.sge_count = 1;
  out.sges()[0] = posted.sge;
  return true;
}

void Endpoint::send_done(const proto::SendDone& done) {
  if (!done.signaled) {
    --unpolled_sends_;
    return;
  }
  EndpointCompletion c;
  c.wr_id = done.wr_id;
  c.status = done.status;
  c.op = done.op;
  c.byte_len = done.byte_len;
  complete(c);
}

void Endpoint::recv_done(const proto::RecvDone& done) {
  EndpointCompletion c;
  c.wr_id = done.wr_id;
  c.status = done.status;
  c.receive = true;
  c.immediate = done.immediate;
  c.solicited = has(done.flags, WcFlags::kSolicited);
  c.byte_len = done.byte_len;
  c.imm_data = done.imm_data;
  if (has(done.flags, WcFlags::kWithInvalidate)) c.invalidated = done.invalidated;
  complete(c);
}

WcStatus Endpoint::local_operation(proto::SendWqe& wqe) {
  if (wqe.op != SendOp::kLocalInvalidate) return WcStatus::kLocalQpOperation;
  return domain_.invalidate(wqe.remote_stag) ? WcStatus::kSuccess : WcStatus::kLocalQpOperation;
}

proto::Violation Endpoint::remote_invalidate(Stag stag) {
  const proto::MemoryEntry* entry = domain_.table().find(stag);
  const bool own = entry != nullptr && stag != domain_.local() &&
                   (entry->spec.stream == 0 || entry->spec.stream == id_.stream);
  if (!own || !domain_.invalidate(stag)) return proto::Violation::kInvalidateProtection;
  return proto::Violation::kNone;
}

std::uint64_t Endpoint::execute_atomic(std::uint8_t* target, const AtomicRequest& request) {
  std::uint64_t old = 0;
  std::memcpy(&old, target, sizeof old);
  const std::uint64_t next = atomic_result(request, old);
  std::memcpy(target, &next, sizeof next);
  return old;
}

proto::TxBatch* Endpoint::acquire_batch() {
  if (spare_.empty()) return nullptr;
  proto::TxBatch* batch = spare_.back().release();
  spare_.pop_back();
  return batch;
}

void Endpoint::release_batch(proto::TxBatch* batch) { spare_.emplace_back(batch); }

void Endpoint::stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) {
  if (how == proto::StreamEnd::kTerminated) {
    terminated_ = true;
    terminate_ = code;
    terminated_by_peer_ = by_peer;
  }
  phase_ = Phase::kDown;
  flush_receives();
}

void Endpoint::flush_receives() {
  while (recv_count_ != 0) {
    EndpointCompletion c;
    c.wr_id = receives_[recv_head_].wr_id;
    c.status = WcStatus::kFlushed;
    c.receive = true;
    recv_head_ = (recv_head_ + 1) % receives_.size();
    --recv_count_;
    complete(c);
  }
}

}  // namespace weft::rddp
