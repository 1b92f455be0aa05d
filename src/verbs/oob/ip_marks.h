// The traffic class and the hop limit in the IP header of single datagrams: what an address handle
// says, and what the receiver's route header shows. Any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace weft::verbs {

struct IpMarks {
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;  // 0: the system's, or not known
};

// Room for both as control messages.
struct MarksBuffer {
  alignas(cmsghdr) std::array<char, 2 * CMSG_SPACE(sizeof(int))> octets;
};

// From now on marks_of() finds them in what this socket receives.
inline void want_marks(int fd, int family) {
  const int on = 1;
  const int level = family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
  const int tos = family == AF_INET6 ? IPV6_RECVTCLASS : IP_RECVTOS;
  const int ttl = family == AF_INET6 ? IPV6_RECVHOPLIMIT : IP_RECVTTL;
  static_cast<void>(::setsockopt(fd, level, tos, &on, sizeof on));
  static_cast<void>(::setsockopt(fd, level, ttl, &on, sizeof on));
}

// Marks one datagram to be sent. Nothing where all of it is the system's.
inline void put_marks(msghdr& message, MarksBuffer& buffer, int family, const IpMarks& marks) {
  if (marks.traffic_class == 0 && marks.hop_limit == 0) return;
  const bool v6 = family == AF_INET6;
  buffer.octets.fill(0);
  message.msg_control = buffer.octets.data();
  message.msg_controllen = buffer.octets.size();
  cmsghdr* at = CMSG_FIRSTHDR(&message);
  std::size_t used = 0;
  const auto put = [&](int type, int value) {
    at->cmsg_level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    at->cmsg_type = type;
    at->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(at), &value, sizeof value);
    at = reinterpret_cast<cmsghdr*>(buffer.octets.data() + CMSG_SPACE(sizeof value));
    used += CMSG_SPACE(sizeof value);
  };
  if (marks.traffic_class != 0) put(v6 ? IPV6_TCLASS : IP_TOS, marks.traffic_class);
  if (marks.hop_limit != 0) put(v6 ? IPV6_HOPLIMIT : IP_TTL, marks.hop_limit);
  message.msg_controllen = used;
}

inline IpMarks marks_of(msghdr& message) {
  IpMarks out;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    // IPv4 gives its traffic class as one octet, the rest are numbers of the machine.
    int value = *CMSG_DATA(c);
    if (c->cmsg_len >= CMSG_LEN(sizeof value)) std::memcpy(&value, CMSG_DATA(c), sizeof value);
    const auto octet = static_cast<std::uint8_t>(value);
    const bool v4 = c->cmsg_level == IPPROTO_IP;
    const bool v6 = c->cmsg_level == IPPROTO_IPV6;
    if ((v4 && c->cmsg_type == IP_TOS) || (v6 && c->cmsg_type == IPV6_TCLASS)) {
      out.traffic_class = octet;
    } else if ((v4 && c->cmsg_type == IP_TTL) || (v6 && c->cmsg_type == IPV6_HOPLIMIT)) {
      out.hop_limit = octet;
    }
  }
  return out;
}

}  // namespace weft::verbs
