// The rules of links: what a side of a connection sends comes late, stops or changes.
#include <array>

#include "faults/fault_line.h"

namespace weft::faults {
namespace {

struct Scale {
  std::string_view name;
  double factor;
};
constexpr auto kBitRates =
    std::to_array<Scale>({{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"bit", 1}});
constexpr auto kOctets = std::to_array<Scale>({{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}});

// 64MB, 1500kB: of 1000.
template <std::size_t N>
std::optional<std::uint64_t> amount_of(std::string_view text, const std::array<Scale, N>& units) {
  for (const auto& [unit, factor] : units) {
    if (!text.ends_with(unit)) continue;
    const auto number = number_of<double>(text.substr(0, text.size() - unit.size()));
    constexpr double kMost = 1e18;
    if (!number || !(*number * factor >= 1) || *number * factor > kMost) return std::nullopt;
    return static_cast<std::uint64_t>(*number * factor);
  }
  return std::nullopt;
}

Done read_span(Line& line, std::chrono::nanoseconds& into) {
  const auto time = time_of(line.word());
  if (!time) return line.wrong("write a time as 2s, 10ms or 50us");
  into = *time;
  line.take();
  return {};
}

// delay 1ms jitter 200us rate 10Gbit loss 1%, or some of them.
Done read_pace(Line& line, LinkEffect& link) {
  link.what = LinkEffect::What::kPace;
  const std::string_view first = line.word();
  for (;;) {
    Done done;
    if (line.take_if("delay")) {
      done = read_span(line, link.delay);
    } else if (line.take_if("jitter")) {
      done = read_span(line, link.jitter);
    } else if (line.take_if("rate")) {
      const auto rate = amount_of(line.word(), kBitRates);
      if (!rate) return line.wrong("write a rate as 10Gbit, 100Mbit, 64kbit or 300bit");
      link.bits_per_second = *rate;
      line.take();
    } else if (line.take_if("loss")) {
      done = read_share(line, link.loss_percent);
    } else {
      return line.word() == first ? line.wrong("write stall, cut, delay, jitter, rate or loss")
                                  : done;
    }
    if (!done) return done;
  }
}

// at 64MB, at every 64MB; of a stall also every 2s.
Done read_octet(Line& line, LinkEffect& link) {
  const bool stall = link.what == LinkEffect::What::kStall;
  if (stall && line.take_if("every")) {
    link.repeats = true;
    if (auto done = read_span(line, link.period); !done) return done;
    if (link.period <= link.length) return line.wrong("it is longer than the time in between");
    return {};
  }
  if (!line.take_if("at"))
    return line.wrong(stall ? "write when: at 64MB, at every 64MB, every 2s"
                            : "write where: at 64MB, at every 64MB");
  return read_octets(line, link.at, link.repeats);
}

}  // namespace

std::optional<std::uint64_t> octets_in(std::string_view text) { return amount_of(text, kOctets); }

Done read_octets(Line& line, std::uint64_t& octets, bool& repeats) {
  repeats = line.take_if("every");
  const auto at = octets_in(line.word());
  if (!at) return line.wrong("write a number of octets as 64MB, 100kB or 1500B");
  octets = *at;
  line.take();
  return {};
}

Done read_receive(Line& line, FaultRule& rule) {
  rule.effect = Effect::kReceiveLate;
  if (!line.take_if("late")) return line.wrong("write late");
  if (auto done = read_span(line, rule.late); !done) return done;
  return read_qp(line, rule);
}

Done read_link(Line& line, FaultRule& rule) {
  rule.effect = Effect::kLink;
  LinkEffect& link = rule.link;
  if (line.take_if("octet")) {
    if (!line.take_if("flip")) return line.wrong("write flip");
    link.what = LinkEffect::What::kFlip;
  } else {
    line.take();
    if (line.take_if("stall")) {
      link.what = LinkEffect::What::kStall;
      if (auto done = read_span(line, link.length); !done) return done;
    } else if (line.take_if("cut")) {
      link.what = LinkEffect::What::kCut;
    } else if (auto done = read_pace(line, link); !done) {
      return done;
    }
  }
  if (auto done = read_qp(line, rule); !done) return done;
  if (link.what != LinkEffect::What::kPace) {
    if (auto done = read_octet(line, link); !done) return done;
  }
  if (!rule.qp) {
    if (auto done = read_qp(line, rule); !done) return done;
  }
  if (link.what == LinkEffect::What::kPace && line.word() == "as")
    return line.wrong(
        "a link has its delay, rate or loss from the beginning: no rule can wait for it");
  return {};
}

}  // namespace weft::faults
