// Servers that were asked for RDMA and went on with plain TCP: not asked again for a while, since
// one that neither answers nor closes costs each connection seconds.
//
// Threads: the relay's one thread. Nothing here looks at the clock.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace weft::sockets {

class Declined {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kRemembered{60};
  static constexpr std::size_t kMost = 1024;  // servers; the one noted first makes room

  void note(const sockaddr_storage& server, socklen_t length, Time now) {
    forget(now);
    if (until_.size() == kMost) {
      until_.erase(std::min_element(until_.begin(), until_.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      }));
    }
    until_[key(server, length)] = now + kRemembered;
  }
  [[nodiscard]] bool lately(const sockaddr_storage& server, socklen_t length, Time now) {
    forget(now);
    return until_.contains(key(server, length));
  }
  [[nodiscard]] bool empty(Time now) {
    forget(now);
    return until_.empty();
  }

 private:
  void forget(Time now) {
    std::erase_if(until_, [&](const auto& one) { return one.second <= now; });
  }
  static std::string key(const sockaddr_storage& server, socklen_t length) {
    const auto size = std::min<std::size_t>(length, sizeof server);
    return {reinterpret_cast<const char*>(&server), size};
  }

  std::map<std::string, Time> until_;
};

}  // namespace weft::sockets
