#include "faults/fault_player.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "base/mixed_bits.h"

namespace weft::faults {

namespace {

std::string_view without_zeros(std::string_view number) {
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

bool is_meant(const FaultRule& rule, std::string_view rank, const std::string& command_line,
              std::string_view host) {
  if (!rule.rank.empty() && rule.rank != without_zeros(rank)) return false;
  if (!rule.host.empty() && rule.host != host) return false;
  return rule.program.empty() || fnmatch(rule.program.c_str(), command_line.c_str(), 0) == 0;
}

// Events of rdma_cm as <rdma/rdma_cma.h> numbers them: which may be there instead of which.
bool may_become(int event, int other) {
  constexpr int kAddrResolved = 0, kAddrError = 1, kRouteResolved = 2, kRouteError = 3;
  constexpr int kConnectResponse = 5, kEstablished = 9, kDisconnected = 10;
  if (other == kAddrError) return event == kAddrResolved;
  if (other == kRouteError) return event == kRouteResolved;
  if (other == kTimewaitExit) return event == kDisconnected;
  return event == kConnectResponse || event == kEstablished;
}

std::uint64_t mixed(std::uint64_t value) { return mixed_bits(value + kMixStep); }

std::uint64_t mixed_text(std::string_view text) {
  std::uint64_t out = 0;
  for (const char c : text) out = mixed(out ^ static_cast<unsigned char>(c));
  return out;
}

}  // namespace

FaultPlayer::FaultPlayer(FaultFile file, std::string_view rank, std::string_view command_line,
                         std::string_view host)
    : seed_(mixed(file.seed) ^ mixed_text(rank)) {
  const std::string line(command_line);
  std::uint64_t place = 0;
  for (FaultRule& rule : file.rules) {
    if (is_meant(rule, rank, line, host))
      rules_.push_back({.rule = std::move(rule), .place = place});
    ++place;
  }
  wants_octets_ = std::ranges::any_of(
      rules_, [](const Live& live) { return live.rule.when.how == When::How::kAtOctet; });
}

bool FaultPlayer::by_chance(const Live& live, std::uint64_t object, std::uint64_t count) const {
  constexpr double kAll = 18446744073709551616.0;  // 2^64
  const std::uint64_t drawn = mixed(mixed(mixed(seed_ ^ live.place) ^ object) ^ count);
  return static_cast<double>(drawn) / kAll * 100 < live.rule.when.percent;
}

// The octets of a queue pair reach the mark that is next.
bool FaultPlayer::reaches(Live& live, const Count& at) {
  const When& when = live.rule.when;
  if (live.over || at.octets < when.count) return false;
  if (!when.repeats) return live.over = true;
  std::uint64_t& mark = live.marks[at.object];
  if (at.octets / when.count <= mark) return false;
  mark = at.octets / when.count;
  return true;
}

bool FaultPlayer::strikes(Live& live, const Count& at, Time now) {
  const When& when = live.rule.when;
  switch (when.how) {
    case When::How::kOn: return at.count == when.count;
    case When::How::kFrom: return at.count >= when.count;
    case When::How::kEvery: return at.count % when.count == 0;
    case When::How::kShare: return by_chance(live, at.object, at.count);
    case When::How::kAtOctet: return reaches(live, at);
    case When::How::kAfterTime: return !live.over && now >= when.time && (live.over = true);
    case When::How::kAfterRule:
      return !live.over && named_.contains(when.rule) && (live.over = true);
    case When::How::kAtCompletion: break;
  }
  return false;
}

bool FaultPlayer::note(Live& live, Time now) {
  if (!live.rule.name.empty()) named_.emplace(live.rule.name, now);
  return !std::exchange(live.struck, true);
}

Struck FaultPlayer::struck_of(Live& live, std::uint64_t count, Time now) {
  Struck out{live.rule.line, count, live.rule.error, live.rule.second, live.rule};
  out.exact.rank.clear();
  out.exact.program.clear();
  out.exact.host.clear();
  out.exact.peer.clear();
  out.exact.when = {.how = When::How::kOn, .count = count};
  // That a lost request has failed is known later; and a name is that of one effect.
  if (!live.rule.lost && !note(live, now)) out.exact.name.clear();
  return out;
}

std::optional<std::uint64_t> FaultPlayer::place_of(std::uint32_t qp) const {
  const auto known = qps_.find(qp);
  return known != qps_.end() ? std::optional(known->second) : std::nullopt;
}

bool FaultPlayer::has(Effect effect) const {
  return std::ranges::any_of(rules_, [&](const Live& live) { return live.rule.effect == effect; });
}

std::vector<int> FaultPlayer::unused() const {
  std::vector<int> out;
  for (const Live& live : rules_) {
    if (!live.struck) out.push_back(live.rule.line);
  }
  return out;
}

std::optional<Struck> FaultPlayer::call(std::string_view name, Time now, bool has_second,
                                        std::optional<std::uint32_t> qp, const std::string& library,
                                        std::uint64_t octets) {
  const auto place = qp ? place_of(*qp) : std::nullopt;
  Calls calls;
  if (place) {
    Calls& all = calls_[{std::string(name), *place}];
    ++all.all;
    if (has_second) ++all.lists;
    calls = all;
    if (wants_octets_) {
      const Octets& before = octets_[*place];
      octets += name == "ibv_post_recv" ? before.receives : before.posted;
    }
  }
  std::optional<Struck> out;
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (rule.effect != Effect::kFail || rule.call != name) continue;
    if (rule.second && !has_second) continue;
    if (!rule.library.empty() && fnmatch(rule.library.c_str(), library.c_str(), 0) != 0) continue;
    const bool at_octet = rule.when.how == When::How::kAtOctet;
    if ((rule.qp || at_octet) && !place) continue;
    const auto of_qp = rule.qp ? count_of_qp(live, *place) : std::nullopt;
    if (rule.qp && !of_qp) continue;
    const std::uint64_t count = rule.qp ? *of_qp : ++live.count;
    const std::uint64_t object = rule.qp || at_octet ? *place : 0;
    if (out || !strikes(live, {object, count, octets}, now)) continue;
    out = struck_of(live, count, now);
    if (!place) continue;
    out->exact.qp = *place;
    out->exact.library.clear();
    out->exact.when.count = rule.second ? calls.lists : calls.all;
    // How often a full queue refuses a post is chance, and how much it has taken is not.
    const std::uint64_t step = rule.when.count;
    if (at_octet)
      out->exact.when = {.how = When::How::kAtOctet,
                         .count = rule.when.repeats ? octets / step * step : step};
  }
  return out;
}

std::uint64_t FaultPlayer::posts(std::uint32_t qp, std::uint64_t octets, bool signaled) {
  const auto place = place_of(qp);
  if (!place) return 0;
  Octets& of_qp = octets_[*place];
  of_qp.posted += octets;
  if (signaled) of_qp.due.push_back(of_qp.posted);
  return of_qp.posted;
}

void FaultPlayer::refused(std::uint32_t qp, std::uint64_t octets, std::uint64_t at, bool signaled) {
  const auto place = place_of(qp);
  if (!place) return;
  Octets& of_qp = octets_[*place];
  of_qp.posted -= std::min(octets, of_qp.posted);
  auto later = std::ranges::upper_bound(of_qp.due, at);
  if (signaled && later != of_qp.due.begin() && *std::prev(later) == at) {
    later = of_qp.due.erase(std::prev(later));
  }
  std::for_each(later, of_qp.due.end(), [octets](std::uint64_t& one) { one -= octets; });
}

void FaultPlayer::posts_receives(std::uint32_t qp, std::uint64_t octets) {
  if (const auto place = place_of(qp)) octets_[*place].receives += octets;
}

void FaultPlayer::refused_receives(std::uint32_t qp, std::uint64_t octets) {
  const auto place = place_of(qp);
  if (place) octets_[*place].receives -= std::min(octets, octets_[*place].receives);
}

void FaultPlayer::flushed(std::uint32_t qp) {
  const auto place = place_of(qp);
  if (!place || !wants_octets_) return;
  octets_[*place].due.clear();
}

bool FaultPlayer::asks_library(std::string_view name) const {
  return std::ranges::any_of(rules_, [&](const Live& live) {
    return live.rule.call == name && !live.rule.library.empty();
  });
}

void FaultPlayer::made_qp(std::uint32_t number) { qps_[number] = made_++; }

std::map<std::string, int> FaultPlayer::peers() const {
  std::map<std::string, int> out;
  for (const Live& live : rules_) {
    for (const std::string& peer : {live.rule.peer, live.rule.when.peer}) {
      if (!peer.empty()) out.emplace(peer, live.rule.line);
    }
  }
  return out;
}

void FaultPlayer::connected(std::uint32_t number, const std::vector<std::string>& names) {
  const auto place = place_of(number);
  if (!place) return;
  for (const std::string& name : names) {
    auto& places = connected_[name];
    if (std::ranges::find(places, *place) == places.end()) places.push_back(*place);
  }
}

std::optional<std::uint64_t> FaultPlayer::named_qp(std::uint64_t number,
                                                   const std::string& peer) const {
  if (peer.empty()) return number;
  const auto to = connected_.find(peer);
  if (to == connected_.end() || number >= to->second.size()) return std::nullopt;
  return to->second[number];
}

bool FaultPlayer::means(const FaultRule& rule, std::uint64_t place) const {
  return !rule.qp || named_qp(*rule.qp, rule.peer) == place;
}

// One that is named by its peer counts from its beginning, when nobody knew whose it would be.
std::optional<std::uint64_t> FaultPlayer::count_of_qp(Live& live, std::uint64_t place) const {
  const bool meant = means(live.rule, place);
  if (!meant && live.rule.peer.empty()) return std::nullopt;
  const std::uint64_t count = ++live.of_qp[place];
  return meant ? std::optional(count) : std::nullopt;
}

std::optional<Struck> FaultPlayer::loses(std::uint32_t qp, Time now) {
  const auto place = place_of(qp);
  const std::uint64_t posted = place && wants_octets_ ? octets_[*place].posted : 0;
  return ends(qp, Effect::kCompleteSend, true, now, posted);
}

std::optional<Struck> FaultPlayer::completes(std::uint32_t qp, bool receive, Time now,
                                             std::uint64_t octets) {
  const auto place = place_of(qp);
  if (place) count_polled(*place, receive);
  if (place && wants_octets_) octets = count_octets(octets_[*place], receive, octets);
  return ends(qp, receive ? Effect::kCompleteReceive : Effect::kCompleteSend, false, now, octets);
}

// The octets that have been received, or sent by the requests up to the one that completes.
std::uint64_t FaultPlayer::count_octets(Octets& of_qp, bool receive, std::uint64_t octets) {
  if (receive) return of_qp.received += octets;
  if (of_qp.due.empty()) return of_qp.completed;
  of_qp.completed = of_qp.due.front();
  of_qp.due.pop_front();
  return of_qp.completed;
}

std::optional<Struck> FaultPlayer::ends(std::uint32_t qp, Effect effect, bool lost, Time now,
                                        std::uint64_t octets) {
  const auto place = place_of(qp);
  if (!place) return std::nullopt;
  std::optional<Struck> out;
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (rule.effect != effect || rule.lost != lost) continue;
    // A queue pair is counted for itself: how the completions of several fall together is chance.
    const auto count = count_of_qp(live, *place);
    if (!count || out || live.over || !strikes(live, {*place, *count, octets}, now)) continue;
    if (live.rule.when.how == When::How::kOn) live.over = true;
    out = struck_of(live, *count, now);
    out->exact.qp = *place;
  }
  return out;
}

std::optional<Struck> FaultPlayer::receives(std::uint32_t qp, Time now) {
  return ends(qp, Effect::kReceiveLate, false, now);
}

// Those of both directions are apart: how they fall together is chance.
void FaultPlayer::count_polled(std::uint64_t qp, bool receive) {
  last_polled_ = Queue{qp, receive};
  const std::uint64_t count = ++polled_[*last_polled_];
  for (Live& live : rules_) {
    const When& when = live.rule.when;
    if (when.how != When::How::kAtCompletion || when.receive != receive || when.count != count)
      continue;
    if (named_qp(when.qp, when.peer) == qp) live.reached = true;
  }
}

void FaultPlayer::not_posted(std::uint32_t qp, int line) {
  const auto known = qps_.find(qp);
  if (known == qps_.end()) return;
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (!rule.lost || (rule.peer.empty() && !means(rule, known->second))) continue;
    if (std::uint64_t& count = live.of_qp[known->second]; count != 0) --count;
    if (rule.line == line) live.over = false;
    if (rule.when.how != When::How::kAtOctet) continue;
    const std::uint64_t reached = octets_[known->second].posted / rule.when.count;
    std::uint64_t& mark = live.marks[known->second];
    mark = std::min(mark, reached);
  }
}

std::optional<FaultPlayer::Replaced> FaultPlayer::fetches(int cm_event, Time now) {
  std::optional<Replaced> out;
  for (Live& live : rules_) {
    if (live.rule.effect != Effect::kCm || !may_become(cm_event, live.rule.number)) continue;
    ++live.count;
    if (out || !strikes(live, {0, live.count, 0}, now)) continue;
    out = Replaced{struck_of(live, live.count, now), live.rule.number};
  }
  return out;
}

bool FaultPlayer::had_effect(int line, Time now) {
  bool first = false;
  for (Live& live : rules_) {
    if (live.rule.line == line) first = note(live, now);
  }
  return first;
}

std::optional<FaultPlayer::Action> FaultPlayer::next_action() const {
  std::optional<Action> out;
  for (const Live& live : rules_) {
    if (live.rule.effect < Effect::kEvent || live.over) continue;
    const When& when = live.rule.when;
    bool by_rule = when.how == When::How::kAfterRule;
    Time due = when.time;
    if (when.how == When::How::kAtCompletion) {
      if (!live.reached) continue;
      by_rule = true;
    } else if (by_rule) {
      const auto named = named_.find(when.rule);
      if (named == named_.end()) continue;
      due = named->second;
    }
    if (!out || due < out->due) out = Action{due, by_rule, live.rule, live.place};
  }
  return out;
}

void FaultPlayer::acted(const Action& action) {
  for (Live& live : rules_) {
    if (live.place != action.place) continue;
    live.over = true;
    note(live, action.due);
  }
}

FaultRule FaultPlayer::exact_of(const Action& action, Time now) const {
  FaultRule out = action.rule;
  out.rank.clear();
  out.program.clear();
  out.host.clear();
  if (const auto place = named_qp(out.place, out.peer)) {
    out.place = *place;
    out.peer.clear();
  }
  if (const auto of = named_qp(out.when.qp, out.when.peer)) {
    out.when.qp = *of;
    out.when.peer.clear();
  }
  if (out.when.how != When::How::kAfterTime) return out;
  out.when.time = now;
  if (!last_polled_) return out;
  out.when = {.how = When::How::kAtCompletion,
              .count = polled_.at(*last_polled_),
              .qp = last_polled_->first,
              .receive = last_polled_->second};
  return out;
}

}  // namespace weft::faults
