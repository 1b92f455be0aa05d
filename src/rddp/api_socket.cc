// One connection: requests, indications, memory.
#include <new>
#include <utility>

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
  next_of_device = device.sockets;
  device.sockets = this;
}

rddp_socket::~rddp_socket() {
  rddp_socket** at = &device.sockets;
  while (*at != this) at = &(*at)->next_of_device;
  *at = next_of_device;
  if (held_) --device.held;
  link.reset();
  give_back_buffers();
  rdma.reset();
  ddp.reset();
  // Nothing reads or writes the regions any more: each can be removed.
  while (regions_ != nullptr) (void)remove_region(regions_->stag.value);
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
    config.close_timeout = weft::rddp::kCloseLimit;
    rdma = weft::rddp::Endpoint::create(config, *device.domain, device.network->clock());
    if (rdma == nullptr) return false;
    rdma->on_receive_taken(taken_fn, this);
  } else {
    weft::rddp::DdpEndpointConfig config;
    config.bare = kind == RDDP_XPT;
    config.send_depth = o.send_depth;
    config.recv_depth = o.recv_depth;
    config.notify_depth = o.notify_depth;
    config.close_timeout = weft::rddp::kCloseLimit;
    ddp = weft::rddp::DdpEndpoint::create(config, *device.domain, device.network->clock());
    if (ddp == nullptr) return false;
    ddp->posted().on_taken(taken_fn, this);
  }
  return inbox_.allocate(std::size_t{o.recv_depth} + o.send_depth + o.notify_depth + 1) &&
         reading_.allocate(o.send_depth) && posted_here_.allocate(o.recv_depth);
}

bool rddp_socket::hold() {
  if (device.held == device.options.sockets) return false;
  ++device.held;
  held_ = true;
  return true;
}

Channel& rddp_socket::channel() const {
  if (kind == RDDP_RDMA) return *rdma;
  return *ddp;
}

bool rddp_socket::is_up() const { return phase() == Phase::kUp; }

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

void rddp_socket::close() {
  if (link == nullptr) return;
  // Only a connection that was set up, or refused by its program, has something to end in order.
  const bool orderly =
      phase() == Phase::kUp || phase() == Phase::kDown || phase() == Phase::kRefused;
  if (!orderly) return;
  const Instant limit = device.now() + weft::rddp::kCloseLimit;
  if (is_up()) channel().close();
  link->progress();
  while (!link->closed() && device.now() < limit) device.pump(limit);
}

// At least one turn is made before `limit` counts, so that a limit of 0 sees what has come.
template <class Done>
int rddp_socket::await(Instant limit, Done done) {
  bool last = false;
  while (true) {
    collect();
    if (done()) return RDDP_OK;
    // lwIP may still read memory of requests when the stream has ended, until its connection has.
    const bool in_use = pending() != 0 && link != nullptr && !link->closed();
    if (!is_up() && !in_use) return RDDP_DOWN;
    if (last) return timeout_ms == 0 ? RDDP_AGAIN : RDDP_TIMED_OUT;
    last = device.now() >= limit;
    device.pump(limit);
  }
}

// --- sending ---

std::uint32_t rddp_socket::pending() const {
  return kind == RDDP_RDMA ? rdma_pending_ : ddp->pending();
}

bool rddp_socket::lost_some() const { return kind == RDDP_RDMA ? lost_some_ : ddp->lost_some(); }

int rddp_socket::flush() {
  return pending() == 0 ? RDDP_OK : await(device.in(timeout_ms), [this] { return pending() == 0; });
}

template <class Post>
int rddp_socket::submit(Post post) {
  if (!is_up()) return phase() == Phase::kDown ? RDDP_DOWN : RDDP_BAD_STATE;
  const Instant limit = device.in(timeout_ms);
  const int room = await(limit, [this] { return pending() < device.options.send_depth; });
  if (room != RDDP_OK) return room;
  if (const weft::Status posted = post(); !posted) return weft::rddp::status_of(posted.error());
  link->progress();
  if (timeout_ms == 0) {
    collect();
    return RDDP_OK;
  }
  // Memory is released in the order of posting, and nobody else posts meanwhile.
  const int status = await(limit, [this] { return pending() == 0; });
  if (status == RDDP_OK && lost_some()) return RDDP_DOWN;
  return status == RDDP_TIMED_OUT ? RDDP_PENDING : status;
}

int rddp_socket::send(const weft::SendWr& wr) {
  return submit([&] {
    const weft::Status posted = rdma->post(wr);
    if (posted) ++rdma_pending_;
    return posted;
  });
}

int rddp_socket::send(const weft::proto::DdpMessage& message) {
  return submit([&] { return ddp->post(message); });
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
  if (reading_.size() + inbox_reads_ == reading_.capacity()) return RDDP_FULL;
  const weft::Sge sink{to.offset, length, to.stag};
  weft::SendWr wr;
  wr.op = weft::SendOp::kRead;
  wr.flags = weft::SendFlags::kSignaled;
  wr.sges = {&sink, 1};
  wr.rkey = from.stag;
  wr.remote_addr = from.offset;
  const int status = submit([&] {
    const weft::Status posted = rdma->post(wr);
    if (posted) {
      ++rdma_pending_;
      reading_.push({to, length, timeout_ms == 0});
    }
    return posted;
  });
  // Nobody waits for it any more: its end is indicated.
  if (status == RDDP_PENDING) reading_[reading_.size() - 1].indicate = true;
  return status;
}

// --- receiving ---

int rddp_socket::post(ddp_posted_t& buffer) {
  if (buffer.data == nullptr && buffer.length != 0) return RDDP_INVALID;
  if (buffer.posted == kBeingFilled) return RDDP_INVALID;
  if (phase() == Phase::kDown || phase() == Phase::kFailed || phase() == Phase::kRefused) {
    return RDDP_DOWN;
  }
  if (posted_here_.size() + inbox_buffers_ >= device.options.recv_depth) return RDDP_FULL;
  const auto posted = kind == RDDP_RDMA
                          ? rdma->post_recv(number_of(buffer), buffer.data, buffer.length)
                          : ddp->post_recv(number_of(buffer), buffer.data, buffer.length);
  if (!posted) return weft::rddp::status_of(posted.error());
  posted_here_.push(&buffer);
  ++buffer.posted;
  return RDDP_OK;
}

// A message of this socket goes into the buffer: no other socket may use it.
void rddp_socket::taken(std::uint64_t wr_id) {
  ddp_posted_t& buffer = buffer_of(wr_id);
  for (rddp_socket* s = device.sockets; s != nullptr; s = s->next_of_device) {
    s->release_buffer(buffer);
  }
  buffer.posted = kBeingFilled;
  posted_here_.push(&buffer);
}

// Takes it off this socket, as often as it is posted here. The endpoint of a connection that has
// ended does not have it any more: it has completed it as flushed, and nobody collected that yet.
void rddp_socket::release_buffer(ddp_posted_t& buffer) {
  while (posted_here_.remove_one(&buffer)) --buffer.posted;
  const std::uint64_t number = number_of(buffer);
  while (kind == RDDP_RDMA ? rdma->unpost(number) : ddp->posted().remove(number)) {
  }
}

// The endpoint uses none of them any more.
void rddp_socket::give_back_buffers() {
  while (!posted_here_.empty()) {
    ddp_posted_t& buffer = *posted_here_.pop();
    buffer.posted -= buffer.posted == kBeingFilled ? kBeingFilled : 1;
  }
}

void rddp_socket::put(const ddp_ind_t& indication) {
  inbox_.push(indication);
  if (indication.buffer != nullptr) ++inbox_buffers_;
  if (indication.kind == DDP_IND_READ) ++inbox_reads_;
}

void rddp_socket::sent(const EndpointCompletion& done) {
  --rdma_pending_;
  lost_some_ = lost_some_ || done.status != WcStatus::kSuccess;
  if (done.op != weft::SendOp::kRead) return;
  const Reading read = reading_.pop();
  if (!read.indicate || done.status != WcStatus::kSuccess) return;
  ddp_ind_t ind{};
  ind.kind = DDP_IND_READ;
  ind.address = read.to;
  ind.length = read.length;
  put(ind);
}

void rddp_socket::received(const EndpointCompletion& done) {
  ddp_posted_t& buffer = buffer_of(done.wr_id);
  // Another socket took it after this connection had ended: it may be gone by now.
  if (!posted_here_.remove_one(&buffer)) return;
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
    collect_rdma();
  } else {
    collect_ddp();
  }
}

void rddp_socket::collect_rdma() {
  while (const auto done = rdma->poll()) {
    if (done->receive) {
      received(*done);
    } else {
      sent(*done);
    }
  }
}

// Notifications wait where they are counted; see DdpEndpoint.
void rddp_socket::collect_ddp() {
  while (!inbox_.full()) {
    const auto event = ddp->poll();
    if (!event) {
      if (phase() == Phase::kDown) give_back_buffers();
      return;
    }
    ddp_ind_t ind{};
    ind.kind = event->tagged ? DDP_IND_WRITTEN : DDP_IND_MESSAGE;
    if (event->tagged) {
      ind.id = event->control & (weft::rddp::DdpEndpoint::kNotify - 1U);
    } else {
      ddp_posted_t& buffer = buffer_of(event->wr_id);
      (void)posted_here_.remove_one(&buffer);
      buffer.posted = 0;
      ind.buffer = &buffer;
      ind.length = event->length;
    }
    put(ind);
  }
}

// Every call of ddp_recv() returns this once the connection has ended.
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
  if (inbox_.empty()) {
    (void)await(device.in(timeout_ms), [this] { return !inbox_.empty(); });
  }
  if (inbox_.empty()) return last_indication();
  const ddp_ind_t ind = inbox_.pop();
  if (ind.buffer != nullptr) --inbox_buffers_;
  if (ind.kind == DDP_IND_READ) --inbox_reads_;
  return ind;
}

// --- memory ---

// Describes the buffer for the table. A part of a file is mapped.
int rddp_socket::describe(const ddp_buffer_t& b, Registration& made,
                          weft::proto::MemorySpec& spec) {
  const bool writable = weft::has(spec.access, Access::kRemoteWrite);
  if (b.kind == RDDP_FILE) {
    auto mapped = device.network->map(b.fd, b.file_offset, b.length, writable);
    if (!mapped) return weft::rddp::status_of(mapped.error());
    made.mapping = *mapped;
    spec.addr = static_cast<std::uint8_t*>(made.mapping.memory);
    if (writable) spec.access = spec.access | Access::kLocalWrite;
  } else if (b.kind == RDDP_METHOD) {
    if (b.set == nullptr || weft::has(spec.access, Access::kRemoteRead)) return RDDP_INVALID;
    made.method = {b.set, b.context};
    spec.addr = reinterpret_cast<std::uint8_t*>(&made.method);
    spec.access = spec.access | weft::proto::kByMethod | Access::kLocalWrite;
  } else {
    if (b.kind != RDDP_MEMORY || b.memory == nullptr) return RDDP_INVALID;
    spec.addr = static_cast<std::uint8_t*>(b.memory);
    spec.access = spec.access | Access::kLocalWrite;
  }
  return RDDP_OK;
}

int rddp_socket::add_region(const ddp_buffer_t& b, Access remote, ddp_bdesc_t& out) {
  if (b.length == 0) return RDDP_INVALID;
  std::unique_ptr<Registration> made(new (std::nothrow) Registration);
  if (made == nullptr) return RDDP_NO_MEMORY;
  weft::proto::MemorySpec spec;
  spec.access = remote;
  if (const int status = describe(b, *made, spec); status != RDDP_OK) return status;
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
  made->next = std::move(regions_);
  regions_ = std::move(made);
  return RDDP_OK;
}

int rddp_socket::remove_region(std::uint32_t handle) {
  std::unique_ptr<Registration>* at = &regions_;
  while (*at != nullptr && (*at)->stag.value != handle) at = &(*at)->next;
  if (*at == nullptr) return RDDP_NOT_FOUND;
  const std::unique_ptr<Registration>& found = *at;
  // kNotFound: a Send with Invalidate of the peer has been there before.
  if (const weft::Status gone = device.domain->remove(found->stag);
      !gone && gone.error() == weft::Error::kBusy) {
    return RDDP_IN_USE;
  }
  if (found->mapping.base != nullptr) device.network->unmap(found->mapping);
  std::unique_ptr<Registration> rest = std::move((*at)->next);
  *at = std::move(rest);
  return RDDP_OK;
}
