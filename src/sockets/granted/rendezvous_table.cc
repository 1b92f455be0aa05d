#include "sockets/granted/rendezvous_table.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>

#include "base/cpu_pause.h"

namespace weft::sockets::granted {
namespace {

using rendezvous::Answer;
using rendezvous::Found;
using rendezvous::Made;
using rendezvous::Post;

constexpr int kTries = 1000;
constexpr std::int64_t kNsPerS = 1'000'000'000;

// A holder in one word: pid, the low bits of its namespace, and a second.
constexpr unsigned kPidBits = 22;  // the kernel's most
constexpr unsigned kSpaceBits = 18;
constexpr std::uint64_t kPidMask = (1ULL << kPidBits) - 1;
constexpr std::uint64_t kSpaceMask = (1ULL << kSpaceBits) - 1;
constexpr std::uint64_t kSecondMask = (1ULL << (64 - kPidBits - kSpaceBits)) - 1;

std::uint64_t holder_of(Member me, std::int64_t now) {
  const std::uint64_t second = static_cast<std::uint64_t>(now / kNsPerS) & kSecondMask;
  return second << (kPidBits + kSpaceBits) | (me.space & kSpaceMask) << kPidBits |
         (static_cast<std::uint64_t>(me.pid) & kPidMask);
}

std::int64_t seconds_held(std::uint64_t holder, std::int64_t now) {
  const auto second = static_cast<std::uint64_t>(now / kNsPerS);
  return static_cast<std::int64_t>((second - (holder >> (kPidBits + kSpaceBits))) & kSecondMask);
}

// Whether it can't be a process that lives. One of another namespace is not known.
bool dead(Member me, std::int32_t pid, std::uint32_t space) {
  if (me.space == 0 || space != me.space) return false;
  return pid <= 0 || (kill(pid, 0) != 0 && errno != EPERM);
}

std::uint32_t hash_of(const Key& key) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const std::uint8_t octet : key.octets) h = (h ^ octet) * 0x100000001b3U;
  return static_cast<std::uint32_t>(h ^ (h >> 32U));
}

}  // namespace

// For some microseconds at most. The lock of a process that has died is taken over.
bool RendezvousTable::try_lock(Member me, std::int64_t now) {
  const std::uint64_t mine = holder_of(me, now);
  assert(mine != 0);  // 0 means nobody
  std::uint64_t holder = 0;
  for (int i = 0; i < kTries; ++i) {
    holder = 0;
    if (holder_.compare_exchange_strong(holder, mine)) return true;
    cpu_pause();
  }
  const auto pid = static_cast<std::int32_t>(holder & kPidMask);
  const auto space = static_cast<std::uint32_t>(holder >> kPidBits & kSpaceMask);
  const Member seen{me.pid, static_cast<std::uint32_t>(me.space & kSpaceMask)};
  if (pid == me.pid && space == seen.space && seconds_held(holder, now) <= kLongestHoldS) {
    return false;  // another thread
  }
  const bool gone = dead(seen, pid, space) || seconds_held(holder, now) > kLongestHoldS;
  return gone && holder_.compare_exchange_strong(holder, mine);
}

// With the lock. The entry of the key, or null; `room`: one that may be used for it, or null.
RendezvousTable::Entry* RendezvousTable::find(Member me, std::int64_t now, const Key& key,
                                              Entry*& room) {
  const std::uint32_t first = hash_of(key);
  room = nullptr;
  for (std::uint32_t i = 0; i < kReach; ++i) {
    Entry& entry = at(first + i);
    const bool used = (entry.state.load() & kPhases) != kFree;
    if (used && entry.key.octets == key.octets) return &entry;
    if (room == nullptr && !used) room = &entry;
  }
  for (std::uint32_t i = 0; i < kReach && room == nullptr; ++i) {
    Entry& entry = at(first + i);
    const bool old = now - entry.posted.load() > kPatienceNs;
    if (old || dead(me, entry.pid.load(), entry.space.load())) room = &entry;
  }
  return nullptr;
}

void RendezvousTable::fill(Entry& entry, Member me, std::int64_t now, const Post& post,
                           Ticket& ticket) {
  const std::uint64_t generation = (entry.state.load() >> 2U) + 1;
  entry.state.store(generation << 2U | kFree);  // who withdraws the last one no longer finds it
  entry.key = post.key;
  entry.end = post.end;
  entry.cookie = post.cookie;
  entry.pid = me.pid;
  entry.space = me.space;
  entry.posted = now;
  entry.segment = -1;
  entry.nonce = 0;
  entry.state.store(generation << 2U | kWaiting);
  ticket = {static_cast<int>(&entry - entries_.data()), generation, 0, now};
}

Found RendezvousTable::post(Member me, std::int64_t now, const Post& post, Ticket& ticket) {
  assert(me.pid > 0 && now >= 0 && post.end < 2);
  if (!try_lock(me, now)) return Found::kLater;
  Entry* room = nullptr;
  Entry* entry = find(me, now, post.key, room);
  const bool lives = entry != nullptr && !dead(me, entry->pid.load(), entry->space.load());
  if (lives && entry->end != post.end) {
    std::uint64_t state = entry->state.load();
    if ((state & kPhases) == kWaiting &&
        entry->state.compare_exchange_strong(state, state | kMaking)) {
      ticket = {static_cast<int>(entry - entries_.data()), state >> 2U, 0, now};
      unlock();
      return Found::kPeer;
    }
  }
  // An entry of this key that is no peer's who waits was left by a connection that has ended, or
  // another holder of this socket posted it: then neither gets a lane.
  const bool shared = lives && entry->end == post.end && entry->cookie == post.cookie &&
                      (entry->pid.load() != me.pid || entry->space.load() != me.space);
  if (entry == nullptr) entry = room;
  if (entry != nullptr && !shared) fill(*entry, me, now, post, ticket);
  unlock();
  return entry == nullptr || shared ? Found::kNo : Found::kPosted;
}

void RendezvousTable::give(const Ticket& ticket, const Made& made) {
  Entry& entry = posted_as(ticket);
  std::uint64_t state = ticket.generation << 2U | kMaking;
  if (entry.state.load() != state) return;
  // If its owner withdraws it meanwhile, the segment stays without a second end. If it is another
  // connection's by then, that one sees a segment that is not its own.
  entry.segment = made.segment;
  entry.nonce = made.nonce;
  const std::uint64_t phase = made.segment < 0 ? kFree : kMade;
  entry.state.compare_exchange_strong(state, ticket.generation << 2U | phase);
}

Answer RendezvousTable::look(const Ticket& ticket, Made& made) {
  Entry& entry = posted_as(ticket);
  std::uint64_t state = entry.state.load();
  if (state == (ticket.generation << 2U | kWaiting) ||
      state == (ticket.generation << 2U | kMaking)) {
    return Answer::kNotYet;
  }
  if (state != (ticket.generation << 2U | kMade)) return Answer::kGone;
  made = {entry.segment.load(), entry.nonce.load()};
  const bool mine = entry.state.compare_exchange_strong(state, ticket.generation << 2U | kFree);
  return mine ? Answer::kSegment : Answer::kGone;
}

void RendezvousTable::withdraw(const Ticket& ticket) {
  Entry& entry = posted_as(ticket);
  for (const std::uint64_t phase : {kWaiting, kMaking, kMade}) {
    std::uint64_t state = ticket.generation << 2U | phase;
    if (entry.state.compare_exchange_strong(state, ticket.generation << 2U | kFree)) return;
  }
}

}  // namespace weft::sockets::granted
