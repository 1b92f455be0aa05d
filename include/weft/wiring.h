// Queue pairs that programs wire by hand: each end tells the other its GID, queue pair number and
// PSN by means of its own, then moves its queue pair to RTR and RTS with what it was told. For
// devices with Config::personality kRoce (docs/personality.md).
//
// Values and pure functions, any thread.
#pragma once

#include <weft/address.h>
#include <weft/config.h>
#include <weft/result.h>

#include <array>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)
namespace weft {

// As verbs carry it: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d.
using Gid = std::array<std::uint8_t, 16>;

// The port of the address is not part of it.
[[nodiscard]] Gid gid_of(const SocketAddress& address);
// The address behind a GID, with this port. `interface` is the number of the interface, for the GID
// of a link (fe80::/10).   kInvalidArgument: it is zero, or multicast
[[nodiscard]] Result<SocketAddress> address_of(const Gid& gid, std::uint16_t port,
                                               std::uint32_t interface = 0);

// The first address of the first device (device_interfaces()).
//   kNotFound   there is none: Config::gid or Config::device names nothing of this machine
[[nodiscard]] Result<SocketAddress> gid_address(const Config& config);

// Which end makes the connection: by their numbers; or, where they know each other by a connection
// already (rdma_cm), this one at once, or this one only if the other does not.
enum class WiringTurn : std::uint8_t { kByNumber, kMine, kOther };

// One of this machine's addresses as a GID, and the number of its interface.
struct OwnGid {
  Gid gid{};  // zeros: gid_address()
  std::uint32_t interface = 0;
};

// The values that RTR needs (attributes of ibv_modify_qp in brackets).
struct WiringToReceive {
  OwnGid own{};  // [ah_attr.grh.sgid_index]
  Gid peer_gid{};
  std::uint32_t peer_number = 0;    // [dest_qp_num]
  std::uint32_t psn = 0;            // [rq_psn] 24 bits
  std::uint8_t reads_served = 1;    // [max_dest_rd_atomic]
  std::uint8_t min_rnr_timer = 12;  // [min_rnr_timer] as verbs encode it
  WiringTurn turn = WiringTurn::kByNumber;
};

// The values that RTS needs.
struct WiringToSend {
  std::uint32_t psn = 0;         // [sq_psn] 24 bits
  std::uint8_t reads_asked = 1;  // [max_rd_atomic]
  std::uint8_t timeout = 14;     // [timeout] 4.096 us * 2^timeout; 0: for ever
  std::uint8_t retry_count = 7;  // [retry_cnt] 0 to 7
  std::uint8_t rnr_retry = 7;    // [rnr_retry] 0 to 7; 7: for ever
};

// Where a datagram goes. (What ibv_ah, remote_qpn and remote_qkey say.)
struct DatagramPeer {
  Gid gid{};
  std::uint32_t number = 0;
  // The receiver compares it with its own. With the highest bit set, the sender's own is sent.
  std::uint32_t key = 0;
  std::uint8_t traffic_class = 0;  // of its IP header
  std::uint8_t hop_limit = 0;      // likewise; 0: the system's
  OwnGid own{};                    // the address that it leaves from
};
// The sender of a datagram, by the route header that is the first 40 octets of its receive, and how
// it came: gid, traffic_class, hop_limit, own.gid.
//   kInvalidArgument   that is no route header
[[nodiscard]] Result<DatagramPeer> sender_of_datagram(std::span<const std::uint8_t> route_header);

}  // namespace weft
#pragma GCC visibility pop
