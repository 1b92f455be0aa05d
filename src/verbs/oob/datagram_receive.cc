// The receive side of queue pairs of datagrams.
#include <sys/socket.h>
#include <weft/wiring.h>

#include <algorithm>
#include <cassert>

#include "io/socket.h"
#include "os/calls.h"
#include "roce/qp_number.h"
#include "verbs/cq.h"
#include "verbs/oob/datagram_qp.h"
#include "verbs/oob/peer_directory.h"
#include "verbs/pd.h"
#include "verbs/posting.h"
#include "verbs/srq.h"

namespace weft::verbs {

namespace {

constexpr int kRoundsPerTurn = 4;
constexpr std::uint8_t kLevelIpv4 = 2;
constexpr std::uint8_t kLevelIpv6 = 1;

bool receives(QpState state) {
  return state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd ||
         state == QpState::kSqe;
}

}  // namespace

// How many datagrams to read at once: those that have a receive. Without one they wait in the
// socket while the program has completions to take, since it posts receives for these; else they
// are read and lost, as they are in other states.
std::size_t DatagramQp::batch_size(WithoutReceive what) const {
  if (!receives(state())) return kBatch;
  std::size_t posted = 0;
  if (srq_ != nullptr) {
    posted = srq_->posted();
  } else if (caps_.max_recv_wr != 0) {
    posted = rings_.receives.size();
  }
  if (posted != 0) return std::min(posted, kBatch);
  return what == WithoutReceive::kWait && recv_cq_->has_completions() ? 0 : kBatch;
}

// Reads what is there, in bounded portions. True: some may wait for the program to post receives.
bool DatagramQp::receive(WithoutReceive what) {
  std::array<mmsghdr, kBatch> messages;
  std::array<iovec, kBatch> pieces;
  std::array<SocketAddress, kBatch> sources;
  std::array<MarksBuffer, kBatch> controls;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    const std::size_t most = batch_size(what);
    if (most == 0) return true;
    for (std::size_t i = 0; i < most; ++i) {
      pieces[i] = {(*in_.slots)[i].data(), kSlot};
      messages[i] = {};
      msghdr& m = messages[i].msg_hdr;
      m.msg_name = sources[i].get();
      m.msg_namelen = SocketAddress::capacity();
      m.msg_iov = &pieces[i];
      m.msg_iovlen = 1;
      m.msg_control = controls[i].octets.data();
      m.msg_controllen = controls[i].octets.size();
    }
    const int n = os::calls::recvmmsg(socket_.get(), messages.data(), static_cast<unsigned>(most),
                                      MSG_DONTWAIT);
    if (n <= 0) return false;
    counts_.rx_calls.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      counts_.rx_bytes.fetch_add(messages[at].msg_len, std::memory_order_relaxed);
      const bool cut = (messages[at].msg_hdr.msg_flags & MSG_TRUNC) != 0;
      if (cut) {
        drop();
      } else {
        take(std::span(std::as_const((*in_.slots)[at])).first(messages[at].msg_len),
             sources[at].unmapped(), marks_of(messages[at].msg_hdr));
      }
    }
    if (static_cast<std::size_t>(n) < most) return false;
  }
  return false;
}

// It has to be meant for this queue pair, and to come from where its sender's number says.
bool DatagramQp::is_wanted(const roce::Datagram& header, const SocketAddress& source,
                           const Gid& own) {
  return receives(state()) && header.to == number() &&
         header.key == key_.load(std::memory_order_relaxed) &&
         source.port() == roce::split_number(header.from).port && is_own(own);
}

// Whether it came to the device that the program has opened: the socket hears all of this machine.
bool DatagramQp::is_own(const Gid& gid) {
  if (in_.has_gid == nullptr || gid == Gid{} || gid == in_.last_own) return true;
  if (!in_.has_gid(gid)) return false;
  in_.last_own = gid;
  return true;
}

void DatagramQp::take(std::span<const std::uint8_t> octets, const SocketAddress& source,
                      const IpMarks& marks) {
  ByteReader in(octets);
  const auto header = roce::decode_datagram(in);
  if (!header || !is_wanted(*header, source, marks.own)) return drop();
  if (!take_receive()) {
    if (in_.on_late_receive) in_.on_late_receive(LateReceive::kLost, Duration{0});
    return drop();
  }
  WorkCompletion wc;
  const auto payload = octets.subspan(roce::Datagram::kSize);
  wc.op = WcOp::kRecv;
  wc.flags = WcFlags::kGrh;
  if (header->with_immediate) wc.flags = wc.flags | WcFlags::kWithImm;
  if (header->solicited) wc.flags = wc.flags | WcFlags::kSolicited;
  wc.imm_data = std::uint64_t{header->immediate} << 32U;
  wc.source_qp = header->from;
  wc.service_level = source.family() == AF_INET ? kLevelIpv4 : kLevelIpv6;
  wc.byte_len = static_cast<std::uint32_t>(roce::kGrhSize + payload.size());
  counts_.rx_datagrams.fetch_add(1, std::memory_order_relaxed);
  complete_receive(place(payload, source, marks), wc);
}

bool DatagramQp::take_receive() {
  if (srq_ != nullptr) return srq_->take(in_.receive.wqe);
  if (caps_.max_recv_wr == 0 || rings_.receives.head() == rings_.receives.tail()) return false;
  copy_recv(rings_.receives.at(rings_.receives.head()), in_.receive.wqe);
  rings_.receives.retire();
  return true;
}

WcStatus DatagramQp::place(std::span<const std::uint8_t> payload, const SocketAddress& source,
                           const IpMarks& marks) {
  if (roce::kGrhSize + payload.size() > in_.receive.wqe.length) return WcStatus::kLocalLength;
  roce::Grh grh;
  grh.from = gid_of(source);
  grh.to = marks.own == Gid{} ? device_.peer_directory()->gid() : marks.own;
  grh.traffic_class = marks.traffic_class;
  if (marks.hop_limit != 0) grh.hop_limit = marks.hop_limit;
  grh.payload = static_cast<std::uint16_t>(roce::Datagram::kSize + payload.size());
  const auto octets = encode_grh(grh);
  const std::size_t unwritten =
      source.family() == AF_INET ? roce::kGrhSize - roce::kGrhSizeIpv4 : 0;
  const bool placed = scatter_to_sges(unwritten, std::span(octets).subspan(unwritten)) &&
                      scatter_to_sges(roce::kGrhSize, payload);
  return placed ? WcStatus::kSuccess : WcStatus::kLocalProtection;
}

// A shared queue's receives name memory of its own domain.
proto::StreamId DatagramQp::receive_user() const {
  return srq_ != nullptr ? proto::StreamId{srq_->pd()->number(), number()} : memory_user();
}

// Stores octets from `at` of the receive on.
bool DatagramQp::scatter_to_sges(std::size_t at, std::span<const std::uint8_t> octets) {
  proto::Pin pin;
  for (std::uint32_t i = 0; i < in_.receive.wqe.sge_count && !octets.empty(); ++i) {
    const Sge& sge = in_.receive.wqe.sges()[i];
    if (at >= sge.length) {
      at -= sge.length;
      continue;
    }
    const std::size_t size = std::min<std::size_t>(sge.length - at, octets.size());
    std::uint8_t* to = nullptr;
    if (!resolve(sge, at, size, Access::kLocalWrite, receive_user(), pin, to, in_.on_refused))
      return false;
    if (!in_.copy(to, octets.data(), size)) return false;
    octets = octets.subspan(size);
    at = 0;
  }
  return octets.empty();
}

void DatagramQp::complete_receive(WcStatus status, const WorkCompletion& about) {
  assert(recv_cq_ != nullptr);
  WorkCompletion wc = about;
  wc.wr_id = in_.receive.wqe.wr_id;
  wc.status = status;
  wc.qp_num = number();
  const bool solicited = status != WcStatus::kSuccess || has(wc.flags, WcFlags::kSolicited);
  recv_cq_->push(wc, solicited,
                 srq_ != nullptr ? SlotsToFree{}
                                 : SlotsToFree{&rings_.freed.receives, rings_.receives.head()});
}

// --- posts ---

Posted DatagramQp::post_recv(std::span<const RecvWr> wrs) {
  Posted posted;
  posted.error = !device_.usable() ? Error::kBadState
                                   : may_receive(state(), srq_ != nullptr, caps_, wrs.size());
  if (posted.error != kTaken) return posted;
  {
    const os::SpinGuard lock(rq_lock_);
    posted = queue_receives(wrs, caps_.max_recv_sge, rings_.receives, &rings_.freed.receives);
  }
  if (state() != QpState::kError || posted.count == 0) return posted;
  const os::MutexLock lock(rx_mutex_);
  flush_receives();
  return posted;
}

void DatagramQp::flush_receives() {
  if (srq_ != nullptr) return;
  { const os::SpinGuard lock(rq_lock_); }
  while (rings_.receives.head() != rings_.receives.tail()) {
    in_.receive.wqe.wr_id = rings_.receives.at(rings_.receives.head()).wr_id;
    rings_.receives.retire();
    WorkCompletion wc;
    wc.op = WcOp::kRecv;
    if (recv_cq_ != nullptr) complete_receive(WcStatus::kFlushed, wc);
  }
}

}  // namespace weft::verbs
