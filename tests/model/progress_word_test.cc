// The table and the picture of a lane's word in docs/threads.md: generated from the steps of
// progress/word.h, the same functions that progress_model_test explores.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "progress/word.h"

namespace weft::progress {
namespace {

constexpr Word kOther = kNews & ~kPosted;  // treated alike by every step
constexpr Word kNoted = kInList | kSignaled | kNews;

struct Event {
  std::string_view name;
  std::string_view function;
  std::string_view meaning;
  Step (*step)(Word);
};
constexpr Event kEvents[] = {
    {"signal", "signal_step", "something came; the caller does not run the lane",
     [](Word w) { return signal_step(w, kOther); }},
    {"defer", "signal_step", "a post is left to the next pass",
     [](Word w) { return signal_step(w, kPosted); }},
    {"pop", "pop_step", "a pass has taken the lane out of its list", pop_step},
    {"post", "post_step", "a request was posted, or a receive that was awaited",
     [](Word w) { return post_step(w, kPosted); }},
    {"try", "try_step", "a caller wants the lane only if it is free", try_step},
    {"control", "control_step", "modify, disconnect, a time limit", control_step},
    {"end", "end_step", "the turn is over, nothing is left, the peer was told",
     [](Word w) { return end_step(w, kAsleep); }},
    {"yield", "end_step", "the turn is over, the lane has more to do",
     [](Word w) { return end_step(w, kReady); }},
    {"close", "end_step", "the connection is over", [](Word w) { return end_step(w, kClosed); }},
};

struct Named {
  Word value;
  std::string_view name;
};
constexpr Named kStates[] = {
    {kClosed, "Closed"}, {kAsleep, "Asleep"}, {kReady, "Ready"}, {kRunning, "Running"}};
constexpr Named kBits[] = {{kInList, "InList"},
                           {kSignaled, "Signaled"},
                           {kWanted, "Wanted"},
                           {kPosted, "Posted"},
                           {kOther, "news"}};

std::string_view name_of(Word state) { return kStates[state].name; }

// A pass pops what is in the list; only a holder ends a turn.
bool may_happen(const Event& event, Word w) {
  if (event.name == "pop") return (w & kInList) != 0;
  return event.function != "end_step" || state_of(w) == kRunning;
}

std::set<Word> reachable() {
  std::set<Word> known{kClosed};
  std::vector<Word> open{kClosed};
  while (!open.empty()) {
    const Word w = open.back();
    open.pop_back();
    for (const Event& event : kEvents) {
      if (!may_happen(event, w)) continue;
      const Word next = event.step(w).word;
      if (known.insert(next).second) open.push_back(next);
    }
  }
  return known;
}

// What a step does to each word of a set. Nothing: not the same to all of them.
struct Effect {
  Word state;
  std::string bits;
  Next next;
};
std::optional<Effect> effect(const Event& event, const std::vector<Word>& words) {
  const Step first = event.step(words.front());
  Effect out{state_of(first.word), "", first.next};
  for (const Word w : words) {
    const Step s = event.step(w);
    if (state_of(s.word) != out.state || s.next != out.next) return {};
  }
  for (const Named& bit : kBits) {
    bool keeps = true, sets = true, clears = true;
    for (const Word w : words) {
      const Word after = event.step(w).word & bit.value;
      keeps &= after == (w & bit.value);
      sets &= after == bit.value;
      clears &= after == 0;
    }
    if (keeps) continue;
    if (!sets && !clears) return {};
    out.bits += (sets ? " +" : " -") + std::string(bit.name);
  }
  return out;
}

std::string_view describe(Next next) {
  switch (next) {
    case Next::kNothing: return "";
    case Next::kPush: return "link it";
    case Next::kEnter: return "enter";
    case Next::kLeft: return "leave it";
    case Next::kWait: return "wait";
    case Next::kAgain: return "send, repeat";
    case Next::kVoid: return "void";
  }
  return "?";
}

std::string describe(const Effect& e, Word from) {
  std::string out(e.state == from ? "" : name_of(e.state));
  out += e.bits;
  if (out.starts_with(' ')) out.erase(0, 1);
  const std::string_view next = describe(e.next);
  if (next.empty()) return out.empty() ? "-" : out;
  return out + (out.empty() ? "" : ": ") + std::string(next);
}

struct Condition {
  std::string_view name;
  bool (*holds)(Word);
};
constexpr Condition kConditions[] = {
    {"Posted", [](Word w) { return (w & kPosted) != 0; }},
    {"nothing noted", [](Word w) { return (w & kNoted) == 0; }},
    {"Wanted", [](Word w) { return (w & kWanted) != 0; }},
    {"InList", [](Word w) { return (w & kInList) != 0; }},
};

// The first condition that holds decides; the last case is the rest.
struct Case {
  std::string_view condition;
  Effect effect;
};
std::optional<std::vector<Case>> cases(const Event& event, std::vector<Word> words, unsigned used) {
  std::vector<Case> out;
  for (std::size_t i = 0; i <= std::size(kConditions); ++i) {
    const bool last = i == std::size(kConditions);
    if (!last && (used & 1U << i) == 0) continue;
    std::vector<Word> these, others;
    for (const Word w : words) (last || kConditions[i].holds(w) ? these : others).push_back(w);
    if (these.empty()) return {};
    const auto all = effect(event, these);
    if (!all) return {};
    out.push_back({last ? "" : kConditions[i].name, *all});
    words = std::move(others);
  }
  return out;
}

// With as few conditions as possible. None: the event does not happen in this state.
std::vector<Case> cases(const Event& event, Word state) {
  std::vector<Word> words;
  for (const Word w : reachable()) {
    if (state_of(w) == state && may_happen(event, w)) words.push_back(w);
  }
  if (words.empty()) return {};
  std::optional<std::vector<Case>> best;
  for (unsigned used = 0; used < 1U << std::size(kConditions); ++used) {
    auto found = cases(event, words, used);
    if (found && (!best || found->size() < best->size())) best = std::move(found);
  }
  EXPECT_TRUE(best) << event.name << " in " << name_of(state) << " needs another condition";
  return best.value_or(std::vector<Case>{});
}

std::string cell(const Event& event, Word state) {
  std::string out;
  for (const Case& one : cases(event, state)) {
    if (!out.empty()) out += "<br>";
    if (!one.condition.empty()) out += "*" + std::string(one.condition) + "* ";
    out += describe(one.effect, state);
  }
  return out;
}

std::string page() {
  std::ostringstream out;
  out << "\n| event | Closed | Asleep | Ready | Running |\n|---|---|---|---|---|\n";
  for (const Event& event : kEvents) {
    out << "| **" << event.name << "**: " << event.meaning << " |";
    for (const Named& state : kStates) {
      const std::string text = cell(event, state.value);
      out << (text.empty() ? "" : " ") << text << " |";
    }
    out << "\n";
  }
  std::map<std::pair<Word, Word>, std::string> arrows;
  for (const Named& from : kStates) {
    for (const Event& event : kEvents) {
      std::set<Word> to;
      for (const Case& one : cases(event, from.value)) to.insert(one.effect.state);
      to.erase(from.value);
      for (const Word state : to) {
        std::string& label = arrows[{from.value, state}];
        label += (label.empty() ? "" : ", ") + std::string(event.name);
      }
    }
  }
  out << "\n```mermaid\nstateDiagram-v2\n  [*] --> Closed\n";
  for (const auto& [ends, label] : arrows) {
    out << "  " << name_of(ends.first) << " --> " << name_of(ends.second) << ": " << label << "\n";
  }
  out << "```\n";
  return out.str();
}

std::string contents(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

constexpr std::string_view kBegin = "<!-- generated by progress_word_test -->\n";
constexpr std::string_view kEnd = "<!-- end -->\n";

TEST(LaneWord, TheGeneratedPartOfThePageIsUpToDate) {
  const std::string path = WEFT_SOURCE_DIR "/docs/threads.md";
  std::string have = contents(path);
  const std::size_t begin = have.find(kBegin);
  const std::size_t end = have.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end);
  const std::size_t from = begin + kBegin.size();
  if (std::getenv("WEFT_UPDATE") != nullptr) {
    std::ofstream(path) << have.substr(0, from) << page() << have.substr(end);
    have = contents(path);
  }
  EXPECT_EQ(have.substr(from, have.find(kEnd) - from), page())
      << "run this test with WEFT_UPDATE=1 and commit docs/threads.md";
}

// Else the table would be silent about a step that is added.
TEST(LaneWord, EveryStepIsInTheTable) {
  std::set<std::string> listed;
  for (const Event& event : kEvents) listed.emplace(event.function);
  const std::string header = contents(WEFT_SOURCE_DIR "/src/progress/word.h");
  const std::regex step(R"(constexpr Step (\w+)\()");
  std::set<std::string> defined;
  for (auto at = std::sregex_iterator(header.begin(), header.end(), step);
       at != std::sregex_iterator(); ++at) {
    defined.insert((*at)[1]);
  }
  EXPECT_EQ(listed, defined);
}

// What progress/word.h says of every word.
TEST(LaneWord, NoStepLeavesWhatAlwaysHolds) {
  for (const Word w : reachable()) EXPECT_TRUE(is_sound(w)) << w;
}

}  // namespace
}  // namespace weft::progress
