// The state of the world in progress_model.h: the threads, their roles and places, the shared
// words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "os/kick_lock.h"
#include "progress/word.h"

namespace weft::progress::model {

using os::KickWord;

enum class Mutant : std::uint8_t {
  kNone,
  kSignalLostOnRunning,    // signal_step() leaves a running lane alone
  kPopForgets,             // pop_step() of a running lane does not say Signaled
  kAsleepWithNews,         // end_step() goes to sleep whatever came
  kPostLostOnRunning,      // post_step() tells the holder nothing
  kEndForgetsPosted,       // end_step() does not look at Posted
  kEndLinksTwice,          // end_step() links a lane that is linked
  kTellWithoutWake,        // kick_or_wake() does not wake sleepers or the background
  kLeaveLosesKick,         // the run lock is left whatever came
  kNoWakeOfWhatIsLeft,     // who leaves work behind tells nobody
  kAnnounceWithoutLook,    // a lane with a ring does not look again behind its announcement
  kNoFutexWake,            // end does not wake who waits for the lane
  kLeftPostBesideSleeper,  // a post that is left does not look for sleepers behind its note
  kNoteBehindInbox,        // a pass takes the note of a left post behind its lane
  kRestSleeps,             // a turn that stops early goes to sleep
  kPostHidesRest,          // a turn that begins with a post only sends, whatever the last one left
  kBackgroundLeavesRest,   // the background stops for callers who have gone to sleep meanwhile
  kTakerBeforeSleep,       // who takes an event before it sleeps says nothing of what is left
  kTakerBehindSleep,       // the same, behind a sleep
  kControlLooksAway,       // control does not look whether the lane has ended before it came
  kGlanceTakesNote,        // a glance takes the note of a left post, and leaves the post
  kRetiredForgotten,       // a pass says that no lane is over before it has looked
};

enum class Role : std::uint8_t {
  kNone,
  kNet,
  kNetTwice,
  kBurst,  // two messages at once
  kPoster,
  kLater,
  kCaller,
  kGlancer,  // a caller that has completions to take whenever it polls
  kSleeper,
  kTaker,  // sleeps until it has received something
  kArmer,
  kControl,  // has a turn
  kCloser,
  kResets,  // the peer's end
};
enum class Want : std::uint8_t { kPoll, kGlance, kAll, kSettle };

// Where a thread is. The steps of a run, and those of an end, are shared by the roles.
enum Pc : std::uint8_t {
  kStart,
  // Shard::run()
  kEnter,
  kNote,
  kInbox,
  kHarvest,
  kReport,
  kUnlink,
  kPop,
  kTurn,
  kSettles,
  kLooksAgain,
  kEndTurn,
  kSendAgain,
  kFree,
  kLookAtRetired,
  kNoteRetired,
  kWhatIsLeft,
  kLeave,
  // Lane::leave() outside a pass, and kick_or_wake()
  kEndPost,
  kSendMore,
  kPush,
  kTell,
  kLookForSleepers,
  kWake,
  // the roles' own
  kPost,
  kNoteIt,
  kSend,
  kRing,
  kAfterRun,
  kAsleepNow,
  kSleepOver,
  kWaits,
  kFutex,
  kWork,
  kBehind,
  kGive,
  kDone,
};

// No padding: states are compared by their bytes. A word of the lane has fewer than 16 bits.
using SmallWord = std::uint16_t;

struct Thread {
  SmallWord seen = 0;
  Pc pc = kStart;
  Pc back = kDone;  // behind a run, or behind an end
  Want want = Want::kPoll;
  std::uint8_t rounds = 0;
  std::uint8_t passes = 0;
  std::uint8_t to = kAsleep;
  bool patient = false, kicked = false, event = false, left = false, received = false;
  bool got = false;  // received, in any turn of this run
};
static_assert(std::has_unique_object_representations_v<Thread>);

constexpr std::size_t kThreads = 5;  // the last is the background's

enum class Wrong : std::uint8_t {
  kNothing,
  kTwoHolders,
  kUsedAfterFree,
  kLinkedTwice,
  kAsleepAndLinked,
  kAsleepAndAttended,
  kWaitsForEver,
  kUnread,
  kUnsent,
  kLate,
  kKept,
};

struct World {
  SmallWord word = kAsleep;
  KickWord lock = KickWord::kFree;
  std::uint8_t inbox = 0, list = 0;     // how often the lane is linked there
  std::uint8_t unread = 0, unsent = 0;  // octets, requests
  bool edge = false, wake = false;      // what the shard's epoll has to report
  bool home = false;                    // what the background's epoll has to report
  bool announced = true;                // a ring: the peer knows that nobody looks
  bool attended = false;
  bool callers = false;  // the owner
  std::uint8_t sleepers = 0;
  bool live = true, retired = false, freed = false;
  bool any_retired = false;  // the shard's note of that
  bool note = false;         // a post was left
  bool reset = false;        // the peer has gone
  bool more = false;         // the holder's: the last turn stopped early
  std::uint8_t stops = 0;    // turns and passes may still stop early so often
  std::uint8_t holders = 0;
  Wrong wrong = Wrong::kNothing;
  std::array<Thread, kThreads> threads;
};
static_assert(std::has_unique_object_representations_v<World>);

}  // namespace weft::progress::model
