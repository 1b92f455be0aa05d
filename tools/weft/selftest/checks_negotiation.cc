// Enhanced set-up: RFC 6581. Depths, peer-to-peer, RTR.
#include <fmt/format.h>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::kBitA;
using raw::kBitB;
using raw::kRtrRead;
using raw::kRtrWrite;

constexpr std::uint8_t kFlags = raw::kC | raw::kS;

raw::MpaFrame frame(int ird_word, int ord_word, std::uint8_t flags = kFlags) {
  return {.flags = flags,
          .revision = 2,
          .pd = raw::enhanced(static_cast<std::uint16_t>(ird_word),
                              static_cast<std::uint16_t>(ord_word))};
}

raw::MpaFrame ask(Context& context, raw::Peer& link, const raw::MpaFrame& sent) {
  raw::MpaFrame reply =
      context.exchange(link, raw::mpa_request(sent.flags, sent.revision, sent.pd));
  if (reply.has(raw::kR)) throw raw::Failure("rejected");
  return reply;
}

Verdict peer_to_peer(Context& context, int offered) {
  raw::Peer link = context.dial();
  const raw::MpaFrame sent = frame(kBitA | 16, offered | 16);
  raw::MpaFrame reply = ask(context, link, sent);
  if ((reply.ird_word() & kBitA) == 0) return wrong("no A in the Reply");
  const int chosen = reply.ord_word() & (kRtrRead | kRtrWrite);
  if (chosen == 0) return wrong("no RTR kind in the Reply");
  const char* kinds[] = {"", "Read", "Write", "Write and Read"};
  const std::string says = fmt::format("the peer takes {}", kinds[chosen >> 14]);
  if ((chosen & offered) == 0) return wrong(says + ", which was not offered");
  const bool only_offered = (chosen & ~offered) == 0;
  const bool read = (chosen & kRtrRead) != 0 && reply.ird() == 0;
  Session s = context.begin(std::move(link), sent, std::move(reply));
  s.expect_alive();
  if (read) return wrong(says + " with an IRD of 0");
  return only_offered ? right(says) : noted(says + ", more than was offered");
}

Verdict rtr_read(Context& context) {
  raw::Peer link = context.dial();
  const raw::MpaFrame sent = frame(kBitA | 16, kRtrRead | 16);
  raw::MpaFrame reply = ask(context, link, sent);
  if ((reply.ord_word() & kRtrRead) == 0) return skipped("the peer does not take a Read as RTR");
  Session s = context.begin(std::move(link), sent, std::move(reply));
  if (s.read_msn != 2) return wrong("no Read was sent");
  s.expect_alive();  // with MSN 2: the RTR counts
  return right();
}

// Chelsio sends its RTR in revision 1 too, where nobody has agreed on one.
Verdict rtr_unannounced(Context& context) {
  raw::Peer link = context.dial();
  const raw::MpaFrame reply = context.exchange(link, raw::mpa_request(raw::kC, 1));
  if (reply.has(raw::kR)) throw raw::Failure("rejected");
  Session s{.link = std::move(link), .reply = reply};
  s.link.framing.markers_out = reply.has(raw::kM);
  s.request_read({}, 0, 0, {.stag = 7, .to = 9});
  const raw::Segment answer = s.link.recv_segment();
  if (answer.opcode == raw::kReadResponse) return right();
  if (answer.opcode != raw::kTerminate) return wrong("neither a Read Response nor a Terminate");
  return noted("the application takes no Reads: Terminate " + raw::to_hex(answer.payload));
}

Verdict promised_rtr_is_awaited(Context& context) {
  raw::Peer link = context.dial();
  const raw::MpaFrame sent = frame(kBitA | 16, kRtrRead | kRtrWrite | 16);
  raw::MpaFrame reply = ask(context, link, sent);
  if ((reply.ird_word() & kBitA) == 0) return skipped("the peer does not do peer-to-peer");
  if (!link.quiet(raw::milliseconds(300))) return wrong("octets before the RTR that was promised");
  context.begin(std::move(link), sent, std::move(reply)).expect_alive();
  return right();
}

Verdict depths(Context& context, std::uint16_t ird, std::uint16_t ord) {
  raw::Peer link = context.dial();
  const raw::MpaFrame reply = ask(context, link, frame(ird, ord));
  const std::string says = fmt::format("the peer: IRD {}, ORD {}", reply.ird(), reply.ord());
  if (reply.ord() != 0x3fff && reply.ord() > ird) return wrong(says + "; it may not ask for more");
  if (reply.ird() < ord) return noted(says + "; less than was wished for");
  return right(says);
}

Verdict not_negotiated(Context& context) {
  raw::Peer link = context.dial();
  const raw::MpaFrame reply = ask(context, link, frame(0x3fff, 0x3fff));
  const std::string says = fmt::format("the peer: IRD {:#x}, ORD {:#x}", reply.ird(), reply.ord());
  if (reply.ird() == 0x3fff && reply.ord() == 0x3fff) return right(says);
  return noted(says + "; 0x3fff in both means that the applications settle it");
}

Verdict control_bits_without_a(Context& context) {
  raw::Peer link = context.dial();
  const raw::MpaFrame sent = frame(kBitB | 16, kRtrRead | kRtrWrite | 16);
  raw::MpaFrame reply = ask(context, link, sent);
  const bool clear =
      (reply.ird_word() & (kBitA | kBitB)) == 0 && (reply.ord_word() & (kRtrRead | kRtrWrite)) == 0;
  Session s = context.begin(std::move(link), frame(16, 16), std::move(reply));
  s.expect_alive();
  return clear ? right() : noted("the Reply has RTR bits although the Request has no A");
}

Verdict reserved_bits(Context& context) {
  raw::Peer link = context.dial();
  const raw::MpaFrame sent = frame(16, 16, kFlags | 0x0f);
  raw::MpaFrame reply = ask(context, link, sent);
  const bool echoed = (reply.flags & 0x0f) != 0;
  Session s = context.begin(std::move(link), frame(16, 16), std::move(reply));
  s.expect_alive();
  return echoed ? noted("ignored, but sent back in the Reply, where they are to be zero") : right();
}

}  // namespace

void add_negotiation_checks(Checks& checks) {
  const auto add = [&checks](std::string id, const char* rfc, std::string title, auto run) {
    checks.push_back({std::move(id), rfc, std::move(title), Needs::kNothing, false, false, run});
  };
  add("p2p.both", "6581 9.2", "peer-to-peer with Write and Read as RTR",
      [](Context& c) { return peer_to_peer(c, kRtrRead | kRtrWrite); });
  add("p2p.write", "6581 9.2", "peer-to-peer with Write only",
      [](Context& c) { return peer_to_peer(c, kRtrWrite); });
  add("p2p.read", "6581 9.2", "peer-to-peer with Read only (Chelsio, Windows SMB Direct)",
      [](Context& c) { return peer_to_peer(c, kRtrRead); });
  add("p2p.read-counts", "6581 9.2", "a Read as RTR is answered and takes MSN 1", rtr_read);
  add("p2p.unannounced", "5044 7.1.2", "a Read of nothing opens revision 1 too (Chelsio)",
      rtr_unannounced);
  add("p2p.waits", "6581 6", "nothing comes before the promised RTR", promised_rtr_is_awaited);
  for (const auto& [ird, ord] : {std::pair{16, 16}, {1, 1}, {1, 64}, {64, 1}, {0, 0}}) {
    add(fmt::format("depth.{}-{}", ird, ord), "6581 9.1",
        fmt::format("IRD {} and ORD {} are answered within them", ird, ord),
        [ird = ird, ord = ord](Context& c) {
          return depths(c, static_cast<std::uint16_t>(ird), static_cast<std::uint16_t>(ord));
        });
  }
  add("depth.open", "6581 9.1", "0x3fff leaves the depths to the applications", not_negotiated);
  add("p2p.bits-without-a", "6581 9.2", "B, C and D mean nothing without A",
      control_bits_without_a);
  add("startup.reserved", "5044 7.1.1", "reserved flags are ignored, and zero in the Reply",
      reserved_bits);
}

}  // namespace weft::selftest
