#include "world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <lwip/init.h>
#include <lwip/pbuf.h>
#include <lwip/sys.h>
#include <lwip/timeouts.h>
#include <lwip_hosts.h>

namespace weft::testing {

namespace {

World* the_world = nullptr;
Instant the_clock{std::chrono::nanoseconds(std::chrono::seconds(1)).count()};
std::mt19937_64 the_random(7);

constexpr std::int64_t kMillisecond = 1'000'000;

err_t output(netif* interface, pbuf* p, const ip4_addr_t* /*to*/) {
  the_world->transmit(static_cast<int>(reinterpret_cast<std::intptr_t>(interface->state)), p);
  return ERR_OK;
}

}  // namespace

World::World(const WorldConfig& config) : config_(config), rng_(config.seed) {
  static const bool once = [] {
    lwip_init();
    return true;
  }();
  static_cast<void>(once);
  the_world = this;
  the_random.seed(config.seed + 1);
  for (int host = 0; host < 2; ++host) {
    weft_lwip_host_address(host, &addresses_[host]);
    weft_lwip_add_host(&netifs_[host], host, output, config.mtu);
    netifs_[host].state = reinterpret_cast<void*>(static_cast<std::intptr_t>(host));
  }
}

World::~World() {
  for (netif& interface : netifs_) netif_remove(&interface);
  the_world = nullptr;
}

Instant World::now() { return the_clock; }
std::uint32_t World::random() { return static_cast<std::uint32_t>(the_random()); }

void World::forget(lwip::Connection& connection) { std::erase(watched_, &connection); }

void World::transmit(int host, pbuf* p) {
  std::vector<std::uint8_t> octets(p->tot_len);
  pbuf_copy_partial(p, octets.data(), p->tot_len, 0);
  ++frames_sent_;
  if (chance(config_.faults.drop_percent)) return;
  if (chance(config_.faults.duplicate_percent)) enqueue(1 - host, octets);
  if (chance(config_.faults.corrupt_percent)) octets[rng_() % octets.size()] ^= 0x10;
  enqueue(1 - host, std::move(octets));
}

void World::enqueue(int to, std::vector<std::uint8_t> octets) {
  Frame frame;
  frame.at = the_clock + config_.delay;
  if (chance(config_.faults.reorder_percent)) {
    frame.at += Duration(kMillisecond / 100 * static_cast<std::int64_t>(1 + rng_() % 100));
  }
  frame.order = order_++;
  frame.to = to;
  frame.octets = std::move(octets);
  frames_.push(std::move(frame));
}

void World::deliver(const Frame& frame) {
  // One buffer for each frame, as a driver with large buffers has it.
  pbuf* p = pbuf_alloc(PBUF_RAW, static_cast<u16_t>(frame.octets.size()), PBUF_RAM);
  if (p == nullptr) return;
  pbuf_take(p, frame.octets.data(), static_cast<u16_t>(frame.octets.size()));
  netif& interface = netifs_[frame.to];
  if (interface.input(p, &interface) != ERR_OK) pbuf_free(p);
}

Instant World::next_event() const {
  Instant next = Instant::never();
  if (!frames_.empty()) next = frames_.top().at;
  const std::uint32_t sleep_ms = sys_timeouts_sleeptime();
  if (sleep_ms != SYS_TIMEOUTS_SLEEPTIME_INFINITE) {
    // lwIP counts whole milliseconds: round up to the next of them.
    const std::int64_t ms = the_clock.ns / kMillisecond + std::max<std::int64_t>(sleep_ms, 1);
    next = std::min(next, Instant{ms * kMillisecond});
  }
  for (const lwip::Connection* c : watched_) next = std::min(next, c->deadline());
  return next;
}

bool World::run_until(const std::function<bool()>& done, Duration limit) {
  const Instant end = the_clock + limit;
  while (!done()) {
    const Instant next = next_event();
    if (next > end) return false;
    the_clock = std::max(the_clock, next);
    if (!frames_.empty() && frames_.top().at <= the_clock) {
      const Frame frame = frames_.top();
      frames_.pop();
      deliver(frame);
    }
    sys_check_timeouts();
    const std::vector<lwip::Connection*> watched = watched_;
    for (lwip::Connection* c : watched) c->time(the_clock);
  }
  return true;
}

}  // namespace weft::testing

// What lwIP asks of its machine.

u32_t sys_now() {
  return static_cast<u32_t>(weft::testing::the_clock.ns / weft::testing::kMillisecond);
}

unsigned weft_lwip_random() { return weft::testing::World::random(); }

void weft_lwip_fault(const char* what) {
  std::fprintf(stderr, "lwIP: %s\n", what);
  std::abort();
}
