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
}

bool FaultPlayer::by_chance(const Live& live, std::uint64_t object, std::uint64_t count) const {
  constexpr double kAll = 18446744073709551616.0;  // 2^64
  const std::uint64_t drawn = mixed(mixed(mixed(seed_ ^ live.place) ^ object) ^ count);
  return static_cast<double>(drawn) / kAll * 100 < live.rule.when.percent;
}

bool FaultPlayer::strikes(Live& live, std::uint64_t object, std::uint64_t count, Time now) {
  const When& when = live.rule.when;
  switch (when.how) {
    case When::How::kOn: return count == when.count;
    case When::How::kFrom: return count >= when.count;
    case When::How::kEvery: return count % when.count == 0;
    case When::How::kShare: return by_chance(live, object, count);
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
                                        std::optional<std::uint32_t> qp,
                                        const std::string& library) {
  const auto place = qp ? place_of(*qp) : std::nullopt;
  Calls calls;
  if (place) {
    Calls& all = calls_[{std::string(name), *place}];
    ++all.all;
    if (has_second) ++all.lists;
    calls = all;
  }
  std::optional<Struck> out;
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (rule.effect != Effect::kFail || rule.call != name) continue;
    if (rule.second && !has_second) continue;
    if (!rule.library.empty() && fnmatch(rule.library.c_str(), library.c_str(), 0) != 0) continue;
    if (rule.qp && (!place || *rule.qp != *place)) continue;
    const std::uint64_t count = rule.qp ? ++live.of_qp[*place] : ++live.count;
    if (out || !strikes(live, rule.qp ? *place : 0, count, now)) continue;
    out = struck_of(live, count, now);
    if (!place) continue;
    out->exact.qp = *place;
    out->exact.library.clear();
    out->exact.when.count = rule.second ? calls.lists : calls.all;
  }
  return out;
}

bool FaultPlayer::asks_library(std::string_view name) const {
  return std::ranges::any_of(rules_, [&](const Live& live) {
    return live.rule.call == name && !live.rule.library.empty();
  });
}

void FaultPlayer::made_qp(std::uint32_t number) { qps_[number] = made_++; }

std::optional<Struck> FaultPlayer::loses(std::uint32_t qp, Time now) {
  return ends(qp, Effect::kCompleteSend, true, now);
}

std::optional<Struck> FaultPlayer::completes(std::uint32_t qp, bool receive, Time now) {
  if (const auto place = place_of(qp)) count_polled(*place, receive);
  return ends(qp, receive ? Effect::kCompleteReceive : Effect::kCompleteSend, false, now);
}

std::optional<Struck> FaultPlayer::ends(std::uint32_t qp, Effect effect, bool lost, Time now) {
  const auto place = place_of(qp);
  if (!place) return std::nullopt;
  std::optional<Struck> out;
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (rule.effect != effect || rule.lost != lost || (rule.qp && *rule.qp != *place)) continue;
    // A queue pair is counted for itself: how the completions of several fall together is chance.
    const std::uint64_t count = ++live.of_qp[*place];
    if (out || live.over || !strikes(live, *place, count, now)) continue;
    if (live.rule.when.how == When::How::kOn) live.over = true;
    out = struck_of(live, count, now);
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
    if (when.how == When::How::kAtCompletion && when.qp == qp && when.receive == receive &&
        when.count == count)
      live.reached = true;
  }
}

void FaultPlayer::not_posted(std::uint32_t qp, int line) {
  const auto known = qps_.find(qp);
  if (known == qps_.end()) return;
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (!rule.lost || (rule.qp && *rule.qp != known->second)) continue;
    if (std::uint64_t& count = live.of_qp[known->second]; count != 0) --count;
    if (rule.line == line) live.over = false;
  }
}

std::optional<FaultPlayer::Replaced> FaultPlayer::fetches(int cm_event, Time now) {
  std::optional<Replaced> out;
  for (Live& live : rules_) {
    if (live.rule.effect != Effect::kCm || !may_become(cm_event, live.rule.number)) continue;
    ++live.count;
    if (out || !strikes(live, 0, live.count, now)) continue;
    out = Replaced{struck_of(live, live.count, now), live.rule.number};
  }
  return out;
}

LinkTrouble FaultPlayer::link_of(std::uint32_t qp, Time now) {
  LinkTrouble out;
  const auto known = qps_.find(qp);
  if (known == qps_.end()) return out;
  out.seed = mixed(seed_ ^ known->second);
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (rule.effect != Effect::kLink || (rule.qp && *rule.qp != known->second)) continue;
    const LinkEffect& link = rule.link;
    switch (link.what) {
      case LinkEffect::What::kPace:
        if (link.delay.count() != 0) out.delay = link.delay;
        if (link.jitter.count() != 0) out.jitter = link.jitter;
        if (link.bits_per_second != 0) out.bits_per_second = link.bits_per_second;
        note(live, now);
        break;
      case LinkEffect::What::kStall: out.rules.push_back({LinkRule::What::kStall}); break;
      case LinkEffect::What::kCut: out.rules.push_back({LinkRule::What::kCut}); break;
      case LinkEffect::What::kFlip: out.rules.push_back({LinkRule::What::kFlip}); break;
    }
    if (link.what == LinkEffect::What::kPace) continue;
    LinkRule& last = out.rules.back();
    last.at = link.at;
    last.repeats = link.repeats;
    last.period = link.period;
    last.length = link.length;
    last.name = rule.line;
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

FaultRule FaultPlayer::exact_of(std::uint32_t qp, int line, std::uint64_t octet) const {
  FaultRule out;
  for (const Live& live : rules_) {
    if (live.rule.line == line) out = live.rule;
  }
  out.rank.clear();
  out.program.clear();
  out.host.clear();
  out.qp = place_of(qp);
  out.link.at = std::max<std::uint64_t>(octet, 1);
  out.link.repeats = false;
  out.link.period = {};
  return out;
}

std::vector<int> FaultPlayer::of_connections(std::uint32_t qp) const {
  std::vector<int> out;
  const auto place = place_of(qp);
  for (const Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (rule.effect != Effect::kLink && rule.effect != Effect::kReceiveLate) continue;
    if (place && (!rule.qp || *rule.qp == *place)) out.push_back(rule.line);
  }
  return out;
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
