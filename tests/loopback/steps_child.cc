// The other process of kill_steps_test.cc: sets one connection up, which moves to a ring. It marks
// its way by calls of getppid(), which do nothing else: the first before the set-up, the second
// behind the move.
//
//   steps_child connect PORT   prints an empty line
//   steps_child listen         prints its port
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "support/weft_side.h"

namespace {

using namespace weft;
using namespace weft::test;
using Type = ConnectionEvent::Type;

void mark() { static_cast<void>(::syscall(SYS_getppid)); }

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void join(Host& host, Endpoint& end, const std::string& port) {
  say("");
  mark();
  end.connection = must(host.device->create_connection(end.events), "create a connection");
  must(
      end.connection->connect(end.qp, must(SocketAddress::parse("127.0.0.1:" + port), "parse"), {}),
      "connect");
}

void take_one(Endpoint& end, const Listener& listener) {
  say(std::to_string(listener.local_address().port()));
  mark();
  end.connection = take_event(*end.events, Type::kConnectRequest).connection;
  must(end.connection->accept(end.qp, {}), "accept");
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(60);  // whatever happens to the parent
  const std::string_view mode = argc > 1 ? argv[1] : "";
  try {
    Config config = plain_config();
    config.path = PathMode::kRing;
    Host host(config);
    Endpoint end(host);
    post_empty_recvs(*end.qp, 1, 8);
    std::shared_ptr<Listener> listener;
    if (mode == "connect" && argc == 3) {
      join(host, end, argv[2]);
    } else if (mode == "listen") {
      listener = listen(host, end.events);
      take_one(end, *listener);
    } else {
      return 2;
    }
    take_event(*end.events, Type::kEstablished);
    if (!eventually([&] { return end.connection->info().path == "ring"; })) return 1;
    mark();
    return 0;  // the parent ends it there
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
