// When a rule has its effect.
#include "faults/fault_line.h"

namespace weft::faults {
namespace {

// 1st, 2nd, 3rd, 4th, or the number alone.
std::optional<std::uint64_t> place_of(std::string_view text) {
  for (const std::string_view ending : {"st", "nd", "rd", "th"}) {
    if (text.ends_with(ending)) {
      text.remove_suffix(ending.size());
      break;
    }
  }
  const auto number = number_of<std::uint64_t>(text);
  return number && *number > 0 ? number : std::nullopt;
}

Done read_count(Line& line, When& when) {
  const auto count = place_of(line.word());
  if (!count) return line.wrong("write a number from 1, as 3rd or 1000");
  when.count = *count;
  line.take();
  return {};
}

Done read_after(Line& line, When& when) {
  if (line.at_end()) return line.wrong("write a time as 2s or 10ms, or the name of a rule");
  const char first = line.word().front();
  const bool is_time = (first >= '0' && first <= '9') || first == '.' || first == '-';
  const auto time = time_of(line.word());
  if (is_time && !time) return line.wrong("write a time as 2s, 10ms or 50us, at most 1000000s");
  if (is_time) {
    when.how = When::How::kAfterTime;
    when.time = *time;
  } else {
    when.how = When::How::kAfterRule;
    when.rule = line.word();
  }
  line.take();
  return {};
}

// Behind `at`, of a call or a completion: 64MB, every 64MB; of a completion also completion 3.
Done read_at(Line& line, FaultRule& rule) {
  When& when = rule.when;
  const bool completes = rule.effect != Effect::kFail;
  if (completes && line.take_if("completion")) return read_count(line, when);  // as `on`
  when.how = When::How::kAtOctet;
  const bool is_octets = line.word() == "every" || octets_in(line.word());
  if (!is_octets) {
    return line.wrong(completes ? "write at completion 3, at 64MB or at every 64MB"
                                : "write a number of octets as 64MB, 100kB or 1500B");
  }
  return read_octets(line, when.count, when.repeats);
}

// at send completion 5 of qp 0
Done read_completion_of(Line& line, When& when) {
  when.how = When::How::kAtCompletion;
  when.receive = line.word() == "receive";
  if (!line.take_if("send") && !line.take_if("receive"))
    return line.wrong("write at send completion 5 of qp 0, or at receive completion 5 of qp 0");
  if (!line.take_if("completion")) return line.wrong("write completion");
  if (auto done = read_count(line, when); !done) return done;
  if (!line.take_if("of") || !line.take_if("qp")) return line.wrong("write whose: of qp 0");
  return read_number(line, when.qp, when.peer);
}

}  // namespace

Done read_when(Line& line, FaultRule& rule) {
  When& when = rule.when;
  if (line.take_if("after")) return read_after(line, when);
  if (comes_by_itself(rule.effect)) {
    if (line.take_if("at")) return read_completion_of(line, when);
    return line.wrong("write when: after 2s, after NAME, at send completion 5 of qp 0");
  }
  // A receive is late for each message, if nothing is said.
  if (rule.effect == Effect::kReceiveLate && (line.at_end() || line.word() == "as")) {
    when.how = When::How::kFrom;
    when.count = 1;
    return {};
  }
  const bool completes =
      rule.effect == Effect::kCompleteSend || rule.effect == Effect::kCompleteReceive;
  const bool counts_octets = completes || (rule.effect == Effect::kFail && has_octets(rule.call));
  if (counts_octets && line.take_if("at")) return read_at(line, rule);
  if (rule.effect == Effect::kFail && line.word() == "at") {
    return line.wrong("no octets are counted of " + rule.call +
                      ", only of post_send, post_recv and wr_complete; write on 3rd, from 3rd, "
                      "every 1000, with 5%, after 2s, after NAME");
  }
  if (line.take_if("with")) {
    when.how = When::How::kShare;
    return read_share(line, when.percent);
  }
  const std::string_view how = line.word();
  if (!line.take_if("on") && !line.take_if("from") && !line.take_if("every"))
    return line.wrong(std::string("write when: on 3rd, from 3rd, every 1000, with 5%, after 2s, "
                                  "after NAME") +
                      (counts_octets ? ", at 64MB, at every 64MB" : ""));
  when.how = how == "on" ? When::How::kOn : how == "from" ? When::How::kFrom : When::How::kEvery;
  return read_count(line, when);
}

}  // namespace weft::faults
