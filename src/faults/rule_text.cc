// Rules as they are written in a file.
#include <array>
#include <cstring>

#include "faults/fault_file.h"

namespace weft::faults {
namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }

// In the largest unit that needs no fraction; less than a microsecond does.
std::string time_text(std::chrono::nanoseconds time) {
  const auto ns = static_cast<std::uint64_t>(time.count());
  if (ns % 1'000'000'000 == 0) return number(ns / 1'000'000'000) + "s";
  if (ns % 1'000'000 == 0) return number(ns / 1'000'000) + "ms";
  const std::string fraction = number(1000 + ns % 1000).substr(1);
  return number(ns / 1000) + (ns % 1000 == 0 ? "" : "." + fraction) + "us";
}

std::string share_text(double percent) {
  std::array<char, 32> out{};
  static_cast<void>(std::snprintf(out.data(), out.size(), "%.17g%%", percent));
  return out.data();
}

// As it stands behind `qp`.
std::string qp_name(std::uint64_t qp, const std::string& peer) {
  if (peer.empty()) return number(qp);
  return (peer.find(':') != std::string::npos ? "[" + peer + "]" : peer) + ":" + number(qp);
}

std::string when_text(const When& when) {
  switch (when.how) {
    case When::How::kOn: return " on " + number(when.count);
    case When::How::kFrom: return " from " + number(when.count);
    case When::How::kEvery: return " every " + number(when.count);
    case When::How::kShare: return " with " + share_text(when.percent);
    case When::How::kAfterTime: return " after " + time_text(when.time);
    case When::How::kAfterRule: return " after " + when.rule;
    case When::How::kAtCompletion:
      return std::string(" at ") + (when.receive ? "receive" : "send") + " completion " +
             number(when.count) + " of qp " + qp_name(when.qp, when.peer);
    case When::How::kAtOctet:
      return std::string(" at ") + (when.repeats ? "every " : "") + number(when.count) + "B";
  }
  return {};
}

std::string qp_text(const FaultRule& rule) {
  return rule.qp ? " on qp " + qp_name(*rule.qp, rule.peer) : std::string();
}

std::string object_text(const FaultRule& rule) {
  constexpr std::array<const char*, 3> kNames = {"qp", "cq", "srq"};
  if (rule.object == Object::kDevice) return {};
  return std::string(" on ") + kNames[static_cast<std::size_t>(rule.object)] + " " +
         qp_name(rule.place, rule.peer);
}

std::string error_text(int error) {
  const char* const name = strerrorname_np(error);
  return name != nullptr ? std::string(" with ") + name : std::string();
}

std::string pace_text(const LinkEffect& link) {
  std::string out;
  if (link.delay.count() != 0) out += " delay " + time_text(link.delay);
  if (link.jitter.count() != 0) out += " jitter " + time_text(link.jitter);
  if (link.bits_per_second != 0) out += " rate " + number(link.bits_per_second) + "bit";
  if (link.loss_percent > 0) out += " loss " + share_text(link.loss_percent);
  return out;
}

std::string link_text(const FaultRule& rule) {
  const LinkEffect& link = rule.link;
  const std::string at = std::string(" at ") + (link.repeats ? "every " : "");
  const std::string octet = at + number(link.at) + "B";
  const std::string stall = "link stall " + time_text(link.length) + qp_text(rule);
  switch (link.what) {
    case LinkEffect::What::kPace: return "link" + pace_text(link) + qp_text(rule);
    case LinkEffect::What::kCut: return "link cut" + qp_text(rule) + octet;
    case LinkEffect::What::kFlip: return "octet flip" + qp_text(rule) + octet;
    case LinkEffect::What::kStall: break;
  }
  return stall + (link.period.count() != 0 ? " every " + time_text(link.period) : octet);
}

std::string effect_text(const FaultRule& rule) {
  const std::string when = when_text(rule.when);
  switch (rule.effect) {
    case Effect::kFail:
      return "fail " + rule.call + (rule.library.empty() ? "" : " from lib " + rule.library) +
             qp_text(rule) + when + error_text(rule.error) + (rule.second ? ", bad_wr second" : "");
    case Effect::kCompleteSend:
    case Effect::kCompleteReceive:
      return std::string("complete ") +
             (rule.effect == Effect::kCompleteSend ? "send" : "receive") + qp_text(rule) + when +
             " with " + std::string(status_name(rule.error)) + (rule.lost ? ", lost" : "");
    case Effect::kCm:
      return "cm " + std::string(cm_event_name(rule.number)) + when +
             (rule.number == kTimewaitExit ? "" : error_text(rule.error)) +
             (rule.private_data.empty() ? "" : " private \"" + rule.private_data + "\"");
    case Effect::kCmOfAll: return "cm " + std::string(cm_event_name(rule.number)) + when;
    case Effect::kLink: return link_text(rule);
    case Effect::kReceiveLate: return "receive late " + time_text(rule.late) + qp_text(rule) + when;
    case Effect::kEvent:
      return "event " + std::string(event_name(rule.number)) + object_text(rule) + when;
    case Effect::kDisconnect: return "disconnect" + object_text(rule) + when;
    case Effect::kKill: return std::string("kill SIG") + sigabbrev_np(rule.number) + when;
  }
  return {};
}

}  // namespace

std::string text_of(const FaultRule& rule) {
  std::string out;
  if (!rule.rank.empty()) out += "in rank " + rule.rank + " ";
  if (!rule.program.empty()) out += "in program " + rule.program + " ";
  if (!rule.host.empty()) out += "in host " + rule.host + " ";
  out += effect_text(rule);
  if (!rule.name.empty()) out += " as " + rule.name;
  return out;
}

}  // namespace weft::faults
