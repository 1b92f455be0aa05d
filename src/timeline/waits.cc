#include "timeline/waits.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

namespace weft::timeline {

namespace {

// Things that hold at a moment, each so many times.
enum class Now : std::uint8_t {
  kLate,
  kPeerLate,
  kUnpolled,
  kAsleep,  // the thread that polls
  kDoorbell,
  kTransport,
  kOutstanding,
  kUnderWay,  // to the peer, done here
  kIncoming,
  kRegistering,
  kPeersTurn,
};
constexpr std::size_t kNows = 11;

struct Edge {
  std::uint64_t at = 0;
  Now now{};
  int change = 0;
};

bool is_registration(const Call& call) {
  const std::string_view name(call.name.data(), std::strlen(call.name.data()));
  return name.find("reg_mr") != std::string_view::npos ||
         name.find("reg_dmabuf") != std::string_view::npos || name == "rdma_reg_msgs" ||
         name == "rdma_reg_read" || name == "rdma_reg_write";
}

bool is_sleep(const Call& call) { return std::strcmp(call.name.data(), "ibv_get_cq_event") == 0; }

// By the common clock.
struct Span {
  std::uint64_t from = 0, to = 0;
};

struct Registration {
  Span time;
  std::uint64_t last_to = 0;  // of this one and those before it
};

// The calls of a process that explain waits.
struct Calls {
  std::vector<Registration> registrations;          // by their beginning
  std::map<std::size_t, std::vector<Span>> sleeps;  // of each file, by their end
};

std::vector<Calls> calls_of(const Story& story, const Clocks& clocks) {
  std::vector<Calls> out(story.processes.size());
  for (const CallItem& one : story.calls) {
    const std::uint64_t from = clocks.common(one.process, one.call.start);
    const Span time{from, from + one.call.duration};
    Calls& of = out[one.process];
    if (is_registration(one.call)) of.registrations.push_back({time});
    if (is_sleep(one.call)) of.sleeps[one.file].push_back(time);
  }
  for (Calls& of : out) {
    for (auto& [file, sleeps] : of.sleeps) std::ranges::sort(sleeps, {}, &Span::to);
    std::ranges::sort(of.registrations, {}, [](const Registration& one) { return one.time.from; });
    std::uint64_t last = 0;
    for (Registration& one : of.registrations) one.last_to = last = std::max(last, one.time.to);
  }
  return out;
}

// One end of a connection, by the common clock.
class EndOfConnection {
 public:
  EndOfConnection(const Story& story, const Clocks& clocks, std::size_t connection)
      : story_(story), clocks_(clocks), self_(story.connections[connection]) {
    out_.connection = connection;
  }

  // `calls`: of its process.
  Waits waits(const Calls& calls) {
    find_depths();
    for (const std::size_t i : self_.items) add(story_.items[i]);
    add_turns();
    if (edges_.empty()) return out_;
    const auto [first, last] = std::ranges::minmax_element(edges_, {}, &Edge::at);
    const std::uint64_t from = first->at;
    const std::uint64_t to = last->at;
    out_.active = to - from;
    add_registrations(calls.registrations, from, to);
    for (auto& [file, unpolled] : unpolled_) {
      const auto sleeps = calls.sleeps.find(file);
      if (sleeps != calls.sleeps.end()) add_sleeps(sleeps->second, unpolled);
    }
    sweep();
    return out_;
  }

 private:
  [[nodiscard]] std::uint64_t time(const Item& item, At what) const {
    return clocks_.common(item.process, item.record.at(what));
  }
  [[nodiscard]] std::uint64_t start(const Item& item) const {
    return clocks_.common(item.process, item.record.start);
  }
  [[nodiscard]] const Item* mate(const Item& item) const {
    return item.mate == kNobody ? nullptr : &story_.items[item.mate];
  }

  void during(Now now, std::uint64_t from, std::uint64_t to) {
    if (from == kNever || to == kNever || to <= from) return;
    edges_.push_back({from, now, 1});
    edges_.push_back({to, now, -1});
  }

  [[nodiscard]] std::size_t depth_of(const ConnectionItem& end) const {
    std::vector<Edge> edges;
    for (const std::size_t i : end.items) {
      const Item& item = story_.items[i];
      if (item.record.kind != Kind::kRequest) continue;
      const std::uint64_t done = std::min(time(item, At::kPolled), time(item, At::kCompleted));
      edges.push_back({start(item), Now::kOutstanding, 1});
      edges.push_back({done, Now::kOutstanding, -1});
    }
    std::ranges::sort(edges, [](const Edge& a, const Edge& b) {
      return a.at != b.at ? a.at < b.at : a.change < b.change;
    });
    int depth = 0;
    int most = 0;
    for (const Edge& edge : edges) most = std::max(most, depth += edge.change);
    return static_cast<std::size_t>(most);
  }
  void waits_for_poll(const Item& item, std::uint64_t completed) {
    const std::uint64_t polled = time(item, At::kPolled);
    if (completed == kNever || polled == kNever || polled <= completed) return;
    during(Now::kUnpolled, completed, polled);
    unpolled_[item.file].push_back({completed, polled});
  }
  void find_depths() {
    out_.depth = depth_of(self_);
    deepest_ = out_.depth;
    if (self_.peer != kNobody)
      deepest_ = std::max(deepest_, depth_of(story_.connections[self_.peer]));
  }

  void add(const Item& item) {
    if (item.record.kind == Kind::kNone) return;
    if (item.record.kind == Kind::kRequest) return add_request(item);
    ++out_.messages;
    if (item.record.op == Op::kSend || item.record.op == Op::kImmediate) answers_ = true;
    const std::uint64_t arrived = time(item, At::kArrived);
    during(Now::kLate, arrived, time(item, At::kLateUntil));
    waits_for_poll(item, time(item, At::kReceived));
    // It was seen, though nothing may have been waited for.
    during(Now::kIncoming, arrived, time(item, At::kPlaced));
    if (const Item* const from = mate(item))
      during(Now::kIncoming, start(*from), time(item, At::kPlaced));
  }

  void add_request(const Item& item) {
    ++out_.requests;
    const std::uint64_t posted = start(item);
    const std::uint64_t taken = time(item, At::kTaken);
    const std::uint64_t out = time(item, At::kLastOut);
    const std::uint64_t completed = time(item, At::kCompleted);
    const std::uint64_t polled = time(item, At::kPolled);
    during(Now::kDoorbell, posted, taken);
    during(Now::kTransport, taken, std::min(out, completed));
    during(Now::kOutstanding, posted, std::min(completed, polled));
    waits_for_poll(item, completed);
    const Item* const to = mate(item);
    if (to == nullptr) return;
    during(Now::kUnderWay, std::min(out, completed), time(*to, At::kPlaced));
    during(Now::kPeerLate, time(*to, At::kArrived), time(*to, At::kLateUntil));
  }

  // From a message that is in its place at the peer until it posts something.
  void add_turns() {
    if (self_.peer == kNobody) return;
    std::vector<std::uint64_t> posts;
    for (const std::size_t i : story_.connections[self_.peer].items) {
      const Item& item = story_.items[i];
      if (item.record.kind == Kind::kRequest) posts.push_back(start(item));
    }
    std::ranges::sort(posts);
    for (const std::size_t i : self_.items) {
      const Item& item = story_.items[i];
      const Item* const to = item.record.kind == Kind::kRequest ? mate(item) : nullptr;
      if (to == nullptr || to->record.kind != Kind::kReceive) continue;
      const std::uint64_t placed = time(*to, At::kPlaced);
      const auto next = std::ranges::lower_bound(posts, placed);
      if (placed != kNever && next != posts.end()) during(Now::kPeersTurn, placed, *next);
    }
  }

  // Those before the first that may reach `from`, and behind the last, are not looked at: there may
  // be many connections, one after the other.
  void add_registrations(const std::vector<Registration>& all, std::uint64_t from,
                         std::uint64_t to) {
    for (auto one = std::ranges::upper_bound(all, from, {}, &Registration::last_to);
         one != all.end() && one->time.from < to; ++one) {
      during(Now::kRegistering, std::max(one->time.from, from), std::min(one->time.to, to));
    }
  }

  // A sleep counts where it ends while a completion waits that its thread polls, and from the
  // oldest of these on. One for another queue, of another thread, hides nothing.
  void add_sleeps(const std::vector<Span>& sleeps, std::vector<Span>& unpolled) {
    std::ranges::sort(unpolled, {}, &Span::from);
    auto oldest = unpolled.begin();
    for (auto one = std::ranges::upper_bound(sleeps, oldest->from, {}, &Span::to);
         one != sleeps.end(); ++one) {
      while (oldest != unpolled.end() && oldest->to < one->to) ++oldest;
      if (oldest == unpolled.end()) return;
      if (oldest->from < one->to) during(Now::kAsleep, std::max(one->from, oldest->from), one->to);
    }
  }

  [[nodiscard]] bool is(Now now) const { return counts_[static_cast<std::size_t>(now)] > 0; }

  [[nodiscard]] Cause cause() const {
    if (is(Now::kLate)) return Cause::kReceiveLate;
    if (is(Now::kPeerLate)) return Cause::kPeerReceiveLate;
    if (is(Now::kTransport)) return Cause::kTransport;
    if (is(Now::kDoorbell)) return Cause::kDoorbell;
    if (is(Now::kUnpolled)) return is(Now::kAsleep) ? Cause::kWakeUp : Cause::kNotPolled;
    // With nothing to send. Of a program that wants no answer, what is done is no wait.
    if (is(Now::kOutstanding) || is(Now::kIncoming) || (answers_ && is(Now::kUnderWay)))
      return deepest_ <= 1 ? Cause::kOneAtATime : Cause::kTransport;
    if (is(Now::kRegistering)) return Cause::kRegistering;
    if (is(Now::kPeersTurn) || out_.requests == 0) return Cause::kPeerBusy;
    return Cause::kNotPosting;
  }

  void sweep() {
    std::ranges::sort(edges_, {}, &Edge::at);
    std::uint64_t before = edges_.front().at;
    for (const Edge& edge : edges_) {
      if (edge.at != before) note_state({before, edge.at, cause()});
      before = edge.at;
      counts_[static_cast<std::size_t>(edge.now)] += edge.change;
    }
  }
  void note_state(const State& state) {
    out_.times[static_cast<std::size_t>(state.cause)] += state.to - state.from;
    if (!out_.states.empty() && out_.states.back().cause == state.cause) {
      out_.states.back().to = state.to;
    } else {
      out_.states.push_back(state);
    }
  }

  const Story& story_;
  const Clocks& clocks_;
  const ConnectionItem& self_;
  Waits out_;
  std::size_t deepest_ = 0;  // of both ends
  bool answers_ = false;     // the peer sends messages, too
  std::vector<Edge> edges_;
  std::map<std::size_t, std::vector<Span>> unpolled_;  // completions, by the file of their thread
  std::array<int, kNows> counts_{};
};

// The first of causes that take about as long explains the others.
constexpr std::array kExplains = {Cause::kReceiveLate,    Cause::kNotPolled, Cause::kRegistering,
                                  Cause::kWakeUp,         Cause::kDoorbell,  Cause::kOneAtATime,
                                  Cause::kTransport,      Cause::kPeerBusy,  Cause::kNotPosting,
                                  Cause::kPeerReceiveLate};
constexpr std::array kBusiest = {Cause::kReceiveLate, Cause::kPeerReceiveLate, Cause::kTransport,
                                 Cause::kDoorbell,    Cause::kNotPolled,       Cause::kWakeUp,
                                 Cause::kOneAtATime,  Cause::kRegistering,     Cause::kPeerBusy,
                                 Cause::kNotPosting};
static_assert(kExplains.size() == kCauses && kBusiest.size() == kCauses);

// The states of several connections at once.
Times together(const std::vector<State>& states) {
  struct Change {
    std::uint64_t at = 0;
    Cause cause{};
    int change = 0;
  };
  std::vector<Change> changes;
  for (const State& one : states) {
    changes.push_back({one.from, one.cause, 1});
    changes.push_back({one.to, one.cause, -1});
  }
  std::ranges::sort(changes, {}, &Change::at);
  Times out{};
  std::array<int, kCauses> counts{};
  const auto holds = [&](Cause cause) { return counts[static_cast<std::size_t>(cause)] > 0; };
  std::uint64_t before = 0;
  for (const Change& one : changes) {
    const auto* const now = std::ranges::find_if(kBusiest, holds);
    if (now != kBusiest.end()) out[static_cast<std::size_t>(*now)] += one.at - before;
    before = one.at;
    counts[static_cast<std::size_t>(one.cause)] += one.change;
  }
  return out;
}

}  // namespace

Share share_of(Cause cause) {
  switch (cause) {
    case Cause::kReceiveLate:
    case Cause::kNotPolled:
    case Cause::kRegistering:
    case Cause::kOneAtATime:
    case Cause::kNotPosting: return Share::kProgram;
    case Cause::kDoorbell:
    case Cause::kTransport:
    case Cause::kWakeUp: return Share::kWeft;
    case Cause::kPeerReceiveLate:
    case Cause::kPeerBusy: break;
  }
  return Share::kPeer;
}

std::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::kReceiveLate: return "receive late";
    case Cause::kNotPolled: return "completion queue not polled";
    case Cause::kRegistering: return "registering";
    case Cause::kOneAtATime: return "one request at a time";
    case Cause::kNotPosting: return "not posting";
    case Cause::kDoorbell: return "doorbell";
    case Cause::kTransport: return "TCP and the link";
    case Cause::kWakeUp: return "wake-up";
    case Cause::kPeerReceiveLate: return "receive late at the peer";
    case Cause::kPeerBusy: break;
  }
  return "peer busy";
}

std::string_view advice_for(Cause cause) {
  switch (cause) {
    case Cause::kReceiveLate:
      return "messages of the peer waited for a receive: post receives before they are needed";
    case Cause::kNotPolled:
      return "completions waited to be polled: poll more often, or sleep in ibv_get_cq_event";
    case Cause::kRegistering:
      return "memory was registered meanwhile: register once, and use it again";
    case Cause::kOneAtATime:
      return "never more than one request was under way: post the next before the one before it "
             "has completed";
    case Cause::kNotPosting:
      return "nothing was posted, and nothing under way: the program did something else";
    case Cause::kDoorbell: return "requests waited for Weft's engine to take them";
    case Cause::kTransport:
      return "octets were on their way: by TCP or the ring, over the link, in the peer's Weft";
    case Cause::kWakeUp: return "a thread slept, and took time to wake up";
    case Cause::kPeerReceiveLate: return "messages waited for a receive of the peer's program";
    case Cause::kPeerBusy: break;
  }
  return "it was the turn of the peer's program, which had not posted yet";
}

std::vector<Waits> waits_of(const Story& story, const Clocks& clocks) {
  const std::vector<Calls> calls = calls_of(story, clocks);
  std::vector<Waits> out;
  for (std::size_t i = 0; i < story.connections.size(); ++i) {
    const ConnectionItem& one = story.connections[i];
    if (!one.items.empty())
      out.push_back(EndOfConnection(story, clocks, i).waits(calls[one.process]));
  }
  return out;
}

std::vector<Times> sums_of(const Story& story, const std::vector<Waits>& waits) {
  std::vector<std::vector<State>> states(story.processes.size());
  for (const Waits& one : waits) {
    std::vector<State>& of = states[story.connections[one.connection].process];
    of.insert(of.end(), one.states.begin(), one.states.end());
  }
  std::vector<Times> out;
  out.reserve(states.size());
  for (const std::vector<State>& one : states) out.push_back(together(one));
  return out;
}

std::optional<Largest> largest_of(const std::vector<Times>& sums) {
  std::uint64_t most = 0;
  for (const Times& sum : sums) most = std::max(most, std::ranges::max(sum));
  if (most == 0) return std::nullopt;
  for (const Cause cause : kExplains) {
    std::optional<Largest> best;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::uint64_t ns = sums[i][static_cast<std::size_t>(cause)];
      if (!best || ns > best->ns) best = Largest{i, cause, ns};
    }
    if (best->ns >= most - most / 5) return best;
  }
  return std::nullopt;
}

std::optional<Largest> slowest_of(const Story& story, const std::vector<Waits>& waits) {
  std::vector<Times> others(story.processes.size());
  for (const Waits& one : waits) {
    const std::size_t peer = story.connections[one.connection].peer;
    if (peer == kNobody) continue;
    Times& sum = others[story.connections[peer].process];
    for (const Cause cause : {Cause::kPeerBusy, Cause::kPeerReceiveLate})
      sum[static_cast<std::size_t>(cause)] += one.times[static_cast<std::size_t>(cause)];
  }
  std::optional<Largest> out;
  for (std::size_t i = 0; i < others.size(); ++i) {
    for (const Cause cause : {Cause::kPeerBusy, Cause::kPeerReceiveLate}) {
      const std::uint64_t ns = others[i][static_cast<std::size_t>(cause)];
      if (ns != 0 && (!out || ns > out->ns)) out = Largest{i, cause, ns};
    }
  }
  return out;
}

}  // namespace weft::timeline
