// The table behind rendezvous.h, wherever its memory is.
//
// A process that dies, or that another PID namespace hides from this one, may hold the lock or have
// posted an entry: what can't be asked for by kill(pid, 0) is told by its age. Should two processes
// be at the table at once after all, an end may get a segment that is not its connection's, which
// it finds out (segment.h).
//
// Threads: any, of any process of the user.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstdint>

#include "sockets/granted/rendezvous_post.h"

namespace weft::sockets::granted {

// A process, as others of this machine may see it. `space`: of its PID namespace, 0: not known.
struct Member {
  std::int32_t pid = 0;
  std::uint32_t space = 0;
};

class RendezvousTable {
 public:
  static constexpr std::uint32_t kEntries = 4096;
  static constexpr std::uint32_t kReach = 16;  // entries that a key may be in
  // An entry that has waited so long may be taken for another connection.
  static constexpr std::int64_t kPatienceNs = 10'000'000'000;
  static constexpr std::int64_t kLongestHoldS = 10;

  // As rendezvous.h has them. All zero is an empty table.
  [[nodiscard]] rendezvous::Found post(Member me, std::int64_t now, const rendezvous::Post& post,
                                       Ticket& ticket);
  void give(const Ticket& ticket, const rendezvous::Made& made);
  [[nodiscard]] rendezvous::Answer look(const Ticket& ticket, rendezvous::Made& made);
  void withdraw(const Ticket& ticket);

  [[nodiscard]] bool try_lock(Member me, std::int64_t now);
  void unlock() { holder_.store(0); }

 private:
  // Between kWaiting and kMade the second end makes the segment, without the lock: that takes
  // system calls, and a process may be stopped in one.
  enum Phase : std::uint64_t { kFree = 0, kWaiting = 1, kMade = 2, kMaking = 3, kPhases = 3 };

  struct Entry {
    std::atomic<std::uint64_t> state;  // generation << 2 | phase. The rest changes only while free
    std::atomic<std::int64_t> posted;
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint32_t> space;
    std::uint64_t cookie;
    std::uint32_t end;
    std::atomic<std::int32_t> segment;
    std::atomic<std::uint64_t> nonce;
    Key key;
  };

  [[nodiscard]] Entry& at(std::uint32_t index) { return entries_[index % kEntries]; }
  [[nodiscard]] Entry& posted_as(const Ticket& ticket) {
    assert(ticket.index >= 0 && static_cast<std::uint32_t>(ticket.index) < kEntries);
    return entries_[static_cast<std::size_t>(ticket.index)];
  }
  [[nodiscard]] Entry* find(Member me, std::int64_t now, const Key& key, Entry*& room);
  void fill(Entry& entry, Member me, std::int64_t now, const rendezvous::Post& post,
            Ticket& ticket);

  std::atomic<std::uint64_t> holder_;  // who has the lock and since when, 0: nobody
  alignas(64) std::array<Entry, kEntries> entries_;
};

}  // namespace weft::sockets::granted
