#include "sockets/preload/preload_ways.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "sockets/preload/preload_settings.h"
#include "sockets/preload/socket_rules.h"
#include "sockets/real_calls.h"
#include "sockets/relay/relay_client.h"

namespace weft::sockets {

socklen_t listen_name(const sockaddr* address, bool any, sockaddr_un& out) {
  char text[INET6_ADDRSTRLEN] = "*";
  unsigned port = 0;
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    port = ntohs(v4->sin_port);
    if (!any) inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    port = ntohs(v6->sin6_port);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) != 0;
    if (!any) {
      inet_ntop(mapped ? AF_INET : AF_INET6, v6->sin6_addr.s6_addr + (mapped ? 12 : 0), text,
                sizeof text);
    }
  }
  out = {};
  out.sun_family = AF_UNIX;
  const int n = std::snprintf(out.sun_path + 1, sizeof out.sun_path - 1, "%s%u/%s", kListenPrefix,
                              port, text);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n));
}

bool is_any(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == INADDR_ANY;
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) != 0;
}

namespace {

// Whether a program under Weft listens there, in this network namespace. Only a hint: a
// process that lies about it gets a greeting, and no octet of the application's.
bool listener_is_ours(const sockaddr* address) {
  for (const bool any : {false, true}) {
    sockaddr_un name;
    const socklen_t length = listen_name(address, any, name);
    const int probe = real().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return false;
    const bool there = real().connect(probe, reinterpret_cast<const sockaddr*>(&name), length) == 0;
    real().close(probe);
    if (there) return true;
  }
  return false;
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24U == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

// One of this machine's own addresses: it can be bound to.
bool is_ours(const sockaddr* address, socklen_t length) {
  if (is_loopback(address)) return true;
  const int probe = real().socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  sockaddr_storage copy{};
  std::memcpy(&copy, address, std::min<size_t>(length, sizeof copy));
  reinterpret_cast<sockaddr_in*>(&copy)->sin_port = 0;  // at the same place for IPv6
  const bool ours = real().bind(probe, reinterpret_cast<const sockaddr*>(&copy), length) == 0;
  real().close(probe);
  return ours;
}

}  // namespace

const char* name_of(Way way) {
  if (way == Way::kTcp) return "tcp";
  return by_ring(way) ? "ring" : "rdma";
}

Way choose_way(const sockaddr* address, socklen_t length, const char*& reason) {
  const Settings& s = settings();
  if (!s.active) {
    reason = "the rule file has a mistake";
    return Way::kTcp;
  }
  const Rule* rule = s.rules.find(Role::kConnect, s.program, address);
  if (rule != nullptr && rule->way == RuleWay::kTcp) {
    reason = "a rule says tcp";
    return Way::kTcp;
  }
  if (is_ours(address, length) && listener_is_ours(address)) {
    reason = "a program under Weft listens there, on this machine";
    return rule != nullptr && rule->way == RuleWay::kRdma ? Way::kRingOnly : Way::kRing;
  }
  if (rule == nullptr) {
    reason = "no rule for it, and no program under Weft listens there on this machine";
    return Way::kTcp;
  }
  reason = rule->way == RuleWay::kRdma ? "a rule says rdma" : "a rule says both";
  return rule->way == RuleWay::kRdma ? Way::kRdmaOnly : Way::kRdma;
}

}  // namespace weft::sockets
