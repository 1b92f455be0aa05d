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

bool is_meant(const FaultRule& rule, std::string_view rank, const std::string& command_line) {
  if (!rule.rank.empty() && rule.rank != without_zeros(rank)) return false;
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

FaultPlayer::FaultPlayer(FaultFile file, std::string_view rank, std::string_view command_line)
    : seed_(mixed(file.seed) ^ mixed_text(rank)) {
  const std::string line(command_line);
  std::uint64_t place = 0;
  for (FaultRule& rule : file.rules) {
    if (is_meant(rule, rank, line)) rules_.push_back({std::move(rule), place, 0, false, false, {}});
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
  }
  return false;
}

void FaultPlayer::note(Live& live, Time now) {
  live.struck = true;
  if (!live.rule.name.empty()) named_.emplace(live.rule.name, now);
}

std::vector<int> FaultPlayer::unused() const {
  std::vector<int> out;
  for (const Live& live : rules_) {
    if (!live.struck) out.push_back(live.rule.line);
  }
  return out;
}

std::optional<Struck> FaultPlayer::call(std::string_view name, Time now, bool has_second) {
  std::optional<Struck> out;
  for (Live& live : rules_) {
    if (live.rule.effect != Effect::kFail || live.rule.call != name) continue;
    if (live.rule.second && !has_second) continue;
    ++live.count;
    if (out || !strikes(live, 0, live.count, now)) continue;
    note(live, now);
    out = Struck{live.rule.line, live.count, live.rule.error, live.rule.second};
  }
  return out;
}

void FaultPlayer::made_qp(std::uint32_t number) { qps_[number] = made_++; }

std::optional<Struck> FaultPlayer::loses(std::uint32_t qp, Time now) {
  return ends(qp, Effect::kCompleteSend, true, now);
}

std::optional<Struck> FaultPlayer::completes(std::uint32_t qp, bool receive, Time now) {
  return ends(qp, receive ? Effect::kCompleteReceive : Effect::kCompleteSend, false, now);
}

std::optional<Struck> FaultPlayer::ends(std::uint32_t qp, Effect effect, bool lost, Time now) {
  const auto known = qps_.find(qp);
  if (known == qps_.end()) return std::nullopt;
  std::optional<Struck> out;
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (rule.effect != effect || rule.lost != lost || (rule.qp && *rule.qp != known->second))
      continue;
    // A queue pair is counted for itself: how the completions of several fall together is chance.
    const std::uint64_t count = ++live.of_qp[known->second];
    if (out || live.over || !strikes(live, known->second, count, now)) continue;
    if (live.rule.when.how == When::How::kOn) live.over = true;
    if (!lost) note(live, now);
    out = Struck{live.rule.line, count, live.rule.error};
  }
  return out;
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
    note(live, now);
    out = Replaced{{live.rule.line, live.count, live.rule.error}, live.rule.number};
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

void FaultPlayer::had_effect(int line, Time now) {
  for (Live& live : rules_) {
    if (live.rule.line == line) note(live, now);
  }
}

std::optional<FaultPlayer::Action> FaultPlayer::next_action() const {
  std::optional<Action> out;
  for (const Live& live : rules_) {
    if (live.rule.effect < Effect::kEvent || live.over) continue;
    const When& when = live.rule.when;
    const bool by_rule = when.how == When::How::kAfterRule;
    Time due = when.time;
    if (by_rule) {
      const auto named = named_.find(when.rule);
      if (named == named_.end()) continue;
      due = named->second;
    }
    if (!out || due < out->due) out = Action{due, by_rule, live.rule};
  }
  return out;
}

void FaultPlayer::acted(const Action& action) {
  for (Live& live : rules_) {
    if (live.rule.line != action.rule.line) continue;
    live.over = true;
    note(live, action.due);
  }
}

}  // namespace weft::faults
