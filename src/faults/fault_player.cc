#include "faults/fault_player.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

namespace weft::faults {

namespace {

bool is_meant(const FaultRule& rule, std::string_view rank, const std::string& command_line) {
  if (!rule.rank.empty() && rule.rank != rank) return false;
  return rule.program.empty() || fnmatch(rule.program.c_str(), command_line.c_str(), 0) == 0;
}

// Well mixed bits of a number (the finalizer of SplitMix64).
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

}  // namespace

FaultPlayer::FaultPlayer(FaultFile file, std::string_view rank, std::string_view command_line)
    : seed_(file.seed) {
  const std::string line(command_line);
  for (FaultRule& rule : file.rules) {
    if (is_meant(rule, rank, line)) rules_.push_back({std::move(rule), 0, false, {}});
  }
}

bool FaultPlayer::by_chance(const Live& live, std::uint64_t count) const {
  constexpr double kAll = 18446744073709551616.0;  // 2^64
  const std::uint64_t drawn =
      mixed(mixed(seed_ ^ static_cast<std::uint64_t>(live.rule.line)) ^ count);
  return static_cast<double>(drawn) / kAll * 100 < live.rule.when.percent;
}

bool FaultPlayer::strikes(Live& live, std::uint64_t count, Time now) {
  const When& when = live.rule.when;
  switch (when.how) {
    case When::How::kOn: return count == when.count;
    case When::How::kFrom: return count >= when.count;
    case When::How::kEvery: return count % when.count == 0;
    case When::How::kShare: return by_chance(live, count);
    case When::How::kAfterTime: return !live.over && now >= when.time && (live.over = true);
    case When::How::kAfterRule:
      return !live.over && named_.contains(when.rule) && (live.over = true);
  }
  return false;
}

void FaultPlayer::note(const Live& live, Time now) {
  if (!live.rule.name.empty()) named_.emplace(live.rule.name, now);
}

std::optional<Struck> FaultPlayer::call(std::string_view name, Time now) {
  std::optional<Struck> out;
  for (Live& live : rules_) {
    if (live.rule.effect != Effect::kFail || live.rule.call != name) continue;
    ++live.count;
    if (out || !strikes(live, live.count, now)) continue;
    note(live, now);
    out = Struck{live.rule.line, live.count, live.rule.error};
  }
  return out;
}

void FaultPlayer::made_qp(std::uint32_t number) { qps_[number] = made_++; }

std::optional<Struck> FaultPlayer::completes(std::uint32_t qp, bool receive, Time now) {
  const auto known = qps_.find(qp);
  if (known == qps_.end()) return std::nullopt;
  std::optional<Struck> out;
  for (Live& live : rules_) {
    const Effect effect = receive ? Effect::kCompleteReceive : Effect::kCompleteSend;
    if (live.rule.effect != effect || (live.rule.qp && *live.rule.qp != known->second)) continue;
    // A queue pair is counted for itself: how the completions of several fall together is chance.
    const std::uint64_t count = ++live.of_qp[known->second];
    if (out || live.over || !strikes(live, count, now)) continue;
    if (live.rule.when.how == When::How::kOn) live.over = true;
    note(live, now);
    out = Struck{live.rule.line, count, live.rule.error};
  }
  return out;
}

std::optional<FaultPlayer::Signal> FaultPlayer::next_signal() {
  std::optional<Signal> out;
  for (const Live& live : rules_) {
    if (live.rule.effect != Effect::kKill || live.over) continue;
    const When& when = live.rule.when;
    Time due = when.time;
    if (when.how == When::How::kAfterRule) {
      const auto named = named_.find(when.rule);
      if (named == named_.end()) continue;
      due = named->second;
    }
    if (!out || due < out->due)
      out = Signal{due, live.rule.signal, live.rule.line, when.how == When::How::kAfterRule};
  }
  return out;
}

void FaultPlayer::signaled(const Signal& signal) {
  for (Live& live : rules_) {
    if (live.rule.effect == Effect::kKill && live.rule.line == signal.line) live.over = true;
  }
}

}  // namespace weft::faults
