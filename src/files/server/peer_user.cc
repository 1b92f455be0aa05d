#include "files/server/peer_user.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "files/protocol/folder_stream.h"
#include "os/clock.h"
#include "os/fd.h"

namespace weft::files {
namespace {

// One end of a connection. An IPv4 address inside IPv6 is an IPv4 address.
struct End {
  bool is_v6 = false;
  std::array<std::uint32_t, 4> words{};  // of the address, as in memory
  std::uint16_t port = 0;                // network byte order
  bool operator==(const End&) const = default;
};

End end_of(const sockaddr* address) {
  End out;
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    out.words[0] = v4->sin_addr.s_addr;
    out.port = v4->sin_port;
    return out;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  std::memcpy(out.words.data(), &v6->sin6_addr, sizeof out.words);
  out.port = v6->sin6_port;
  out.is_v6 = !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
  if (!out.is_v6) out.words = {out.words[3], 0, 0, 0};
  return out;
}

struct Question {
  nlmsghdr head{};
  inet_diag_req_v2 body{};
};

Question question_about(const End& client, const End& server) {
  Question q;
  q.head.nlmsg_len = sizeof q;
  q.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  q.head.nlmsg_flags = NLM_F_REQUEST;
  q.body.sdiag_family = client.is_v6 ? AF_INET6 : AF_INET;
  q.body.sdiag_protocol = IPPROTO_TCP;
  q.body.idiag_states = ~0U;
  q.body.id.idiag_sport = client.port;
  q.body.id.idiag_dport = server.port;
  std::memcpy(q.body.id.idiag_src, client.words.data(), sizeof q.body.id.idiag_src);
  std::memcpy(q.body.id.idiag_dst, server.words.data(), sizeof q.body.id.idiag_dst);
  q.body.id.idiag_cookie[0] = q.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return q;
}

// "0100007F:1C0C" and the like, of /proc/net/tcp and tcp6.
std::optional<End> parse_end(const char* text) {
  End out;
  const char* const colon = std::strchr(text, ':');
  if (colon == nullptr) return std::nullopt;
  out.is_v6 = colon - text == 32;
  if (!out.is_v6 && colon - text != 8) return std::nullopt;
  for (std::size_t i = 0; i < (out.is_v6 ? 4U : 1U); ++i) {
    const std::string word(text + i * 8, 8);
    out.words[i] = static_cast<std::uint32_t>(std::stoul(word, nullptr, 16));
  }
  out.port = htons(static_cast<std::uint16_t>(std::strtoul(colon + 1, nullptr, 16)));
  const bool mapped =
      out.is_v6 && out.words[0] == 0 && out.words[1] == 0 && out.words[2] == htonl(0xffff);
  if (mapped) {
    out.words = {out.words[3], 0, 0, 0};
    out.is_v6 = false;
  }
  return out;
}

std::optional<uid_t> user_in(const char* table, const End& client, const End& server) {
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);  // the titles
  while (std::getline(in, line)) {
    char local[64] = "";
    char remote[64] = "";
    unsigned state = 0;
    unsigned user = 0;
    const int got =
        std::sscanf(line.c_str(), "%*s %63s %63s %x %*s %*s %*s %u", local, remote, &state, &user);
    if (got != 4 || state != TCP_ESTABLISHED) continue;
    if (parse_end(local) == client && parse_end(remote) == server) return user;
  }
  return std::nullopt;
}

}  // namespace

namespace {

struct Answer {
  bool given = false;  // false: the system does not say
  std::optional<uid_t> user;
};

Answer ask_netlink(const sockaddr* client, const sockaddr* server) {
  const os::Fd link(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!link) return {};
  const timeval limit{2, 0};
  setsockopt(link.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const Question q = question_about(end_of(client), end_of(server));
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  const auto* to = reinterpret_cast<const sockaddr*>(&kernel);
  if (sendto(link.get(), &q, sizeof q, 0, to, sizeof kernel) != sizeof q) return {};
  struct {
    nlmsghdr head;
    union {
      inet_diag_msg body;
      nlmsgerr error;
    };
    char rest[4096];
  } answer{};
  const ssize_t got = recv(link.get(), &answer, sizeof answer, 0);
  if (got >= static_cast<ssize_t>(sizeof answer.head + sizeof answer.error) &&
      answer.head.nlmsg_type == NLMSG_ERROR) {
    return {.given = answer.error.error == -ENOENT, .user = std::nullopt};
  }
  if (got < static_cast<ssize_t>(sizeof answer.head + sizeof answer.body) ||
      answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY) {
    return {};
  }
  // A connection that has ended belongs to nobody, and the system says 0.
  if (answer.body.idiag_state != TCP_ESTABLISHED) return {.given = true, .user = std::nullopt};
  return {.given = true, .user = answer.body.idiag_uid};
}

}  // namespace

std::optional<uid_t> user_by_netlink(const sockaddr* client, const sockaddr* server) {
  return ask_netlink(client, server).user;
}

std::optional<uid_t> user_by_proc(const sockaddr* client, const sockaddr* server) {
  const End from = end_of(client);
  const End to = end_of(server);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    if (const auto user = user_in(table, from, to)) return user;
  }
  return std::nullopt;
}

namespace {

constexpr auto kScanPause = std::chrono::milliseconds(100);

std::optional<in_port_t> listening_port(int fd) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) {
    return std::nullopt;
  }
  sockaddr_storage own{};
  size = sizeof own;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return std::nullopt;
  if (own.ss_family != AF_INET && own.ss_family != AF_INET6) return std::nullopt;
  return end_of(reinterpret_cast<const sockaddr*>(&own)).port;
}

struct Found {
  std::size_t connections = 0;
  uid_t user = 0;
};

// The connections between this client and one of our ports.
Found find_connections(const sockaddr* client, const sockaddr* server,
                       const std::vector<in_port_t>& ports) {
  Found out;
  for (const in_port_t port : ports) {
    sockaddr_storage ours{};
    if (server->sa_family == AF_INET) {
      auto& v4 = reinterpret_cast<sockaddr_in&>(ours);
      v4 = *reinterpret_cast<const sockaddr_in*>(server);
      v4.sin_port = port;
    } else {
      auto& v6 = reinterpret_cast<sockaddr_in6&>(ours);
      v6 = *reinterpret_cast<const sockaddr_in6*>(server);
      v6.sin6_port = port;
    }
    const auto* const end = reinterpret_cast<const sockaddr*>(&ours);
    const Answer answer = ask_netlink(client, end);
    const auto user = answer.given ? answer.user : user_by_proc(client, end);
    if (!user) continue;
    ++out.connections;
    out.user = *user;
  }
  return out;
}

}  // namespace

// False: that was done a moment ago. Clients that go at once must not make the server do nothing
// else.
bool PeerUsers::scan() {
  const auto now = os::now();
  if (!ports_.empty() && now - scanned_ < kScanPause) return false;
  scanned_ = now;
  ports_.clear();
  const FolderStream descriptors(os::Fd(open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!descriptors.good()) return false;
  while (const dirent* entry = readdir(descriptors.stream())) {
    const auto port = listening_port(std::atoi(entry->d_name));
    if (port && std::ranges::find(ports_, *port) == ports_.end()) ports_.push_back(*port);
  }
  return true;
}

std::optional<uid_t> PeerUsers::user_of(const sockaddr* client, const sockaddr* server) {
  Found found = find_connections(client, server, ports_);
  if (found.connections == 0 && scan()) found = find_connections(client, server, ports_);
  // With several connections nothing tells which one is the client's.
  return found.connections == 1 ? std::optional(found.user) : std::nullopt;
}

}  // namespace weft::files
