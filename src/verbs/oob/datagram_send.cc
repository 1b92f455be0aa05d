// How the datagrams of a queue pair leave.
#include <sys/socket.h>
#include <weft/limits.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "io/datagram_link.h"
#include "os/calls.h"
#include "os/guarded.h"
#include "roce/qp_number.h"
#include "verbs/oob/datagram_qp.h"
#include "verbs/oob/peer_directory.h"
#include "verbs/pd.h"

namespace weft::verbs {

// kLost: there is no such queue pair, which an adapter's sender would not learn either.
DatagramQp::Prepared DatagramQp::prepare(proto::SendWqe& wqe, std::size_t slot) {
  const Target& target = *target_of(wqe);
  roce::Datagram header;
  header.with_immediate = wqe.op == SendOp::kImmediate;
  header.solicited = wqe.has_flag(SendFlags::kSolicited);
  header.from = number();
  header.to = target.number;
  header.key = target.key;
  header.immediate = static_cast<std::uint32_t>(wqe.imm_data >> 32U);
  auto& octets = (*out_.slots)[slot];
  if (!gather(wqe, octets.data() + roce::Datagram::kSize)) return Prepared::kBad;
  if (!roce::is_number(target.number)) return Prepared::kLost;
  const auto address =
      address_of(target.gid, roce::split_number(target.number).port, target.own.interface);
  if (!address) return Prepared::kLost;
  ByteWriter out{std::span(octets)};
  encode(header, out);
  out_.to[slot] = *address;
  out_.size[slot] = roce::Datagram::kSize + wqe.length;
  out_.marks[slot] = {target.traffic_class, target.hop_limit, target.own.gid};
  out_.interface[slot] = target.own.interface;
  return Prepared::kReady;
}

// Copies the payload: it is small, and the memory is pinned for no longer than that.
bool DatagramQp::gather(proto::SendWqe& wqe, std::uint8_t* to) const {
  if (wqe.is_inline()) {
    std::memcpy(to, wqe.inline_data(), wqe.length);
    return true;
  }
  proto::Pin pin;
  for (std::uint32_t i = 0; i < wqe.sge_count; ++i) {
    const Sge& sge = wqe.sges()[i];
    if (sge.length == 0) continue;
    std::uint8_t* at = nullptr;
    if (!resolve(sge, 0, sge.length, Access::kNone, memory_user(), pin, at, out_.on_refused))
      return false;
    std::memcpy(to, at, sge.length);
    to += sge.length;
  }
  return true;
}

// How many are gone. Fewer than `count`: call again, or out_.blocked is set.
std::size_t DatagramQp::send_batch(std::size_t count) {
  if (count == 0) return 0;
  std::array<mmsghdr, kBatch> messages{};
  std::array<iovec, kBatch> pieces{};
  std::array<MarksBuffer, kBatch> controls;
  for (std::size_t i = 0; i < count; ++i) {
    pieces[i] = {(*out_.slots)[i].data(), out_.size[i]};
    msghdr& m = messages[i].msg_hdr;
    m.msg_name = out_.to[i].get();
    m.msg_namelen = out_.to[i].size();
    m.msg_iov = &pieces[i];
    m.msg_iovlen = 1;
    put_marks(m, controls[i], out_.to[i].family(), out_.marks[i], out_.interface[i]);
  }
  const int n =
      link_takes(std::span(messages).first(count))
          ? static_cast<int>(count)
          : os::calls::sendmmsg(socket_.get(), messages.data(), static_cast<unsigned>(count),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0 && errno == EINTR) return 0;
  if (n < 0 && errno == EAGAIN) {
    out_.blocked = true;
    const os::MutexLock lock(watch_mutex_);
    watch_.wants_room = true;
    watch();
    return 0;
  }
  // No way there: as lost as on a wire that is cut.
  const std::size_t gone = n < 0 ? 1 : static_cast<std::size_t>(n);
  counts_.tx_calls.fetch_add(1, std::memory_order_relaxed);
  counts_.tx_datagrams.fetch_add(gone, std::memory_order_relaxed);
  for (std::size_t i = 0; i < gone; ++i) {
    counts_.tx_bytes.fetch_add(out_.size[i], std::memory_order_relaxed);
  }
  return gone;
}

// For tests: a bad link has them from then on. Whose link it is, is asked once.
bool DatagramQp::link_takes(std::span<const mmsghdr> messages) {
  if (out_.link_of) {
    static_cast<void>(os::guarded([&]() WEFT_NOT_ANALYZED -> Status {
      out_.link = io::make_datagram_link(out_.link_of(SocketAddress()), socket_.get());
      return {};
    }));
    out_.link_of = nullptr;
  }
  if (out_.link == nullptr) return false;
  for (const mmsghdr& one : messages) out_.link->send(one.msg_hdr);
  return true;
}

}  // namespace weft::verbs
