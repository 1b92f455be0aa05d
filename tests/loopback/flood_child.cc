// The other process of process_test.cc: floods one connection until it is killed or the peer
// leaves.
//
//   flood_child connect PORT SEED
//   flood_child listen SEED        prints its port
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "flood.h"

namespace {

using namespace weft;
using namespace weft::test;
using Type = ConnectionEvent::Type;

void connect_to(Flood& flood, Host& host, const char* port) {
  ConnectionParams params;
  params.private_data = flood.here().bytes();
  flood.endpoint.connection =
      must(host.device->create_connection(flood.endpoint.events), "create a connection");
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
  const ConnectionEvent event = take_event(*flood.endpoint.events, Type::kConnectRequest);
  flood.peer = FloodTarget::from(event.private_data);
  ConnectionParams params;
  params.private_data = flood.here().bytes();
  flood.endpoint.connection = event.connection;
  must(event.connection->accept(flood.endpoint.qp, params), "accept");
  take_event(*flood.endpoint.events, Type::kEstablished);
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(60);  // whatever happens to the parent
  const std::string_view mode = argc > 2 ? argv[1] : "";
  try {
    Host host;
    Flood flood(host, static_cast<unsigned>(std::atoi(argv[argc - 1])));
    flood.post_receives();
    if (mode == "connect" && argc == 4) {
      connect_to(flood, host, argv[2]);
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
