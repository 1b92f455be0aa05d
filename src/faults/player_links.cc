// The part of a player that is about links.
#include <algorithm>

#include "base/mixed_bits.h"
#include "faults/fault_player.h"

namespace weft::faults {
namespace {

// Why a queue pair of this kind has not what the rule says; null: it has.
const char* misfit_of(const FaultRule& rule, bool datagrams) {
  using What = LinkEffect::What;
  if (datagrams && rule.effect == Effect::kReceiveLate)
    return "one without a receive is lost, and waits for none";
  if (rule.effect != Effect::kLink) return nullptr;
  if (datagrams && rule.link.what == What::kCut) return "there is no connection that could be cut";
  if (datagrams && rule.link.what == What::kFlip)
    return "one that changes is dropped by its checksum, as by `link loss 1%`";
  if (!datagrams && rule.link.loss_percent > 0)
    return "it is for datagrams (UD): below a connection, TCP repeats what is lost";
  return nullptr;
}

LinkRule rule_of(const FaultRule& rule) {
  using What = LinkEffect::What;
  LinkRule out;
  out.what = rule.link.what == What::kStall ? LinkRule::What::kStall
             : rule.link.what == What::kCut ? LinkRule::What::kCut
                                            : LinkRule::What::kFlip;
  out.at = rule.link.at;
  out.repeats = rule.link.repeats;
  out.period = rule.link.period;
  out.length = rule.link.length;
  out.name = rule.line;
  return out;
}

// True: it has some effect.
bool set_pace(const LinkEffect& link, bool datagrams, LinkTrouble& out) {
  if (link.delay.count() != 0) out.delay = link.delay;
  if (link.jitter.count() != 0) out.jitter = link.jitter;
  if (link.bits_per_second != 0) out.bits_per_second = link.bits_per_second;
  const bool loses = datagrams && link.loss_percent > 0;
  if (loses) out.loss_percent = link.loss_percent;
  return loses || link.delay.count() != 0 || link.jitter.count() != 0 || link.bits_per_second != 0;
}

}  // namespace

LinkTrouble FaultPlayer::link_of(std::uint32_t qp, Time now, bool datagrams) {
  LinkTrouble out;
  const auto place = place_of(qp);
  if (!place) return out;
  out.seed = mixed_bits((seed_ ^ *place) + kMixStep);
  for (Live& live : rules_) {
    const FaultRule& rule = live.rule;
    if (rule.effect != Effect::kLink || !means(rule, *place)) continue;
    if (rule.link.what != LinkEffect::What::kPace) {
      if (misfit_of(rule, datagrams) == nullptr) out.rules.push_back(rule_of(rule));
    } else if (set_pace(rule.link, datagrams, out)) {
      note(live, now);
    }
  }
  return out;
}

FaultRule FaultPlayer::exact_of(std::uint32_t qp, int line, std::uint64_t octet) const {
  FaultRule out;
  for (const Live& live : rules_) {
    if (live.rule.line == line) out = live.rule;
  }
  out.rank.clear();
  out.program.clear();
  out.host.clear();
  out.peer.clear();
  out.qp = place_of(qp);
  out.link.at = std::max<std::uint64_t>(octet, 1);
  out.link.repeats = false;
  out.link.period = {};
  return out;
}

std::vector<FaultPlayer::Misfit> FaultPlayer::misfits(std::uint32_t qp, bool datagrams) const {
  std::vector<Misfit> out;
  const auto place = place_of(qp);
  for (const Live& live : rules_) {
    const char* const why = misfit_of(live.rule, datagrams);
    if (why != nullptr && place && means(live.rule, *place)) out.push_back({live.rule.line, why});
  }
  return out;
}

}  // namespace weft::faults
