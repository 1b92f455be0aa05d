// How long a server that speaks first waits for the question of a client that has said it will ask
// for RDMA (syn_mark.h).
//
// Until then a program with one thread serves nobody else, so clients that say so and are silent
// must not cost it much: the wait ends a second after the connection was made, however long that
// has waited to be accepted, and is halved for an address each time that one of there was silent.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace weft::sockets::iwarp {

class SilentClients {
 public:
  static constexpr std::int64_t kWaitMs = 1000;
  // An honest client asks at once, but its machine may be busy.
  static constexpr unsigned kMostHalvings = 4;
  static constexpr std::int64_t kForgivesAfterMs = 60'000;

  // Milliseconds. `address`: of the peer, in any form. `age`: of the connection.
  [[nodiscard]] std::int64_t wait(std::string_view address, std::int64_t age, std::int64_t now) {
    const Entry& entry = slot(hash(address));
    const bool known = entry.address == hash(address) && now - entry.at < kForgivesAfterMs;
    const std::int64_t whole = kWaitMs >> (known ? entry.halvings : 0U);
    return std::max<std::int64_t>(std::min(whole, kWaitMs - age), 0);
  }
  // Whether nothing came in that time.
  void note(std::string_view address, bool silent, std::int64_t now) {
    Entry& entry = slot(hash(address));
    const bool known = entry.address == hash(address) && now - entry.at < kForgivesAfterMs;
    if (!silent) {
      if (known) entry = {};
      return;
    }
    entry.halvings = known ? std::min(entry.halvings + 1, kMostHalvings) : 1;
    entry.address = hash(address);
    entry.at = now;
  }

 private:
  struct Entry {
    std::size_t address = 0;  // its hash
    unsigned halvings = 0;
    std::int64_t at = 0;
  };
  static constexpr std::size_t kEntries = 64;

  static std::size_t hash(std::string_view address) {
    return std::hash<std::string_view>{}(address);
  }
  Entry& slot(std::size_t hash) { return entries_[hash % kEntries]; }

  std::array<Entry, kEntries> entries_{};
};

}  // namespace weft::sockets::iwarp
