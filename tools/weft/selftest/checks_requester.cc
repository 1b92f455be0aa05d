// The peer as the side that sends, writes and reads, told so by Commands to `weft selftest
// --serve`; and the answers to its Reads that break a rule.
#include <fmt/format.h>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::operator+=;

constexpr Buffer kMine{.stag = 0x12345678, .to = 0x0fedcba987654000};

Verdict sends(Context& context) {
  Session s = context.open();
  for (const std::uint32_t size : {0U, 1U, 3U, 1500U, 70000U}) {
    s.tell({.kind = CommandKind::kSend, .size = size, .count = 3});
    for (int i = 0; i < 3; ++i) {
      if (s.take_message() != raw::pattern(size, kSentSeed)) {
        return wrong(fmt::format("a Send of {} octets has other ones", size));
      }
    }
    (void)s.take_report();
  }
  return right("0 to 70000 octets, MSN and MO in order");
}

Verdict writes(Context& context) {
  Session s = context.open();
  for (const std::uint32_t size : {1U, 3U, 1500U, 70000U}) {
    s.tell({.kind = CommandKind::kWrite, .size = size, .target = kMine});
    Bytes got;
    for (bool last = false; !last;) {
      const raw::Segment segment = s.link.recv_segment(raw::kWrite);
      if (segment.stag != kMine.stag || segment.to != kMine.to + got.size()) {
        return wrong("a segment of the Write does not continue the one before");
      }
      got += segment.payload;
      last = segment.last;
    }
    if (got != raw::pattern(size, kSentSeed)) return wrong("other octets than it was told");
    (void)s.take_report();
  }
  return right("1 to 70000 octets");
}

void respond(Session& s, const raw::ReadFields& request, const Bytes& payload, std::size_t each) {
  std::size_t at = 0;
  do {
    const std::size_t count = std::min(each, payload.size() - at);
    const auto from = payload.begin() + static_cast<std::ptrdiff_t>(at);
    const bool last = at + count == payload.size();
    s.link.send_fpdu(raw::read_response(request.sink_stag, request.sink_to + at,
                                        Bytes(from, from + static_cast<std::ptrdiff_t>(count)),
                                        last));
    at += count;
  } while (at < payload.size());
}

raw::ReadFields take_request(Session& s) {
  return raw::parse_read(s.link.recv_segment(raw::kReadRequest));
}

Verdict reads(Context& context) {
  Session s = context.open();
  for (const std::uint32_t size : {1U, 5U, 4000U, 60000U}) {
    s.tell({.kind = CommandKind::kRead, .size = size, .target = kMine});
    const raw::ReadFields request = take_request(s);
    if (request.size != size || request.src_stag != kMine.stag || request.src_to != kMine.to) {
      return wrong("the Read Request names another source or size");
    }
    const Bytes payload = raw::pattern(size, size);
    respond(s, request, payload, 1000);
    const Report report = s.take_report();
    if (report.bytes != size || report.crc != raw::crc32c(payload)) {
      return wrong("the application read other octets");
    }
  }
  return right("1 to 60000 octets, answered in segments of 1000");
}

// Never more Reads under way than our IRD, which is 2.
Verdict keeps_to_our_depth(Context& context) {
  Profile profile = context.profile;
  if (!profile.enhanced) return skipped("no IRD is agreed on in revision 1");
  profile.ird = 2;
  Session s = context.open(profile);
  s.tell({.kind = CommandKind::kRead, .size = 10, .count = 5, .target = kMine});
  std::vector<raw::ReadFields> open;
  for (int answered = 0; answered < 5; ++answered) {
    if (open.empty()) open.push_back(take_request(s));
    while (open.size() < 3 && !s.link.quiet(raw::milliseconds(150)))
      open.push_back(take_request(s));
    if (open.size() > 2) return wrong("3 Reads under way, and our IRD is 2");
    respond(s, open.front(), raw::pattern(10), 10);
    open.erase(open.begin());
  }
  (void)s.take_report();
  return right("2 at a time");
}

// A Read Response that is not the answer. Each of these has been a way into the memory of some
// implementation.
using Spoiled = std::function<void(Session&, const raw::ReadFields&)>;
Verdict bad_response(Context& context, const Spoiled& answer_badly, const Fault& fault) {
  Session s = context.open();
  s.tell({.kind = CommandKind::kRead, .size = 1000, .target = kMine});
  const raw::ReadFields request = take_request(s);
  answer_badly(s, request);
  const Reaction reaction = context.reaction(s);
  if (reaction.others.empty() || !decode_report(reaction.others.back().payload)) {
    if (!reaction.terminate) {
      return reaction.end == raw::End::kOpen
                 ? wrong("neither a Terminate nor the end of the connection")
                 : noted(fmt::format("{} without a Terminate", raw::to_string(reaction.end)));
    }
    return judge(
        reaction,
        reaction.terminate->payload.size() > 6
            ? Bytes(reaction.terminate->payload.begin() + 6, reaction.terminate->payload.end())
            : Bytes{0xc1},
        fault);
  }
  return wrong("the Read succeeds");
}

// The codes alone count here: which of several segments is named is the peer's choice.
Verdict codes_only(Verdict v) {
  if (v.grade == Grade::kNoted && v.detail.find("DDP Segment Length") != std::string::npos &&
      v.detail.find("siw") == std::string::npos && v.detail.find("exact") == std::string::npos) {
    return right(v.detail.substr(0, v.detail.find(':')));
  }
  return v;
}

void add_bad_responses(Checks& checks) {
  const auto add = [&checks](const char* id, const char* title, Spoiled spoiled, Fault fault) {
    checks.push_back(
        {id, "5040 5.2.2", title, Needs::kServer, false, false,
         [spoiled, fault](Context& c) { return codes_only(bad_response(c, spoiled, fault)); }});
  };
  const Fault bounds{{{1, 1, 1}}, {{0, 2, 6}, {1, 1, 0}, {0, 2, 7}, {0, 2, 0xff}}};
  const Fault stag{{{1, 1, 0}}, {{0, 2, 6}, {1, 1, 1}, {0, 2, 7}}};
  add(
      "response.too-long", "a Read Response longer than the Read ends the stream",
      [](Session& s, const raw::ReadFields& r) { respond(s, r, raw::zeros(1001), 2000); }, bounds);
  add(
      "response.grows", "a Read Response that outgrows the Read by segments ends the stream",
      [](Session& s, const raw::ReadFields& r) { respond(s, r, raw::zeros(5000), 900); }, bounds);
  add(
      "response.too-short", "a Read Response that ends early ends the stream",
      [](Session& s, const raw::ReadFields& r) { respond(s, r, raw::zeros(999), 2000); }, bounds);
  add(
      "response.other-stag", "a Read Response to another STag ends the stream",
      [](Session& s, const raw::ReadFields& r) {
        raw::ReadFields other = r;
        other.sink_stag ^= 0x100;
        respond(s, other, raw::zeros(1000), 2000);
      },
      stag);
  add(
      "response.other-to", "a Read Response to another TO ends the stream",
      [](Session& s, const raw::ReadFields& r) {
        raw::ReadFields other = r;
        other.sink_to += 8;
        respond(s, other, raw::zeros(1000), 2000);
      },
      bounds);
  add(
      "response.jumps", "a second segment at another TO ends the stream",
      [](Session& s, const raw::ReadFields& r) {
        s.link.send_fpdu(raw::read_response(r.sink_stag, r.sink_to, raw::zeros(500), false));
        s.link.send_fpdu(raw::read_response(r.sink_stag, r.sink_to + 4096, raw::zeros(500)));
      },
      bounds);
}

}  // namespace

void add_requester_checks(Checks& checks) {
  const auto add = [&checks](const char* id, const char* rfc, const char* title, auto run) {
    checks.push_back({id, rfc, title, Needs::kServer, false, false, run});
  };
  add("peer.sends", "5041 4.3", "Sends of the peer are well formed", sends);
  add("peer.writes", "5041 4.2", "Writes of the peer are well formed", writes);
  add("peer.reads", "5040 4.4", "Reads of the peer are well formed, and get their answer", reads);
  add("peer.depth", "5040 6.1", "the peer keeps to our IRD", keeps_to_our_depth);
  add_bad_responses(checks);
}

}  // namespace weft::selftest
