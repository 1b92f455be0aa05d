// What a peer's reaction to a broken rule is worth.
#include <fmt/format.h>

#include <algorithm>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::Code;

// A Terminate as it came. RFC 5040 section 4.8 has the layer in the first four bits, the type in
// the next, and M, D, R on top of octet 2; Linux siw has them the other way round.
struct Terminate {
  Code code;
  bool siw = false;
  bool length = false, ddp = false, rdmap = false;
  Bytes body{};
};

bool contains(const std::vector<Code>& codes, Code code) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

Terminate decode(const Bytes& body, const Fault& fault) {
  const auto high = static_cast<std::uint8_t>(body[0] >> 4);
  const auto low = static_cast<std::uint8_t>(body[0] & 15);
  const bool rfc_flags = (body[2] & 0xe0) != 0;
  const bool siw_flags = (body[2] & 0x07) != 0;
  const Code by_rfc{high, low, body[1]};
  const Code by_siw{low, high, body[1]};
  Terminate t{.code = by_rfc, .body = body};
  const auto expected = [&](Code c) {
    return contains(fault.right, c) || contains(fault.tolerated, c);
  };
  // Without flags only the code itself can tell.
  t.siw = !rfc_flags && (siw_flags || (!expected(by_rfc) && expected(by_siw)));
  if (t.siw) t.code = by_siw;
  const unsigned flags = t.siw ? static_cast<unsigned>(body[2]) : 0;
  t.length = t.siw ? (flags & 1U) != 0 : (body[2] & 0x80) != 0;
  t.ddp = t.siw ? (flags & 2U) != 0 : (body[2] & 0x40) != 0;
  t.rdmap = t.siw ? (flags & 4U) != 0 : (body[2] & 0x20) != 0;
  return t;
}

// What is odd about the headers that the Terminate brings back, or nothing.
std::string oddity(const Terminate& t, const Bytes& offending) {
  if (!t.length && !t.ddp && !t.rdmap) {
    return t.body.size() == 4 ? "" : "octets behind the control field that no flag announces";
  }
  const std::size_t header = (offending[0] & 0x80) != 0 ? 14 : 18;
  const std::size_t want = 6 + (t.ddp ? header : 0) + (t.rdmap ? 28 : 0);
  if (t.body.size() < want) return "headers that are announced are missing";
  if (t.length && raw::get16(t.body, 4) != offending.size()) {
    return fmt::format("DDP Segment Length {}, not {}", raw::get16(t.body, 4), offending.size());
  }
  if (t.ddp &&
      !std::equal(offending.begin(), offending.begin() + static_cast<std::ptrdiff_t>(header),
                  t.body.begin() + 6)) {
    return "the DDP header attached is not the one that was sent";
  }
  return "";
}

std::string list(const std::vector<Code>& codes) {
  std::string out;
  for (const Code& c : codes) out += (out.empty() ? "" : " or ") + raw::to_string(c);
  return out;
}

}  // namespace

Verdict judge(const Reaction& reaction, const Bytes& offending, const Fault& fault) {
  if (!reaction.terminate) {
    if (reaction.end == raw::End::kOpen) {
      return wrong("neither a Terminate nor the end of the connection");
    }
    return wrong(fmt::format("{} without a Terminate; {} is due", raw::to_string(reaction.end),
                             list(fault.right)));
  }
  const raw::Segment& s = *reaction.terminate;
  if (!s.last || s.msn != 1 || s.mo != 0 || s.payload.size() < 4) {
    return wrong("a malformed Terminate: " + raw::to_hex(s.whole));
  }
  const Terminate t = decode(s.payload, fault);
  const std::string said = "Terminate " + raw::to_string(t.code);
  const bool is_right = contains(fault.right, t.code);
  if (!is_right && !contains(fault.tolerated, t.code)) {
    return wrong(fmt::format("{}; {} is due", said, list(fault.right)));
  }
  if (reaction.end == raw::End::kOpen) return wrong(said + ", but the connection stays open");
  std::vector<std::string> remarks;
  if (!is_right) remarks.push_back(list(fault.right) + " would be exact");
  if (t.siw) remarks.emplace_back("octets in the order of Linux siw");
  if (const std::string odd = oddity(t, offending); !odd.empty()) remarks.push_back(odd);
  if (remarks.empty()) return right(said);
  return noted(fmt::format("{}: {}", said, fmt::join(remarks, "; ")));
}

Verdict provoke(const Context& context, Session& session, const Bytes& bad, const Fault& fault,
                const raw::Spoil& spoil) {
  session.link.send_fpdu(bad, spoil);
  return judge(context.reaction(session), bad, fault);
}

Verdict expect_refused(raw::Peer& link) {
  try {
    const raw::MpaFrame reply = link.recv_mpa();
    if (!reply.has(raw::kR)) return wrong("the peer accepts it");
    return right("rejected");
  } catch (const raw::Cut&) {
    if (link.end() == raw::End::kOpen) return wrong("no answer, and the connection stays open");
    return right(raw::to_string(link.end()));
  }
}

}  // namespace weft::selftest
