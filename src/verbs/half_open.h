// The connections that have not said yet what they want, in the order in which they came. Each has
// one place here, which the oldest gives up when there are too many.
//
// HalfOpen is not thread-safe, HalfOpenOfDevice is.
#pragma once

#include <weft/address.h>

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/time.h"
#include "os/calling_host.h"
#include "os/lock.h"

namespace weft::verbs {

class ConnectionImpl;

// How many there may be: limits::kHalfOpenConnections, but no more than a quarter of the
// descriptors that this process may open now, and at least kHalfOpenLimitMin.
inline constexpr std::size_t kHalfOpenLimitMin = 16;
[[nodiscard]] std::size_t half_open_limit();

template <class T>
class HalfOpen {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return order_.size(); }
  [[nodiscard]] bool contains(const T* who) const { return places_.contains(who); }

  void add(std::shared_ptr<T> who, Instant since) {
    const T* key = who.get();
    Entries one;
    one.push_back({std::move(who), since});
    places_.emplace(key, one.begin());
    order_.splice(order_.end(), one);
  }
  // Null: it has no place here.
  std::shared_ptr<T> remove(const T* who) {
    const auto place = places_.find(who);
    if (place == places_.end()) return nullptr;
    std::shared_ptr<T> out = std::move(place->second->who);
    order_.erase(place->second);
    places_.erase(place);
    return out;
  }
  struct Entry {
    std::shared_ptr<T> who;
    Instant since;
  };
  using Entries = std::list<Entry>;
  // Needs no memory.
  Entries remove_all() {
    places_.clear();
    return std::exchange(order_, {});
  }

  // Null: there is none.
  [[nodiscard]] std::shared_ptr<T> oldest() const {
    return order_.empty() ? nullptr : order_.front().who;
  }

 private:
  Entries order_;
  std::unordered_map<const T*, typename Entries::iterator> places_;
};

// Those of all listeners of a device, which share the limit. Any thread; no other lock is taken
// while its own is held. The listeners own them.
class HalfOpenOfDevice {
 public:
  void add(const std::shared_ptr<ConnectionImpl>& who, const SocketAddress& peer, Instant since);
  void remove(const ConnectionImpl* who);
  // Its Request is there, and waits for room in the backlog. Needs no memory.
  void has_asked(const ConnectionImpl* who);
  [[nodiscard]] std::size_t size() const;

  // The one that a newcomer takes the place of: of those that say nothing, the oldest from the host
  // that has the most places, once it has had its time or at once if `hurry`. If all have asked
  // and `asked_too`, the same among them. Null: the newcomer has to wait.
  [[nodiscard]] std::shared_ptr<ConnectionImpl> gives_way(bool hurry, bool asked_too) const;
  // When that of those that say nothing will have had its time. never(): all have asked.
  [[nodiscard]] Instant gives_way_at() const;

 private:
  struct FromHost;
  struct Place {
    std::weak_ptr<ConnectionImpl> who;
    Instant since;
    std::map<os::CallingHost, FromHost>::iterator host;
    bool asked = false;
  };
  using Places = std::list<Place>;  // the oldest first
  struct FromHost {
    Places silent, asked;
  };
  // Null: there is none.
  [[nodiscard]] const Place* oldest_of_the_most(Places FromHost::*kind) const WEFT_REQUIRES(mutex_);

  mutable os::Mutex mutex_;
  std::map<os::CallingHost, FromHost> hosts_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<const ConnectionImpl*, Places::iterator> by_connection_
      WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::verbs
