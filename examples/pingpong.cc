// Ping-pong with Weft's C++ API: two processes send a message back and forth.
//
// Build:  g++ -std=c++20 pingpong.cc -o pingpong $(pkg-config --cflags --libs weft)
// Try:    ./pingpong server 7480                 in one terminal
//         ./pingpong client 127.0.0.1 7480       in another
//
// An optional last argument of the client is the number of rounds (default: 1000). The server
// serves one client and ends. Port 0 lets the system choose a port; the server prints it.
#include <weft/weft.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMessageBytes = 64;
constexpr auto kPatience = 10s;  // how long the other side may stay silent

[[noreturn]] void give_up(std::string_view what, std::string_view why) {
  std::fprintf(stderr, "pingpong: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(why.size()), why.data());
  std::exit(1);
}

// Nothing in Weft throws: every call returns a Result. This takes the value or ends the program.
template <class T>
T must(weft::Result<T> result, std::string_view what) {
  if (!result) give_up(what, weft::describe(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// The configuration comes from the defaults, then /etc/weft.conf, then WEFT_* variables.
std::shared_ptr<weft::Device> open_device() {
  std::string why;
  const auto config = weft::Config::load(&why);
  if (!config) give_up("configuration", why);
  return must(weft::Device::open(*config), "device");
}

// Each side needs these: a queue pair (QP), a completion queue (CQ) and registered memory.
struct Side {
  std::shared_ptr<weft::Device> device;
  std::shared_ptr<weft::ProtectionDomain> pd;
  std::shared_ptr<weft::CompletionQueue> cq;
  std::shared_ptr<weft::EventChannel> events;
  std::shared_ptr<weft::QueuePair> qp;
  std::array<char, kMessageBytes> out{};
  std::array<char, kMessageBytes> in{};
  std::shared_ptr<weft::MemoryRegion> out_mr;
  std::shared_ptr<weft::MemoryRegion> in_mr;

  Side() {
    device = open_device();
    pd = must(device->create_pd(), "protection domain");
    cq = must(device->create_cq({.depth = 16, .channel = nullptr}), "completion queue");
    events = must(weft::EventChannel::create(), "event channel");
    out_mr = must(pd->register_memory(out.data(), out.size(), weft::Access::kNone), "memory");
    in_mr = must(pd->register_memory(in.data(), in.size(), weft::Access::kLocalWrite), "memory");
    weft::QpOptions options;
    options.send_cq = cq;
    options.recv_cq = cq;
    qp = must(pd->create_qp(options), "queue pair");
  }
};

void post_receive(Side& side) {
  const weft::Sge sge{reinterpret_cast<std::uint64_t>(side.in.data()), kMessageBytes,
                      side.in_mr->lkey()};
  must(side.qp->post_recv(weft::RecvWr{.wr_id = 1, .sges = {&sge, 1}}), "post a receive");
}

void post_send(Side& side, const std::string& text) {
  std::strncpy(side.out.data(), text.c_str(), kMessageBytes - 1);
  const weft::Sge sge{reinterpret_cast<std::uint64_t>(side.out.data()), kMessageBytes,
                      side.out_mr->lkey()};
  weft::SendWr wr;
  wr.op = weft::SendOp::kSend;
  wr.flags = weft::SendFlags::kSignaled;
  wr.sges = {&sge, 1};
  must(side.qp->post_send(wr), "post a send");
}

// Polls until `count` work requests have completed.
void complete(Side& side, int count) {
  const auto deadline = Clock::now() + kPatience;
  while (count > 0) {
    weft::WorkCompletion done;
    if (side.cq->poll({&done, 1}) == 0) {
      if (Clock::now() > deadline) give_up("waiting", "the other side is silent");
      continue;
    }
    if (done.status != weft::WcStatus::kSuccess) {
      give_up(weft::describe(done.op), weft::describe(done.status));
    }
    --count;
  }
}

weft::ConnectionEvent expect(Side& side, weft::ConnectionEvent::Type wanted,
                             std::chrono::nanoseconds patience) {
  auto event = must(side.events->next(patience), "waiting for the other side");
  if (event.type != wanted) {
    give_up(weft::describe(event.type), event.error ? weft::describe(*event.error) : "unexpected");
  }
  return event;
}

void serve(const char* port) {
  Side side;
  const auto listener = must(side.device->create_listener(side.events), "listener");
  must(listener->bind(must(weft::SocketAddress::parse(std::string(":") + port), port)), port);
  must(listener->listen(1), "listen");
  std::printf("listening on port %u\n", listener->local_address().port());
  std::fflush(stdout);

  const auto request = expect(side, weft::ConnectionEvent::Type::kConnectRequest, 24h);
  post_receive(side);  // before accept(): the first message may follow at once
  must(request.connection->accept(side.qp, {}), "accept");
  expect(side, weft::ConnectionEvent::Type::kEstablished, kPatience);
  int rounds = 0;
  while (true) {
    complete(side, 1);  // the receive
    if (std::string_view(side.in.data()) == "bye") break;
    post_receive(side);
    post_send(side, "pong " + std::to_string(++rounds));
    complete(side, 1);  // the send
  }
  std::printf("answered %d messages\n", rounds);
}

void run_client(const char* host, const char* port, int rounds) {
  Side side;
  const auto peer = must(weft::SocketAddress::parse(std::string(host) + ":" + port), host);
  const auto connection = must(side.device->create_connection(side.events), "connection");
  must(connection->connect(side.qp, peer, {}), "connect");
  expect(side, weft::ConnectionEvent::Type::kEstablished, kPatience);

  std::vector<Clock::duration> times;
  for (int round = 1; round <= rounds; ++round) {
    post_receive(side);
    const auto start = Clock::now();
    post_send(side, "ping " + std::to_string(round));
    complete(side, 2);  // our send and the answer
    times.push_back(Clock::now() - start);
    if (std::string_view(side.in.data()) != "pong " + std::to_string(round)) {
      give_up("wrong answer", side.in.data());
    }
  }
  post_send(side, "bye");
  complete(side, 1);
  must(connection->disconnect(), "disconnect");
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  const std::chrono::duration<double, std::micro> median =
      times[static_cast<std::size_t>(rounds) / 2];
  std::printf("%d round trips of %zu bytes, median %.1f us\n", rounds, kMessageBytes,
              median.count());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 1000;
  if (role == "server" && argc == 3) {
    serve(argv[2]);
  } else if (role == "client" && argc >= 4 && rounds > 0) {
    run_client(argv[2], argv[3], rounds);
  } else {
    std::fprintf(stderr, "usage: pingpong server PORT | pingpong client HOST PORT [ROUNDS]\n");
    return 2;
  }
}
