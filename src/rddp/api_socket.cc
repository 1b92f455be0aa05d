// One connection: requests, indications, memory.
#include <weft/limits.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "rddp/api.h"
#include "wire/terminate.h"

using weft::Access;
using weft::Instant;
using weft::Stag;
using weft::TerminateCode;
using weft::WcStatus;
using weft::rddp::Channel;
using weft::rddp::EndpointCompletion;
using weft::rddp::kBeingFilled;
using weft::rddp::Registration;
using Phase = weft::rddp::Channel::Phase;

namespace {

// Buffers are numbered by their address while they are posted.
std::uint64_t number_of(const ddp_posted_t& buffer) {
  return reinterpret_cast<std::uintptr_t>(&buffer);
}
ddp_posted_t& buffer_of(std::uint64_t wr_id) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return *reinterpret_cast<ddp_posted_t*>(static_cast<std::uintptr_t>(wr_id));
}

ddp_error error_of(const TerminateCode& code) {
  using namespace weft::term;
  if (code == kDdpInvalidStag || code == kDdpStagNotOfStream) return DDP_ERROR_STAG;
  if (code == kRdmapInvalidStag || code == kRdmapStagNotOfStream) return DDP_ERROR_STAG;
  if (code == kRdmapAccess) return DDP_ERROR_RIGHT;
  if (code == kDdpBounds || code == kRdmapBounds || code == kDdpToWrap || code == kRdmapToWrap) {
    return DDP_ERROR_BOUNDS;
  }
  if (code == kDdpNoBuffer) return DDP_ERROR_NO_BUFFER;
  if (code == kDdpTooLong) return DDP_ERROR_TOO_LONG;
  return DDP_ERROR_PROTOCOL;
}

ddp_error error_of(weft::proto::DdpEnd end) {
  using weft::proto::DdpEnd;
  switch (end) {
    case DdpEnd::kOpen:
    case DdpEnd::kOrderly: return DDP_ERROR_NONE;
    case DdpEnd::kLost:
    case DdpEnd::kAborted: return DDP_ERROR_LOST;
    case DdpEnd::kInvalidStag:
    case DdpEnd::kNotOfStream: return DDP_ERROR_STAG;
    case DdpEnd::kNoRight: return DDP_ERROR_RIGHT;
    case DdpEnd::kWrap:
    case DdpEnd::kBounds: return DDP_ERROR_BOUNDS;
    case DdpEnd::kNoBuffer: return DDP_ERROR_NO_BUFFER;
    case DdpEnd::kTooLong: return DDP_ERROR_TOO_LONG;
    case DdpEnd::kRefused: return DDP_ERROR_OVERRUN;
    default: return DDP_ERROR_PROTOCOL;
  }
}

}  // namespace

// --- life ---

rddp_socket::rddp_socket(rddp_device& owner, rddp_kind type) : device(owner), kind(type) {
  device.sockets.push_back(this);
}

rddp_socket::~rddp_socket() {
  std::erase(device.sockets, this);
  link.reset();
  for (ddp_posted_t* buffer : posted_here_) {
    buffer->posted -= buffer->posted == kBeingFilled ? kBeingFilled : 1;
  }
  rdma.reset();
  ddp.reset();
  // Nothing reads or writes them any more, so none is busy.
  while (!regions_.empty()) (void)remove_region(regions_.back()->stag.value);
}

bool rddp_socket::allocate() {
  const rddp_options& o = device.options;
  const auto taken_fn = [](void* self, std::uint64_t wr_id) {
    static_cast<rddp_socket*>(self)->taken(wr_id);
  };
  if (kind == RDDP_RDMA) {
    weft::rddp::EndpointConfig config;
    config.send_depth = o.send_depth;
    config.recv_depth = o.recv_depth;
    rdma = weft::rddp::Endpoint::create(config, *device.domain, device.network->clock());
    if (rdma == nullptr) return false;
    rdma->on_receive_taken(taken_fn, this);
  } else {
    weft::rddp::DdpEndpointConfig config;
    config.bare = kind == RDDP_XPT;
    config.send_depth = o.send_depth;
    config.recv_depth = o.recv_depth;
    config.notify_depth = o.notify_depth;
    ddp = weft::rddp::DdpEndpoint::create(config, *device.domain, device.network->clock());
    if (ddp == nullptr) return false;
    ddp->posted().on_taken(taken_fn, this);
  }
  inbox_.resize(std::size_t{o.recv_depth} + o.send_depth + o.notify_depth + 1);
  reading_.resize(o.send_depth);
  posted_here_.reserve(o.recv_depth);
  return true;
}

Channel& rddp_socket::channel() const {
  if (kind == RDDP_RDMA) return *rdma;
  return *ddp;
}

bool rddp_socket::is_up() const { return channel().phase() == Phase::kUp; }

std::uint32_t rddp_socket::stream_id() const {
  return kind == RDDP_RDMA ? rdma->stream_id() : ddp->stream_id();
}

void rddp_socket::keep_time(Instant now) {
  Channel& c = channel();
  const bool starting = c.phase() == Phase::kStarting || c.phase() == Phase::kIdle;
  if (now >= start_by) {
    if (starting) c.abort();
    start_by = Instant::never();
  }
  if (now >= c.deadline()) c.expired(now);
  if (link != nullptr) link->progress();
}

template <class Done>
int rddp_socket::await(int limit_ms, Done done) {
  const Instant limit =
      limit_ms < 0 ? Instant::never() : device.now() + std::chrono::milliseconds(limit_ms);
  bool last = false;
  while (true) {
    collect();
    if (done()) return RDDP_OK;
    if (!is_up()) return RDDP_DOWN;
    if (last) return limit_ms == 0 ? RDDP_AGAIN : RDDP_TIMED_OUT;
    last = device.now() >= limit;
    device.pump(limit);
  }
}

// --- sending ---

std::uint32_t rddp_socket::pending() const {
  return kind == RDDP_RDMA ? rdma_pending_ : ddp->pending();
}

int rddp_socket::flush() {
  if (channel().phase() != Phase::kUp && pending() != 0) return RDDP_DOWN;
  return await(timeout_ms, [this] { return pending() == 0; });
}

// A request has been handed over, as number `mine`: its memory is free once it is done.
int rddp_socket::send(const weft::SendWr& wr) {
  const bool up = is_up();
  if (!up) return channel().phase() == Phase::kDown ? RDDP_DOWN : RDDP_BAD_STATE;
  const std::uint32_t depth = device.options.send_depth;
  const int room = await(timeout_ms, [&] { return rdma_pending_ < depth; });
  if (room != RDDP_OK) return room;
  if (const weft::Status posted = rdma->post(wr); !posted) {
    return weft::rddp::status_of(posted.error());
  }
  ++rdma_pending_;
  const std::uint64_t mine = ++issued_;
  link->progress();
  if (timeout_ms == 0) {
    collect();
    return RDDP_OK;
  }
  const int status = await(timeout_ms, [&] { return completed_ >= mine; });
  return status == RDDP_OK && lost_some_ ? RDDP_DOWN : status;
}

int rddp_socket::send(const weft::proto::DdpMessage& message) {
  if (!is_up()) return channel().phase() == Phase::kDown ? RDDP_DOWN : RDDP_BAD_STATE;
  const std::uint32_t depth = device.options.send_depth;
  const int room = await(timeout_ms, [&] { return ddp->pending() < depth; });
  if (room != RDDP_OK) return room;
  if (const weft::Status posted = ddp->post(message); !posted) {
    return weft::rddp::status_of(posted.error());
  }
  link->progress();
  if (timeout_ms == 0) return RDDP_OK;
  // Messages are released in order, and nobody else posts meanwhile.
  const int status = await(timeout_ms, [&] { return ddp->pending() == 0; });
  return status == RDDP_OK && ddp->lost_some() ? RDDP_DOWN : status;
}

int rddp_socket::read(ddp_addr_t from, std::uint32_t length, ddp_addr_t to) {
  if (length == 0) return RDDP_INVALID;
  weft::proto::Pin pin;
  std::uint8_t* at = nullptr;
  const auto fault =
      device.domain->table().resolve(Stag{to.stag}, to.offset, length, Access::kLocalWrite,
                                     {weft::rddp::Domain::kPd, stream_id()}, pin, at);
  if (fault != weft::proto::MemoryFault::kNone) return RDDP_INVALID;
  pin.release();
  if (reading_count_ + inbox_reads_ == reading_.size()) return RDDP_FULL;
  const weft::Sge sink{to.offset, length, to.stag};
  weft::SendWr wr;
  wr.op = weft::SendOp::kRead;
  wr.flags = weft::SendFlags::kSignaled;
  wr.sges = {&sink, 1};
  wr.rkey = from.stag;
  wr.remote_addr = from.offset;
  reading_[(reading_head_ + reading_count_) % reading_.size()] = {to, length, timeout_ms == 0};
  ++reading_count_;
  const std::uint64_t before = issued_;
  const int status = send(wr);
  if (issued_ == before) --reading_count_;  // it was not posted
  return status;
}

// --- receiving ---

int rddp_socket::post(ddp_posted_t& buffer) {
  if (buffer.data == nullptr && buffer.length != 0) return RDDP_INVALID;
  if (buffer.posted == kBeingFilled) return RDDP_INVALID;
  const Phase phase = channel().phase();
  if (phase == Phase::kDown || phase == Phase::kFailed || phase == Phase::kRefused) {
    return RDDP_DOWN;
  }
  if (posted_here_.size() + inbox_buffers_ >= device.options.recv_depth) return RDDP_FULL;
  const auto posted = kind == RDDP_RDMA
                          ? rdma->post_recv(number_of(buffer), buffer.data, buffer.length)
                          : ddp->post_recv(number_of(buffer), buffer.data, buffer.length);
  if (!posted) return weft::rddp::status_of(posted.error());
  posted_here_.push_back(&buffer);
  ++buffer.posted;
  return RDDP_OK;
}

// A message of this socket goes into the buffer: no other socket may use it.
void rddp_socket::taken(std::uint64_t wr_id) {
  ddp_posted_t& buffer = buffer_of(wr_id);
  const auto mine = std::find(posted_here_.begin(), posted_here_.end(), &buffer);
  posted_here_.erase(mine);
  --buffer.posted;
  for (rddp_socket* s : device.sockets) {
    if (buffer.posted == 0) break;
    s->release_buffer(wr_id);
  }
  buffer.posted = kBeingFilled;
  posted_here_.push_back(&buffer);
}

// Takes it off this socket, as often as it is posted here.
void rddp_socket::release_buffer(std::uint64_t wr_id) {
  while (kind == RDDP_RDMA ? rdma->unpost(wr_id) : ddp->posted().remove(wr_id)) {
    ddp_posted_t& buffer = buffer_of(wr_id);
    posted_here_.erase(std::find(posted_here_.begin(), posted_here_.end(), &buffer));
    --buffer.posted;
  }
}

void rddp_socket::put(const ddp_ind_t& indication) {
  inbox_[(inbox_head_ + inbox_count_++) % inbox_.size()] = indication;
  if (indication.buffer != nullptr) ++inbox_buffers_;
  if (indication.kind == DDP_IND_READ) ++inbox_reads_;
}

void rddp_socket::sent(const EndpointCompletion& done) {
  --rdma_pending_;
  ++completed_;
  lost_some_ = lost_some_ || done.status != WcStatus::kSuccess;
  if (done.op != weft::SendOp::kRead) return;
  const Reading read = reading_[reading_head_];
  reading_head_ = (reading_head_ + 1) % reading_.size();
  --reading_count_;
  if (!read.indicate || done.status != WcStatus::kSuccess) return;
  ddp_ind_t ind{};
  ind.kind = DDP_IND_READ;
  ind.address = read.to;
  ind.length = read.length;
  put(ind);
}

void rddp_socket::received(const EndpointCompletion& done) {
  ddp_posted_t& buffer = buffer_of(done.wr_id);
  posted_here_.erase(std::find(posted_here_.begin(), posted_here_.end(), &buffer));
  buffer.posted -= buffer.posted == kBeingFilled ? kBeingFilled : 1;
  if (done.status != WcStatus::kSuccess) return;  // the end of the connection says why
  ddp_ind_t ind{};
  ind.kind = done.immediate ? DDP_IND_WRITTEN : DDP_IND_MESSAGE;
  ind.buffer = &buffer;
  ind.length = done.byte_len;
  if (done.immediate) ind.id = static_cast<std::uint32_t>(done.imm_data);
  put(ind);
}

void rddp_socket::collect() {
  if (kind == RDDP_RDMA) {
    while (const auto done = rdma->poll()) {
      if (done->receive) {
        received(*done);
      } else {
        sent(*done);
      }
    }
    return;
  }
  // Notifications wait where they are counted; see DdpEndpoint.
  while (inbox_count_ < inbox_.size()) {
    const auto event = ddp->poll();
    if (!event) break;
    ddp_ind_t ind{};
    ind.kind = event->tagged ? DDP_IND_WRITTEN : DDP_IND_MESSAGE;
    if (event->tagged) {
      ind.id = event->control & (weft::rddp::DdpEndpoint::kNotify - 1U);
    } else {
      ddp_posted_t& buffer = buffer_of(event->wr_id);
      posted_here_.erase(std::find(posted_here_.begin(), posted_here_.end(), &buffer));
      buffer.posted = 0;
      ind.buffer = &buffer;
      ind.length = event->length;
    }
    put(ind);
  }
}

// What every call of ddp_recv() gives once the connection has ended.
ddp_ind_t rddp_socket::last_indication() const {
  ddp_ind_t ind{};
  if (is_up()) return ind;
  if (kind != RDDP_RDMA) {
    ind.error = error_of(ddp->end());
  } else if (rdma->terminated()) {
    ind.error = error_of(rdma->terminate_code());
    ind.by_peer = rdma->terminated_by_peer() ? 1 : 0;
  } else if (rdma->stream() == nullptr ||
             rdma->stream()->end() != weft::proto::StreamEnd::kOrderly) {
    ind.error = DDP_ERROR_LOST;
  }
  ind.kind = ind.error == DDP_ERROR_NONE ? DDP_IND_CLOSED : DDP_IND_ERROR;
  return ind;
}

ddp_ind_t rddp_socket::receive() {
  (void)await(timeout_ms, [this] { return inbox_count_ != 0; });
  if (inbox_count_ == 0) return last_indication();
  const ddp_ind_t ind = inbox_[inbox_head_];
  inbox_head_ = (inbox_head_ + 1) % inbox_.size();
  --inbox_count_;
  if (ind.buffer != nullptr) --inbox_buffers_;
  if (ind.kind == DDP_IND_READ) --inbox_reads_;
  return ind;
}

// --- memory ---

int rddp_socket::add_region(const ddp_buffer_t& b, Access remote, ddp_bdesc_t& out) {
  if (b.length == 0) return RDDP_INVALID;
  std::unique_ptr<Registration> made(new (std::nothrow) Registration);
  if (made == nullptr) return RDDP_NO_MEMORY;
  const bool writable = weft::has(remote, Access::kRemoteWrite);
  weft::proto::MemorySpec spec;
  spec.access = remote;
  if (b.kind == RDDP_FILE) {
    auto mapped = device.network->map(b.fd, b.file_offset, b.length, writable);
    if (!mapped) return weft::rddp::status_of(mapped.error());
    made->mapping = *mapped;
    spec.addr = static_cast<std::uint8_t*>(made->mapping.memory);
    if (writable) spec.access = spec.access | Access::kLocalWrite;
  } else if (b.kind == RDDP_METHOD) {
    if (b.set == nullptr || weft::has(remote, Access::kRemoteRead)) return RDDP_INVALID;
    made->method = {b.set, b.context};
    spec.addr = reinterpret_cast<std::uint8_t*>(&made->method);
    spec.access = spec.access | weft::proto::kByMethod | Access::kLocalWrite;
  } else {
    if (b.memory == nullptr) return RDDP_INVALID;
    spec.addr = static_cast<std::uint8_t*>(b.memory);
    spec.access = spec.access | Access::kLocalWrite;
  }
  spec.length = b.length;
  spec.base = b.offset;
  spec.stream = stream_id();
  const auto stag = device.domain->add(spec);
  if (!stag) {
    if (made->mapping.base != nullptr) device.network->unmap(made->mapping);
    return weft::rddp::status_of(stag.error());
  }
  made->stag = *stag;
  out = {stag->value, {stag->value, b.offset}, b.length};
  regions_.push_back(std::move(made));
  return RDDP_OK;
}

int rddp_socket::remove_region(std::uint32_t handle) {
  const auto found = std::find_if(regions_.begin(), regions_.end(),
                                  [&](const auto& r) { return r->stag.value == handle; });
  if (found == regions_.end()) return RDDP_NOT_FOUND;
  // kNotFound: a Send with Invalidate of the peer has been there before.
  if (const weft::Status gone = device.domain->remove((*found)->stag);
      !gone && gone.error() == weft::Error::kBusy) {
    return RDDP_IN_USE;
  }
  if ((*found)->mapping.base != nullptr) device.network->unmap((*found)->mapping);
  regions_.erase(found);
  return RDDP_OK;
}
