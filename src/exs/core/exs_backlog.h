// The connections of a listener that no exs_accept has taken yet.
//
// With the mutex of the listener, but for half_open connections, which any thread counts.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "exs/core/exs_address.h"

namespace weft::exs {

class Socket;

// An established socket that nobody has accepted.
struct Arrival {
  std::shared_ptr<Socket> socket;
  Address peer;
  Address local;
};

class Backlog {
 public:
  // As exs_listen wants it.
  void limit(int most) {
    assert(most > 0);
    most_ = most;
  }
  [[nodiscard]] int most() const { return most_; }
  // One more connection may be set up.
  [[nodiscard]] bool has_room() const {
    return static_cast<int>(arrivals_.size()) + half_open_.load() < most_;
  }

  // A connection is being set up, or is so no more.
  void begin_one() { half_open_.fetch_add(1); }
  void end_one() {
    [[maybe_unused]] const int before = half_open_.fetch_sub(1);
    assert(before > 0);
  }

  [[nodiscard]] bool empty() const { return arrivals_.empty(); }
  void add(Arrival arrival) {
    assert(arrival.socket != nullptr);
    arrivals_.push_back(std::move(arrival));
  }
  Arrival take_first() {
    assert(!empty());
    Arrival first = std::move(arrivals_.front());
    arrivals_.pop_front();
    return first;
  }
  [[nodiscard]] std::deque<Arrival> take_all() { return std::exchange(arrivals_, {}); }

 private:
  int most_ = 0;
  std::deque<Arrival> arrivals_;
  std::atomic<int> half_open_{0};
};

}  // namespace weft::exs
