// One lwIP in each of two processes, without threads. Frames pass a pair of datagram sockets.
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <lwip/init.h>
#include <lwip/ip4.h>
#include <lwip/netif.h>
#include <lwip/pbuf.h>
#include <lwip/sys.h>
#include <lwip/timeouts.h>
#include "hosts.h"
#include "lwip/lwip_network.h"

namespace weft::testing {

namespace {

constexpr std::size_t kFrameMax = 2048;
constexpr int kFramesPerTurn = 64;

netif the_interface;
int the_link = -1;

Instant now() { return Instant{std::chrono::steady_clock::now().time_since_epoch().count()}; }
std::uint32_t random_bits() {
  std::uint32_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) std::abort();
  return bits;
}

// A frame that does not fit is lost: TCP sends it again.
err_t output(netif* /*interface*/, pbuf* p, const ip4_addr_t* /*to*/) {
  std::vector<std::uint8_t> frame(p->tot_len);
  pbuf_copy_partial(p, frame.data(), p->tot_len, 0);
  (void)send(the_link, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return ERR_OK;
}

err_t initialize(netif* interface) {
  interface->name[0] = 'w';
  interface->name[1] = 'f';
  interface->output = output;
  interface->mtu = 1500;
  interface->flags = NETIF_FLAG_UP | NETIF_FLAG_LINK_UP;
  return ERR_OK;
}

// Milliseconds until there is something to do.
int sleep_time(Instant until) {
  std::int64_t left = std::min<std::int64_t>(sys_timeouts_sleeptime(), 1000);
  if (!until.is_never()) {
    left = std::min<std::int64_t>(left, ((until - now()).count() + 999'999) / 1'000'000);
  }
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

void turn(void* /*context*/, Instant until) {
  pollfd wanted{the_link, POLLIN, 0};
  (void)poll(&wanted, 1, sleep_time(until));
  for (int i = 0; i < kFramesPerTurn; ++i) {
    std::uint8_t frame[kFrameMax];
    const ssize_t size = recv(the_link, frame, sizeof frame, MSG_DONTWAIT);
    if (size <= 0) break;
    pbuf* p = pbuf_alloc(PBUF_RAW, static_cast<u16_t>(size), PBUF_RAM);
    if (p == nullptr) break;
    pbuf_take(p, frame, static_cast<u16_t>(size));
    if (the_interface.input(p, &the_interface) != ERR_OK) pbuf_free(p);
  }
  sys_check_timeouts();
}

}  // namespace

Network::Network() {
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, link_), 0);
  const int bytes = 1 << 20;
  for (const int fd : link_) (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

Network::~Network() {
  ::close(link_[0]);
  ::close(link_[1]);
}

rddp_device* Network::open(int side, const rddp_options& options) {
  static const bool once = [] {
    lwip_init();
    return true;
  }();
  static_cast<void>(once);
  the_link = link_[side];
  ip4_addr_t address, mask;
  IP4_ADDR(&address, 10, 0, 0, static_cast<u8_t>(side + 1));
  IP4_ADDR(&mask, 255, 255, 255, 0);
  netif_add(&the_interface, &address, &mask, nullptr, nullptr, initialize, ip4_input);
  netif_set_default(&the_interface);
  lwip::Board board;
  board.clock = now;
  board.random = random_bits;
  board.turn = turn;
  rddp_device* device = nullptr;
  EXPECT_EQ(lwip::open(board, &options, &device), RDDP_OK);
  return device;
}

void Network::close(rddp_device* device) {
  rddp_close_device(device);
  netif_remove(&the_interface);
}

const char* Network::server() const { return "10.0.0.1"; }
bool Network::has_files() { return false; }

}  // namespace weft::testing

extern "C" {

u32_t sys_now(void) { return static_cast<u32_t>(weft::testing::now().ns / 1'000'000); }
unsigned weft_lwip_random(void) { return weft::testing::random_bits(); }
void weft_lwip_fault(const char* what) {
  std::fprintf(stderr, "lwIP: %s\n", what);
  std::abort();
}

}  // extern "C"
