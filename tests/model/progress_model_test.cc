// Every interleaving of a few threads over one lane and its shard (progress_model.h), by explicit
// search.
//
// A rule that is left out (Mutant) must show: something is lost, held twice or linked twice.
#include "progress_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::progress::model {
namespace {

struct Setting {
  std::array<Role, kThreads - 1> roles;
  std::uint8_t stops = 0;  // turns and passes that stop early
};

struct Outcome {
  std::size_t states = 0;
  Wrong wrong = Wrong::kNothing;
};

Wrong judge(const World& w, bool end) {
  if (w.wrong != Wrong::kNothing) return w.wrong;
  if (state_of(w.word) == kAsleep && (w.word & kInList) != 0) return Wrong::kAsleepAndLinked;
  if (state_of(w.word) == kAsleep && w.attended) return Wrong::kAsleepAndAttended;
  if (!end) return Wrong::kNothing;
  for (std::size_t t = 0; t + 1 < kThreads; ++t) {
    const Pc pc = w.threads[t].pc;
    if (pc != kDone && pc != kAsleepNow) return Wrong::kWaitsForEver;
  }
  if (w.live && (w.unread != 0 || w.reset)) return Wrong::kUnread;
  if (w.unsent != 0) return Wrong::kUnsent;
  return w.retired && !w.freed ? Wrong::kKept : Wrong::kNothing;
}

std::uint64_t hash(const World& w) {
  std::array<std::uint64_t, (sizeof(World) + 7) / 8> words{};
  std::memcpy(words.data(), &w, sizeof w);
  std::uint64_t h = 0xcbf29ce484222325;
  for (const std::uint64_t word : words) {
    h = (h ^ word) * 0x9e3779b97f4a7c15;
    h ^= h >> 32U;
  }
  return h;
}

// Hashes, in a table at most half full.
class Known {
 public:
  // False: it was there.
  bool insert(std::uint64_t h) {
    h += h == 0;  // an empty place
    if (2 * size_ >= table_.size()) grow();
    return put(h);
  }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  bool put(std::uint64_t h) {
    std::size_t at = h & (table_.size() - 1);
    for (; table_[at] != 0; at = (at + 1) & (table_.size() - 1)) {
      if (table_[at] == h) return false;
    }
    table_[at] = h;
    ++size_;
    return true;
  }
  void grow() {
    const std::vector<std::uint64_t> before = std::exchange(
        table_, std::vector<std::uint64_t>(std::max<std::size_t>(1024, 4 * table_.size())));
    size_ = 0;
    for (const std::uint64_t h : before) {
      if (h != 0) put(h);
    }
  }
  std::vector<std::uint64_t> table_;
  std::size_t size_ = 0;
};

// As test::explore(), which keeps the states themselves; here there are millions. Two states with
// one hash would hide what only the second leads to: of 10^7, with a chance of one in 300,000.
Outcome search(const Setting& setting, bool ring, Mutant mutant) {
  const Model model(setting.roles, setting.stops != 0, ring, mutant);
  World first;
  first.stops = setting.stops;
  for (const Role role : setting.roles)
    first.callers |= role == Role::kCaller || role == Role::kGlancer;
  Known known;
  known.insert(hash(first));
  std::vector<World> open{first};
  std::vector<World> following;
  Outcome out;
  while (!open.empty() && out.wrong == Wrong::kNothing) {
    const World w = open.back();
    open.pop_back();
    following.clear();
    model.next(w, following);
    out.wrong = judge(w, following.empty());
    for (const World& after : following) {
      if (known.insert(hash(after))) open.push_back(after);
    }
  }
  out.states = known.size();
  return out;
}

constexpr Role kNo = Role::kNone;
// The small ones first: they find most.
constexpr std::array<Setting, 17> kSettings{{
    {{Role::kNetTwice, Role::kCaller, kNo, kNo}},
    {{Role::kNetTwice, Role::kSleeper, kNo, kNo}},
    {{Role::kNet, Role::kPoster, Role::kCaller, kNo}},
    {{Role::kNet, Role::kPoster, Role::kControl, kNo}},
    {{Role::kNet, Role::kPoster, Role::kSleeper, kNo}},
    {{Role::kNet, Role::kLater, Role::kCaller, kNo}},
    {{Role::kNet, Role::kLater, Role::kGlancer, kNo}},
    {{Role::kLater, Role::kGlancer, Role::kSleeper, kNo}},
    {{Role::kNet, Role::kCaller, Role::kSleeper, kNo}},
    {{Role::kNet, Role::kCaller, Role::kArmer, kNo}},
    {{Role::kNet, Role::kCaller, Role::kCloser, kNo}},
    {{Role::kBurst, Role::kControl, kNo, kNo}, 1},
    {{Role::kResets, Role::kControl, Role::kCaller, kNo}, 1},
    {{Role::kBurst, Role::kSleeper, Role::kTaker, kNo}, 1},
    {{Role::kNet, Role::kControl, Role::kControl, Role::kArmer}},
    {{Role::kBurst, Role::kLater, Role::kCaller, kNo}, 1},
    {{Role::kNet, Role::kLater, Role::kSleeper, kNo}},
}};

TEST(ProgressModel, NoInterleavingLosesAnythingOrLetsTwoIn) {
  for (const bool ring : {false, true}) {
    for (std::size_t i = 0; i < kSettings.size(); ++i) {
      const Outcome found = search(kSettings[i], ring, Mutant::kNone);
      EXPECT_EQ(found.wrong, Wrong::kNothing)
          << static_cast<int>(found.wrong) << ", setting " << i << (ring ? ", ring" : ", TCP");
      EXPECT_GT(found.states, 1000U) << "setting " << i;
    }
  }
}

class Rule : public ::testing::TestWithParam<Mutant> {};

TEST_P(Rule, ThatIsLeftOutShows) {
  for (const bool ring : {false, true}) {
    for (const Setting& setting : kSettings) {
      if (search(setting, ring, GetParam()).wrong != Wrong::kNothing) return;
    }
  }
  FAIL() << "no interleaving needs this rule";
}

INSTANTIATE_TEST_SUITE_P(ProgressModel, Rule,
                         ::testing::Values(Mutant::kSignalLostOnRunning, Mutant::kPopForgets,
                                           Mutant::kAsleepWithNews, Mutant::kPostLostOnRunning,
                                           Mutant::kEndForgetsPosted, Mutant::kEndLinksTwice,
                                           Mutant::kTellWithoutWake, Mutant::kLeaveLosesKick,
                                           Mutant::kNoWakeOfWhatIsLeft,
                                           Mutant::kAnnounceWithoutLook, Mutant::kNoFutexWake,
                                           Mutant::kLeftPostBesideSleeper, Mutant::kNoteBehindInbox,
                                           Mutant::kGlanceTakesNote, Mutant::kRestSleeps,
                                           Mutant::kPostHidesRest, Mutant::kBackgroundLeavesRest,
                                           Mutant::kTakerBeforeSleep, Mutant::kTakerBehindSleep,
                                           Mutant::kControlLooksAway, Mutant::kRetiredForgotten));

}  // namespace
}  // namespace weft::progress::model
