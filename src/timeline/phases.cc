#include "timeline/phases.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace weft::timeline {

namespace {

using Lists = std::map<std::string_view, std::vector<std::uint64_t>>;

// In the order in which they are shown.
constexpr std::array<std::string_view, 9> kNames = {"post call",   "doorbell",      "sending",
                                                    "to the peer", "until the end", "no receive",
                                                    "placing",     "until done",    "until polled"};

void add(Lists& lists, std::string_view name, std::uint64_t from, std::uint64_t to) {
  if (from == kNever || to == kNever) return;
  lists[name].push_back(to > from ? to - from : 0);
}

void add_request(const Story& story, const Clocks& clocks, const Item& item, Lists& lists) {
  const Record& r = item.record;
  add(lists, "post call", r.start, r.at(At::kPostEnd));
  add(lists, "doorbell", r.start, r.at(At::kTaken));
  add(lists, "sending", r.at(At::kTaken), r.at(At::kLastOut));
  if (item.mate != kNobody) {
    const Item& mate = story.items[item.mate];
    add(lists, "to the peer", clocks.common(item.process, r.at(At::kLastOut)),
        clocks.common(mate.process, mate.record.at(At::kPlaced)));
  }
  add(lists, "until the end", r.at(At::kLastOut), r.at(At::kCompleted));
  add(lists, "until polled", r.at(At::kCompleted), r.at(At::kPolled));
}

void add_message(const Item& item, Lists& lists) {
  const Record& r = item.record;
  const std::uint64_t late = r.at(At::kLateUntil);
  add(lists, "no receive", r.at(At::kArrived), late);
  add(lists, "placing", late != kNever ? late : r.at(At::kArrived), r.at(At::kPlaced));
  add(lists, "until done", r.at(At::kPlaced), r.at(At::kReceived));
  add(lists, "until polled", r.at(At::kReceived), r.at(At::kPolled));
}

Phase phase_of(std::string_view name, std::vector<std::uint64_t> times) {
  std::ranges::sort(times);
  return {name, times.size(), times[times.size() / 2], times[times.size() * 99 / 100],
          times.back()};
}

}  // namespace

std::vector<Phases> phases_of(const Story& story, const Clocks& clocks) {
  struct Kept {
    std::size_t count = 0;
    Lists lists;
  };
  std::map<std::tuple<std::size_t, bool, Op>, Kept> kinds;
  for (const Item& item : story.items) {
    if (item.record.kind == Kind::kNone) continue;
    const bool request = item.record.kind == Kind::kRequest;
    Kept& kept = kinds[{item.process, !request, item.record.op}];
    ++kept.count;
    if (request) {
      add_request(story, clocks, item, kept.lists);
    } else {
      add_message(item, kept.lists);
    }
  }
  std::vector<Phases> out;
  for (auto& [kind, kept] : kinds) {
    Phases one{std::get<0>(kind), !std::get<1>(kind), std::get<2>(kind), kept.count, {}};
    for (const std::string_view name : kNames) {
      if (const auto found = kept.lists.find(name); found != kept.lists.end())
        one.phases.push_back(phase_of(name, std::move(found->second)));
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace weft::timeline
