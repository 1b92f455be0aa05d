// Fields of the IP header of single datagrams: the traffic class, the hop limit, and the address of
// this machine, from which it leaves or at which it came. Any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <weft/wiring.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace weft::verbs {

struct IpMarks {
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;  // 0: the system's, or not known
  Gid own{};                   // zeros: the system's choice, or not known
};

// Room for all as control messages.
struct MarksBuffer {
  static constexpr std::size_t kSize =
      2 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in6_pktinfo));
  alignas(cmsghdr) std::array<char, kSize> octets;
};

// From now on marks_of() finds them in what this socket receives. A socket of IPv6 may receive from
// IPv4, too.
inline void want_marks(int fd, int family) {
  const auto want = [fd](int level, int option) {
    const int on = 1;
    static_cast<void>(::setsockopt(fd, level, option, &on, sizeof on));
  };
  want(IPPROTO_IP, IP_RECVTOS);
  want(IPPROTO_IP, IP_RECVTTL);
  if (family == AF_INET) return want(IPPROTO_IP, IP_PKTINFO);
  want(IPPROTO_IPV6, IPV6_RECVTCLASS);
  want(IPPROTO_IPV6, IPV6_RECVHOPLIMIT);
  want(IPPROTO_IPV6, IPV6_RECVPKTINFO);
}

// Appends control messages to a message that is to be sent.
class MarksWriter {
 public:
  MarksWriter(msghdr& message, MarksBuffer& buffer) : message_(message), buffer_(buffer) {
    buffer.octets.fill(0);
  }
  template <class Value>
  void put(int level, int type, const Value& value) {
    message_.msg_control = buffer_.octets.data();
    auto* at = reinterpret_cast<cmsghdr*>(buffer_.octets.data() + used_);
    at->cmsg_level = level;
    at->cmsg_type = type;
    at->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(at), &value, sizeof value);
    used_ += CMSG_SPACE(sizeof value);
    message_.msg_controllen = used_;
  }

 private:
  msghdr& message_;
  MarksBuffer& buffer_;
  std::size_t used_ = 0;
};

inline void put_own_v4(MarksWriter& out, const Gid& own) {
  constexpr std::size_t kV4At = 12;
  in_pktinfo info{};
  std::memcpy(&info.ipi_spec_dst, own.data() + kV4At, sizeof info.ipi_spec_dst);
  out.put(IPPROTO_IP, IP_PKTINFO, info);
}

inline void put_own_v6(MarksWriter& out, const Gid& own, std::uint32_t interface) {
  in6_pktinfo info{};
  std::memcpy(&info.ipi6_addr, own.data(), own.size());
  if (IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) info.ipi6_ifindex = interface;
  out.put(IPPROTO_IPV6, IPV6_PKTINFO, info);
}

// Marks one datagram to an address of this family. Nothing where all of it is the system's.
inline void put_marks(msghdr& message, MarksBuffer& buffer, int family, const IpMarks& marks,
                      std::uint32_t interface) {
  const bool v6 = family == AF_INET6;
  MarksWriter out(message, buffer);
  if (const int tos = marks.traffic_class; tos != 0) {
    out.put(v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, tos);
  }
  if (const int hops = marks.hop_limit; hops != 0) {
    out.put(v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_HOPLIMIT : IP_TTL, hops);
  }
  if (marks.own == Gid{}) return;
  v6 ? put_own_v6(out, marks.own, interface) : put_own_v4(out, marks.own);
}

inline void take_mark(const cmsghdr& c, IpMarks& out) {
  constexpr std::size_t kV4At = 12;
  const bool v4 = c.cmsg_level == IPPROTO_IP;
  const bool v6 = c.cmsg_level == IPPROTO_IPV6;
  if (v4 && c.cmsg_type == IP_PKTINFO) {
    in_pktinfo info{};
    std::memcpy(&info, CMSG_DATA(&c), sizeof info);
    out.own[10] = out.own[11] = 0xff;
    std::memcpy(out.own.data() + kV4At, &info.ipi_addr, sizeof info.ipi_addr);
    return;
  }
  if (v6 && c.cmsg_type == IPV6_PKTINFO) {
    in6_pktinfo info{};
    std::memcpy(&info, CMSG_DATA(&c), sizeof info);
    std::memcpy(out.own.data(), &info.ipi6_addr, out.own.size());
    return;
  }
  // IPv4 gives its traffic class as one octet, the rest are numbers of the machine.
  int value = *CMSG_DATA(&c);
  if (c.cmsg_len >= CMSG_LEN(sizeof value)) std::memcpy(&value, CMSG_DATA(&c), sizeof value);
  const auto octet = static_cast<std::uint8_t>(value);
  if ((v4 && c.cmsg_type == IP_TOS) || (v6 && c.cmsg_type == IPV6_TCLASS)) {
    out.traffic_class = octet;
  } else if ((v4 && c.cmsg_type == IP_TTL) || (v6 && c.cmsg_type == IPV6_HOPLIMIT)) {
    out.hop_limit = octet;
  }
}

inline IpMarks marks_of(msghdr& message) {
  IpMarks out;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    take_mark(*c, out);
  }
  return out;
}

}  // namespace weft::verbs
