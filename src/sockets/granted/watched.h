// The lanes that one wait of a thread is about: looking into their rings, with windows open, and
// saying so before the thread sleeps in the kernel.
//
// Threads: one. A thread that is cancelled in the middle leaves windows closed.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>

#include "sockets/granted/lane_calls.h"
#include "sockets/granted/ring_lane.h"

namespace weft::sockets::granted {

class Watched {
 public:
  static constexpr std::size_t kMost = 128;

  Watched() = default;
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // `lane` is watched for octets to read, unless its number is closed; `tag` is the caller's.
  // Beyond kMost its window is closed instead. `edge`: only octets that no wait has told of yet
  // count.
  void add(Lane& lane, std::size_t tag, bool edge = false);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] Lane& lane(std::size_t i) const {
    assert(i < count_);
    return *entries_[i].lane;
  }
  [[nodiscard]] std::size_t tag(std::size_t i) const {
    assert(i < count_);
    return entries_[i].tag;
  }

  // Whether its ring has something to tell of.
  [[nodiscard]] bool has_news(std::size_t i) const {
    const Lane& one = lane(i);
    return readable(one) && (!entries_[i].edge || !one.reading.has_reported(written(one)));
  }
  [[nodiscard]] bool any_news() const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (has_news(i)) return true;
    }
    return false;
  }
  // This wait tells of it.
  void note_named(std::size_t i) const {
    Lane& one = lane(i);
    one.reading.note_named(this_thread(), written(one));
  }
  // The kernel told of it, and will not again, if `edge`.
  void note_kernels(std::size_t i) const {
    if (entries_[i].edge) lane(i).reading.note_kernels_edge();
  }
  // Writers may use the rings from now on. False: none that could do so while this thread looks.
  [[nodiscard]] bool open();
  // ... and no more: this thread goes to sleep in the kernel. Look once more behind this.
  void sleep();
  void wake();
  // Windows that need not stay open are closed.
  void close();

 private:
  static std::uint64_t written(const Lane& lane) {
    return lane.rings.in().load(GrantWord::kWritten);
  }

  // Begun by add() alone: a wait has few most often, and would pay for all.
  struct Entry {
    Entry() {}  // NOLINT(modernize-use-equals-default): so that an array of them is left alone
    ~Entry() {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    union {
      Use use;
    };
    Lane* lane;
    std::size_t tag;
    bool edge;
    bool counted;  // as asleep, if this thread sleeps
  };
  std::array<Entry, kMost> entries_;
  std::size_t count_ = 0;
  bool asleep_ = false;
};

}  // namespace weft::sockets::granted
