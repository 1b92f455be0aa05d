// Two hosts with lwIP in one program, joined by a link, under a clock that only moves when nothing
// is left to do. The link can delay, drop, duplicate, reorder and corrupt, by a seed.
//
// lwIP keeps one set of tables for the program; each host is an interface with its own address, and
// a packet leaves by the interface whose address it bears. One World at a time; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include <lwip/netif.h>
#include "base/time.h"
#include "lwip/lwip_connection.h"

namespace weft::testing {

struct LinkFaults {
  std::uint32_t drop_percent = 0;
  std::uint32_t duplicate_percent = 0;
  std::uint32_t reorder_percent = 0;  // delivered later than those behind it
  std::uint32_t corrupt_percent = 0;
};

struct WorldConfig {
  std::uint64_t seed = 1;
  Duration delay{std::chrono::milliseconds(2)};
  LinkFaults faults;
  std::uint16_t mtu = 1500;
};

class World {
 public:
  explicit World(const WorldConfig& config = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] static Instant now();
  [[nodiscard]] static std::uint32_t random();
  [[nodiscard]] const ip_addr_t& address(int host) const { return addresses_[host]; }
  void set_faults(const LinkFaults& faults) { config_.faults = faults; }
  [[nodiscard]] std::uint64_t frames() const { return frames_sent_; }

  // The connections whose time limits are kept.
  void watch(lwip::Connection& connection) { watched_.push_back(&connection); }
  void forget(lwip::Connection& connection);

  // Runs until `done` holds; false if it did not within `limit` of virtual time.
  bool run_until(const std::function<bool()>& done, Duration limit = std::chrono::minutes(2));

  // The link, called by lwIP.
  void transmit(int host, pbuf* p);

 private:
  struct Frame {
    Instant at;
    std::uint64_t order = 0;
    int to = 0;
    std::vector<std::uint8_t> octets;
    bool operator>(const Frame& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  [[nodiscard]] bool chance(std::uint32_t percent) { return rng_() % 100 < percent; }
  void enqueue(int to, std::vector<std::uint8_t> octets);
  void deliver(const Frame& frame);
  [[nodiscard]] Instant next_event() const;

  WorldConfig config_;
  std::mt19937_64 rng_;
  netif netifs_[2];
  ip_addr_t addresses_[2];
  std::priority_queue<Frame, std::vector<Frame>, std::greater<>> frames_;
  std::uint64_t order_ = 0;
  std::uint64_t frames_sent_ = 0;
  std::vector<lwip::Connection*> watched_;
};

}  // namespace weft::testing
