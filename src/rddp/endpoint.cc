#include "rddp/endpoint.h"

#include <weft/limits.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "base/bytes.h"
#include "wire/fpdu.h"

namespace weft::rddp {

// --- making one ---

Endpoint::Endpoint(const EndpointConfig& config, Domain& domain, Clock clock,
                   std::span<std::byte> memory)
    : config_(config), domain_(domain), clock_(clock), id_{Domain::kPd, domain.next_stream()} {
  // A batch may have no room for more.
  if (config.inline_bytes > profile::kCopyBelow || config.sges > limits::kSgesPerRequest) return;
  if (memory.size() < memory_needed(config) || !take(Arena(memory))) return;
  limit_reads(config.reads);
  lend(reinterpret_cast<StartupRoom*>(stream_memory_.data()));
}

Endpoint::~Endpoint() {
  if (stream_ != nullptr) stream_->~Stream();
}

std::unique_ptr<Endpoint> Endpoint::create(const EndpointConfig& config, Domain& domain,
                                           Clock clock) {
  const std::size_t size = memory_needed(config);
  std::unique_ptr<std::byte[]> own(new (std::nothrow) std::byte[size]);
  if (own == nullptr) return nullptr;
  std::unique_ptr<Endpoint> made(new (std::nothrow)
                                     Endpoint(config, domain, clock, {own.get(), size}));
  if (made == nullptr || !made->good()) return nullptr;
  made->own_ = std::move(own);
  return made;
}

bool Endpoint::take(Arena memory) {
  kept_data_ = {memory.make<std::uint8_t>(config_.private_data_kept), config_.private_data_kept};
  const std::size_t tail = send_tail(config_);
  auto* const queue =
      memory.make<std::uint8_t>(proto::SendQueue::memory_needed(config_.send_depth, tail));
  if (!send_queue_.use(queue, config_.send_depth, tail)) return false;
  if (!posted_.allocate(config_.recv_depth, &memory) ||
      !done_.allocate(std::size_t{config_.send_depth} + config_.recv_depth, &memory) ||
      !buffers_.allocate(config_.batches, &memory)) {
    return false;
  }
  const std::size_t rest = stream_memory(config_);
  auto* const at = static_cast<std::byte*>(memory.take<std::byte>(rest));
  if (at == nullptr) return false;
  stream_memory_ = {at, rest};
  return true;
}

bool Endpoint::begin_stream() {
  proto::StreamParams params =
      proto::stream_params(negotiated(), config_.patience, config_.patience);
  params.id = id_;
  // A batch has room for one FPDU of this size.
  const std::uint32_t segment = std::min<std::uint32_t>(segment_size(), proto::kCarryBytesMax);
  params.max_ulpdu = mulpdu(segment, negotiated().tx_markers);
  params.close_timeout = config_.close_timeout;
  end_startup(kept_data_);
  Arena memory(stream_memory_);
  stream_ =
      new (memory.take<proto::Stream>()) proto::Stream(params, *this, domain_.table(), send_queue_);
  if (!stream_->reserve(memory)) return false;
  stream_->start();
  return true;
}

proto::Ahead Endpoint::place_ahead(std::uint32_t distance,
                                   std::span<const std::uint8_t> bytes) const {
  if (!stream_runs()) return {};
  return stream_->place_ahead(stream_->rx_offset() + distance, bytes);
}

Instant Endpoint::deadline() const noexcept {
  return stream_runs() ? stream_->deadline() : Instant::never();
}

void Endpoint::expired(Instant now) {
  if (stream_runs()) stream_->expired(now);
}

// --- requests ---

Status Endpoint::post(const SendWr& wr) {
  if (phase() != Phase::kUp) return fail(Error::kBadState);
  if (unpolled_sends_ == config_.send_depth) return fail(Error::kNoSpace);
  if (wr.sges.size() > config_.sges) return fail(Error::kInvalidArgument);
  std::uint64_t total = 0;
  for (const Sge& sge : wr.sges) total += sge.length;
  const bool is_inline = has(wr.flags, SendFlags::kInline);
  if (total > limits::kMessageBytes) return fail(Error::kInvalidArgument);
  if (is_inline && total > config_.inline_bytes) return fail(Error::kInvalidArgument);
  if (wr.op == SendOp::kRead && (is_inline || negotiated().ord == 0)) {
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
  posted_.add({wr_id, buffer, size});
  if (phase() == Phase::kDown) flush_receives();
  return {};
}

bool Endpoint::unpost(std::uint64_t wr_id) {
  if (!posted_.remove(wr_id)) return false;
  --unpolled_recvs_;
  return true;
}

std::optional<EndpointCompletion> Endpoint::poll() {
  if (done_.empty()) return std::nullopt;
  const EndpointCompletion done = done_.pop();
  --(done.receive ? unpolled_recvs_ : unpolled_sends_);
  return done;
}

// --- StreamHost ---

bool Endpoint::take_receive(proto::RecvWqe& out) {
  PostedBuffers::Buffer posted;
  if (!posted_.take(posted)) return false;
  out = {};
  out.wr_id = posted.wr_id;
  out.length = posted.size;
  out.sge_count = 1;
  out.sges()[0] = {reinterpret_cast<std::uintptr_t>(posted.data), posted.size,
                   domain_.local().value};
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
  done_.push(c);
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
  done_.push(c);
}

WcStatus Endpoint::local_operation(proto::SendWqe& wqe) {
  if (wqe.op != SendOp::kLocalInvalidate) return WcStatus::kLocalQpOperation;
  return domain_.invalidate(wqe.remote_stag) ? WcStatus::kSuccess : WcStatus::kLocalQpOperation;
}

proto::Violation Endpoint::remote_invalidate(Stag stag) {
  constexpr Access kRemote = Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic;
  const proto::MemoryEntry* entry = domain_.table().find(stag);
  const bool own = entry != nullptr && stag != domain_.local() &&
                   (entry->spec.access & kRemote) != Access::kNone &&
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

void Endpoint::stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) {
  if (how == proto::StreamEnd::kTerminated) {
    terminated_ = true;
    terminate_ = code;
    terminated_by_peer_ = by_peer;
  }
  set_down();
  flush_receives();
}

void Endpoint::flush_receives() {
  PostedBuffers::Buffer posted;
  while (posted_.remove_oldest(posted)) {
    EndpointCompletion c;
    c.wr_id = posted.wr_id;
    c.status = WcStatus::kFlushed;
    c.receive = true;
    done_.push(c);
  }
}

}  // namespace weft::rddp
