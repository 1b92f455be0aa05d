#include "rddp/ddp_endpoint.h"

#include <new>

#include "wire/fpdu.h"

namespace weft::rddp {

DdpEndpoint::DdpEndpoint(const DdpEndpointConfig& config, Domain& domain, Clock clock)
    : config_(config), domain_(domain), clock_(clock), id_{Domain::kPd, domain.next_stream()} {
  lend(&startup_room_);
}

DdpEndpoint::~DdpEndpoint() { stream_.reset(); }

std::unique_ptr<DdpEndpoint> DdpEndpoint::create(const DdpEndpointConfig& config, Domain& domain,
                                                 Clock clock) {
  if (config.send_depth == 0 || config.recv_depth == 0) return nullptr;
  std::unique_ptr<DdpEndpoint> made(new (std::nothrow) DdpEndpoint(config, domain, clock));
  if (made == nullptr || !made->allocate()) return nullptr;
  return made;
}

bool DdpEndpoint::allocate() {
  return posted_.allocate(config_.recv_depth) &&
         events_.allocate(std::size_t{config_.recv_depth} + config_.notify_depth + 1) &&
         buffers_.allocate(config_.batches);
}

bool DdpEndpoint::begin_stream() {
  proto::DdpParams params;
  params.crc = negotiated().crc;
  params.tx_markers = negotiated().tx_markers;
  params.rx_markers = negotiated().rx_markers;
  params.bare = config_.bare;
  params.may_send = negotiated().initiator;
  params.send_depth = config_.send_depth;
  params.max_ulpdu = mulpdu(segment_size(), negotiated().tx_markers);
  stream_.reset(new (std::nothrow) proto::DdpStream(params, *this));
  if (stream_ == nullptr || !stream_->good()) return false;
  if (!params.may_send) speak_at_ = clock_() + config_.patience;
  return true;
}

Instant DdpEndpoint::deadline() const noexcept {
  return speak_at_ < close_by_ ? speak_at_ : close_by_;
}

void DdpEndpoint::expired(Instant now) {
  if (now >= speak_at_) {
    speak_at_ = Instant::never();
    stream_->speak();
  }
  if (now >= close_by_) {
    close_by_ = Instant::never();
    stream_->transport_lost();
  }
}

void DdpEndpoint::stream_close() {
  stream_->close();
  if (close_by_.is_never()) close_by_ = clock_() + config_.close_timeout;
}

// --- requests ---

Status DdpEndpoint::post(const proto::DdpMessage& message) {
  if (phase() != Phase::kUp || !stream_runs()) return fail(Error::kBadState);
  const Status posted = stream_->post(message);
  if (posted) ++pending_;
  return posted;
}

Status DdpEndpoint::post_recv(std::uint64_t wr_id, void* buffer, std::uint32_t size) {
  if (posted_.full() || posted_.size() + events_.size() - notifications_ >= config_.recv_depth) {
    return fail(Error::kNoSpace);
  }
  posted_.add({wr_id, buffer, size});
  return {};
}

std::optional<DdpEvent> DdpEndpoint::poll() {
  if (events_.empty()) return std::nullopt;
  const DdpEvent event = events_.pop();
  if (event.tagged) --notifications_;
  return event;
}

std::uint32_t DdpEndpoint::segment_max(bool tagged) const noexcept {
  return stream_runs() ? stream_->segment_max(tagged) : 0;
}

// --- DdpHost ---

proto::MemoryFault DdpEndpoint::place(Stag stag, std::uint64_t to, proto::MarkedOctets payload) {
  proto::Pin pin;
  std::uint8_t* at = nullptr;
  const proto::MemoryFault fault =
      domain_.table().resolve(stag, to, payload.size(), Access::kRemoteWrite, id_, pin, at);
  if (fault != proto::MemoryFault::kNone) return fault;
  // DDP has nowhere to keep octets for later: a method takes all of them.
  const bool all =
      proto::store(*pin.entry(), to, at, payload, payload.size()) == proto::Stored::kAll;
  return all ? proto::MemoryFault::kNone : proto::MemoryFault::kBounds;
}

bool DdpEndpoint::tagged_delivered(const DdpTagged& header) {
  if ((header.ulp_ctrl & kNotify) == 0) return true;
  if (notifications_ == config_.notify_depth) return false;
  ++notifications_;
  DdpEvent event;
  event.tagged = true;
  event.control = header.ulp_ctrl;
  events_.push(event);
  return true;
}

bool DdpEndpoint::take_buffer(std::uint32_t /*queue*/, std::span<std::uint8_t>& buffer) {
  PostedBuffers::Buffer posted;
  if (!posted_.take(posted)) return false;
  buffer = {static_cast<std::uint8_t*>(posted.data), posted.size};
  open_buffer_ = posted.wr_id;
  return true;
}

void DdpEndpoint::untagged_delivered(const DdpUntagged& header, std::uint32_t length) {
  DdpEvent event;
  event.wr_id = open_buffer_;
  event.length = length;
  event.control = header.ulp_ctrl;
  events_.push(event);
}

void DdpEndpoint::stream_ended(proto::DdpEnd how) {
  end_ = how;
  speak_at_ = Instant::never();
  set_down();
}

}  // namespace weft::rddp
