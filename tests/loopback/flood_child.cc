// The other process of process_test.cc: floods one connection until it is killed or the peer
// leaves.
//
//   flood_child connect PORT SEED
//   flood_child apart PORT SEED    connects, and then moves to a network namespace of its own; 77:
//                                  it may not
//   flood_child listen SEED        prints its port
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "flood.h"

namespace {

using namespace weft;
using namespace weft::test;
using Type = ConnectionEvent::Type;

constexpr int kNotAllowed = 77;

int connected_socket(const char* port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    throw Failure("connect a socket");
  }
  return fd;
}

// `socket`: connected already, or -1.
void connect_to(Flood& flood, Host& host, const char* port, int socket) {
  ConnectionParams params;
  params.private_data = flood.here().bytes();
  flood.endpoint.connection =
      must(host.device->create_connection(flood.endpoint.events), "create a connection");
  if (socket >= 0) must(flood.endpoint.connection->adopt(socket), "adopt a socket");
  must(flood.endpoint.connection->connect(
           flood.endpoint.qp, must(SocketAddress::parse(std::string("127.0.0.1:") + port), "parse"),
           params),
       "connect");
  const ConnectionEvent event = take_event(*flood.endpoint.events, Type::kEstablished);
  flood.peer = FloodTarget::from(event.private_data);
}

void wait_for(Flood& flood, Host& host) {
  const auto listener = listen(host, flood.endpoint.events);
  std::printf("%u\n", unsigned{listener->local_address().port()});
  std::fflush(stdout);
  flood.accept();
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(60);  // whatever happens to the parent
  const std::string_view mode = argc > 2 ? argv[1] : "";
  try {
    Config config = plain_config();
    int socket = -1;
    if (mode == "apart") {
      socket = connected_socket(argv[2]);
      if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        return kNotAllowed;
      }
      config.path = PathMode::kAuto;
    }
    Host host(config);
    Flood flood(host, static_cast<unsigned>(std::atoi(argv[argc - 1])));
    flood.post_receives();
    if ((mode == "connect" || mode == "apart") && argc == 4) {
      connect_to(flood, host, argv[2], socket);
    } else if (mode == "listen") {
      wait_for(flood, host);
    } else {
      return 2;
    }
    while (flood.endpoint.qp->state() == QpState::kRts) {
      if (!flood.step()) return 1;
    }
    return flood.settle() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
