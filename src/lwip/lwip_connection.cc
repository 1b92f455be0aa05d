#include "lwip/lwip_connection.h"

#include <algorithm>
#include <cstring>

#include <lwip/pbuf.h>
#include <lwip/prot/tcp.h>
#include <lwip/tcp.h>
#include <lwip_hooks.h>

namespace weft::lwip {

namespace {

// tcp_write() takes lengths of 16 bits.
constexpr std::size_t kWriteMax = 0xffff;
// The headers of an FPDU, and a marker.
constexpr std::size_t kCopyMax = 32;
// Polls of lwIP come every 500 ms; this many of them make one call.
constexpr std::uint8_t kPollInterval = 1;

err_t connected(void* arg, tcp_pcb* /*pcb*/, err_t /*error*/) {
  return static_cast<Connection*>(arg)->on_connected();
}
err_t received(void* arg, tcp_pcb* /*pcb*/, pbuf* p, err_t /*error*/) {
  return static_cast<Connection*>(arg)->on_received(p);
}
err_t acknowledged(void* arg, tcp_pcb* /*pcb*/, u16_t n) {
  return static_cast<Connection*>(arg)->on_acknowledged(n);
}
err_t polled(void* arg, tcp_pcb* /*pcb*/) { return static_cast<Connection*>(arg)->on_poll(); }
void failed(void* arg, err_t error) { static_cast<Connection*>(arg)->on_error(error); }
err_t accepted(void* arg, tcp_pcb* pcb, err_t error) {
  return static_cast<Listener*>(arg)->on_accept(pcb, error);
}

Error error_of(err_t error) {
  switch (error) {
    case ERR_MEM:
    case ERR_BUF: return Error::kNoMemory;
    case ERR_RTE: return Error::kUnreachable;
    case ERR_USE: return Error::kAddressInUse;
    case ERR_RST: return Error::kRefused;
    case ERR_ABRT: return Error::kTimedOut;
    default: return Error::kSystem;
  }
}

}  // namespace

Connection::Connection(rddp::Channel& channel, const ConnectionOptions& options)
    : channel_(channel), options_(options) {}

Connection::~Connection() {
  if (pcb_ == nullptr) return;
  tcp_pcb* pcb = pcb_;
  detach();
  tcp_abort(pcb);
  channel_.lost(false);
  channel_.transport_closed();
}

void Connection::attach(tcp_pcb* pcb) {
  pcb_ = pcb;
  tcp_arg(pcb, this);
  tcp_recv(pcb, received);
  tcp_sent(pcb, acknowledged);
  tcp_err(pcb, failed);
  tcp_poll(pcb, polled, kPollInterval);
  tcp_nagle_disable(pcb);
  if (options_.keepalive.count() > 0) {
    ip_set_option(pcb, SOF_KEEPALIVE);
    pcb->keep_idle = static_cast<std::uint32_t>(options_.keepalive.count());
  }
}

// lwIP no longer knows this connection.
void Connection::detach() {
  tcp_arg(pcb_, nullptr);
  tcp_recv(pcb_, nullptr);
  tcp_sent(pcb_, nullptr);
  tcp_err(pcb_, nullptr);
  tcp_poll(pcb_, nullptr, 0);
  pcb_ = nullptr;
}

Status Connection::connect(const ip_addr_t* local, const ip_addr_t& peer, std::uint16_t port,
                           const proto::StartupOffer& offer) {
  if (pcb_ != nullptr) return fail(Error::kBadState);
  tcp_pcb* pcb = tcp_new();
  if (pcb == nullptr) return fail(Error::kNoMemory);  // nothing has begun: it may be tried again
  if (const Status begun = channel_.initiate(offer); !begun) {
    tcp_abort(pcb);
    return begun;
  }
  attach(pcb);
  err_t error = ERR_OK;
  if (local != nullptr) error = tcp_bind(pcb, local, 0);
  if (error == ERR_OK) error = tcp_connect(pcb, &peer, port, connected);
  connecting_ = error == ERR_OK;
  if (connecting_) return {};
  detach();
  tcp_abort(pcb);
  channel_.lost(false);
  return fail(error_of(error));
}

void Connection::adopt(tcp_pcb* pcb) {
  attach(pcb);
  channel_.set_segment_size(tcp_mss(pcb));
  channel_.respond();
}

// --- lwIP's callbacks ---

err_t Connection::on_connected() {
  connecting_ = false;
  channel_.set_segment_size(tcp_mss(pcb_));
  return settle();
}

err_t Connection::on_received(pbuf* p) {
  if (p == nullptr) {
    channel_.peer_closed();
    return settle();
  }
  const std::uint16_t size = p->tot_len;
  receive(p);
  tcp_recved(pcb_, size);
  pbuf_free(p);
  return settle();
}

void Connection::receive(pbuf* p) {
  for (; p != nullptr; p = p->next) {
    channel_.received({static_cast<std::uint8_t*>(p->payload), p->len});
  }
}

// The connection is not ended here: the segment that acknowledges may bring octets as well, and
// lwIP (2.1.3) would lose their buffer, one of the few of a board, for good. time() ends it.
err_t Connection::on_acknowledged(std::uint16_t n) {
  unacknowledged_ -= n;
  channel_.released(n);
  send();
  ending_ = channel_.finished();
  return ERR_OK;
}

err_t Connection::on_poll() { return settle(); }

void Connection::on_error(err_t error) {
  pcb_ = nullptr;  // lwIP has freed it
  if (connecting_) connect_error_ = error_of(error);
  channel_.lost(error == ERR_ABRT);
  channel_.transport_closed();
}

// --- sending ---

// Aligned: an FPDU is begun only when nothing waits to be sent, so that it starts a segment, and
// when there is room for all of it, so that it is all in that one.
bool Connection::may_hand_over() const noexcept {
  if (!options_.aligned || !at_border_) return true;
  return pcb_->unsent == nullptr && tcp_sndbuf(pcb_) >= tcp_mss(pcb_);
}

// Hands over an FPDU, or as much of it as there is room for. False: nothing more to send, or no
// room.
bool Connection::send_some() {
  const std::size_t room = std::min<std::size_t>(tcp_sndbuf(pcb_), kWriteMax);
  held_back_ = !may_hand_over();
  if (room == 0 || held_back_) return false;
  const rddp::TxFpdu fpdu = channel_.next_fpdu();
  const std::size_t size = std::min(fpdu.size, room);
  std::size_t taken = 0;
  for (auto slice = fpdu.slices.begin(); taken != size; ++slice) {
    const std::size_t piece = std::min(slice->size, size - taken);
    // A small piece at the start of a segment goes where lwIP puts the segment's own headers: that
    // costs less than a buffer that refers to it.
    const bool copy = !fpdu.stays || (taken == 0 && at_border_ && piece <= kCopyMax);
    const bool more = taken + piece != fpdu.size;
    const unsigned flags = (copy ? TCP_WRITE_FLAG_COPY : 0U) | (more ? TCP_WRITE_FLAG_MORE : 0U);
    if (tcp_write(pcb_, slice->data, static_cast<u16_t>(piece), static_cast<u8_t>(flags)) !=
        ERR_OK) {
      break;
    }
    taken += piece;
  }
  channel_.taken(taken);
  if (taken == 0) return false;
  unacknowledged_ += static_cast<std::uint32_t>(taken);
  at_border_ = taken == fpdu.size;
  if (at_border_ && options_.aligned) tcp_output(pcb_);
  return true;
}

void Connection::send() {
  while (!channel_.wants_reset() && send_some()) {
  }
  tcp_output(pcb_);
}

// Sends and closes. ERR_ABRT: the connection has been reset, and lwIP must be told so.
err_t Connection::settle() {
  if (pcb_ == nullptr) return ERR_OK;
  send();
  if (channel_.take_fin()) tcp_shutdown(pcb_, 0, 1);
  if (!channel_.finished()) return ERR_OK;
  // lwIP reads what is not acknowledged where it lies, so it must not outlive the channel's hold
  // on that memory. It gives up by itself on a peer that never acknowledges.
  const bool reset = channel_.wants_reset();
  if (!reset && unacknowledged_ != 0) return ERR_OK;
  tcp_pcb* pcb = pcb_;
  detach();
  const bool closed = !reset && tcp_close(pcb) == ERR_OK;
  if (!closed) tcp_abort(pcb);
  channel_.transport_closed();
  return closed ? ERR_OK : ERR_ABRT;
}

void Connection::progress() {
  // A connection that was given up before it was connected is reset as well.
  if (pcb_ != nullptr && (pcb_->state >= ESTABLISHED || channel_.wants_reset())) (void)settle();
}

void Connection::time(Instant now) {
  // In a callback of lwIP's, what an acknowledgment makes room for is sent only afterwards.
  if (pcb_ != nullptr && (ending_ || (held_back_ && may_hand_over()))) progress();
  if (now < channel_.deadline()) return;
  channel_.expired(now);
  progress();
}

// --- segments ahead of their turn ---

// Also sees segments that are old, beyond the window, or in order: those are none of ours. Nothing
// of `p` is changed.
void Connection::on_segment(tcp_hdr* hdr, std::uint16_t /*optlen*/, pbuf* p) {
  const std::uint32_t distance = hdr->seqno - pcb_->rcv_nxt;
  if (distance == 0 || distance >= pcb_->rcv_wnd || p->len == 0) return;
  if (p->tot_len > pcb_->rcv_wnd - distance || p->next != nullptr) return;
  ++ahead_.segments;
  const proto::Ahead placed =
      channel_.place_ahead(distance, {static_cast<const std::uint8_t*>(p->payload), p->len});
  ahead_.fpdus_placed += placed.fpdus;
  if (placed.fpdus != 0) ++ahead_.segments_placed;
}

// --- listening ---

Listener::~Listener() {
  if (pcb_ == nullptr) return;
  tcp_arg(pcb_, nullptr);
  tcp_close(pcb_);
}

Status Listener::listen(const ip_addr_t* local, std::uint16_t port, Acceptor acceptor,
                        void* context) {
  tcp_pcb* pcb = tcp_new();
  if (pcb == nullptr) return fail(Error::kNoMemory);
  const err_t error = tcp_bind(pcb, local, port);
  if (error != ERR_OK) {
    tcp_close(pcb);
    return fail(error_of(error));
  }
  pcb_ = tcp_listen(pcb);
  if (pcb_ == nullptr) {
    tcp_close(pcb);
    return fail(Error::kNoMemory);
  }
  acceptor_ = acceptor;
  context_ = context;
  tcp_arg(pcb_, this);
  tcp_accept(pcb_, accepted);
  return {};
}

std::uint16_t Listener::port() const noexcept { return pcb_ != nullptr ? pcb_->local_port : 0; }

err_t Listener::on_accept(tcp_pcb* pcb, err_t error) {
  if (error != ERR_OK || pcb == nullptr) return ERR_VAL;
  Connection* connection = acceptor_(context_);
  if (connection == nullptr) {
    tcp_abort(pcb);
    return ERR_ABRT;
  }
  connection->adopt(pcb);
  return ERR_OK;
}

}  // namespace weft::lwip

// Called by lwIP for each segment of a connection, before it is put in order. The segment is not
// ours: lwIP goes on with it as if we had not looked.
err_t weft_lwip_segment(tcp_pcb* pcb, tcp_hdr* hdr, u16_t optlen, pbuf* p) {
  // A listening pcb has the same hook and another kind of argument.
  if (pcb->state == LISTEN || pcb->callback_arg == nullptr) return ERR_OK;
  if (pcb->recv != weft::lwip::received) return ERR_OK;  // not one of ours
  static_cast<weft::lwip::Connection*>(pcb->callback_arg)->on_segment(hdr, optlen, p);
  return ERR_OK;
}
