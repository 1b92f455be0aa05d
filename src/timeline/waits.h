// The waits of each process, and whose matter they are.
//
// At each moment a connection is in one state, as seen from one of its ends. Where several causes
// hold, the state is the first of them in the table of docs/timeline.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "timeline/clocks.h"
#include "timeline/story.h"

namespace weft::timeline {

enum class Cause : std::uint8_t {
  // The program's.
  kReceiveLate,  // a message of the peer waited for a receive
  kNotPolled,    // a completion waited to be polled
  kRegistering,  // memory was registered, and nothing was under way
  kOneAtATime,   // the one request that was posted was under way
  kNotPosting,   // there was nothing to send
  // Weft's.
  kDoorbell,   // what was posted had not been taken by the engine
  kTransport,  // octets were on their way: TCP or the ring, the link, the peer's Weft
  kWakeUp,     // a completion was there, and the thread that polled it then was not awake yet
  // The peer's program.
  kPeerReceiveLate,
  kPeerBusy,  // it had what it was waiting for, or sends when it likes
};
inline constexpr std::size_t kCauses = 10;

enum class Share : std::uint8_t { kProgram, kWeft, kPeer };
[[nodiscard]] Share share_of(Cause cause);
[[nodiscard]] std::string_view name_of(Cause cause);
// A sentence: what it means and what to do.
[[nodiscard]] std::string_view advice_for(Cause cause);

using Times = std::array<std::uint64_t, kCauses>;  // ns by Cause

// A time in one state.
struct State {
  std::uint64_t from = 0, to = 0;
  Cause cause{};
};

// At one end of a connection.
struct Waits {
  std::size_t connection = 0;  // of Story::connections
  std::size_t requests = 0, messages = 0;
  std::size_t depth = 0;     // the most requests that were posted and not done
  std::uint64_t active = 0;  // ns from the first to the last record
  Times times{};
  std::vector<State> states;  // that fill this time
};
[[nodiscard]] std::vector<Waits> waits_of(const Story& story, const Clocks& clocks);

struct Largest {
  std::size_t process = 0;
  Cause cause{};
  std::uint64_t ns = 0;
};
// The sums of each process. At a moment its state is the first of kBusiest in which one of its
// connections is: one that is idle hides nothing.
[[nodiscard]] std::vector<Times> sums_of(const Story& story, const std::vector<Waits>& waits);
// The longest; where several are about as long, the one that explains the others. None: there was
// nothing.
[[nodiscard]] std::optional<Largest> largest_of(const std::vector<Times>& sums);
// The process for whose program others waited longest.
[[nodiscard]] std::optional<Largest> slowest_of(const Story& story,
                                                const std::vector<Waits>& waits);

}  // namespace weft::timeline
