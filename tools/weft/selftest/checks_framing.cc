// FPDUs: RFC 5044 sections 4 to 8. Any split of the stream, pads, CRC, lengths that lie.
#include <fmt/format.h>

#include <thread>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::operator+;
using raw::operator+=;

Bytes nothing_read(Session& s) {
  return raw::read_request(s.read_msn++, {.sink_stag = 7, .sink_to = 9, .size = 0});
}

Verdict octet_by_octet(Context& context) {
  Session s = context.open();
  const Bytes fpdu = s.link.frame(nothing_read(s));
  for (const std::uint8_t octet : fpdu) {
    s.link.send(raw::View(&octet, 1));
    std::this_thread::sleep_for(raw::milliseconds(1));
  }
  (void)s.take_response({.stag = 7, .to = 9}, 0);
  return right();
}

Verdict many_in_one_segment(Context& context) {
  Session s = context.open();
  Bytes all;
  for (int i = 0; i < 20; ++i) all += s.link.frame(raw::write(1, 0, {}));
  all += s.link.frame(nothing_read(s));
  s.link.send(all);
  (void)s.take_response({.stag = 7, .to = 9}, 0);
  return right("21 FPDUs");
}

Verdict pad_is_ignored(Context& context) {
  Session s = context.open();
  s.link.send_fpdu(raw::write(1, 0, {}), {});  // 16 octets: no pad
  const Bytes odd = raw::read_request(s.read_msn++, {.sink_stag = 7, .sink_to = 9, .size = 0});
  s.link.send_fpdu(raw::ulpdu(raw::Tagged{.stag = 1}), {.pad = 0xa5});
  s.link.send_fpdu(odd, {.pad = 0xa5});
  (void)s.take_response({.stag = 7, .to = 9}, 0);
  if (!s.offer) return right();
  for (std::size_t size = 1; size < 4; ++size) {  // each length of the pad
    s.link.send_fpdu(raw::write(s.offer->region.stag, s.offer->region.to, raw::pattern(size)),
                     {.pad = 0xa5});
  }
  return s.read(s.offer->region, 0, 3) == raw::pattern(3) ? right() : wrong("wrong octets placed");
}

Verdict pad_is_sent_as_zero(Context& context) {
  Session s = context.open();
  s.link.framing.any_pad = false;
  // Each length of the pad, and each after a shorter one: what was there before must not leave.
  for (const std::uint32_t size : {1U, 2U, 3U, 4U, 3U, 2U, 1U}) {
    (void)s.read(s.offer->region, 0, size);
    s.send(raw::pattern(size));
    (void)s.take_report();
  }
  return right();
}

Verdict bad_crc(Context& context) {
  Session s = context.open();
  if (!s.link.framing.crc) return skipped("no CRC on this connection");
  const Bytes bad = raw::write(1, 0, {});
  return provoke(context, s, bad, {{{2, 0, 2}}}, {.crc_xor = 0x00010000});
}

Verdict bad_crc_in_payload(Context& context) {
  Session s = context.open();
  if (!s.link.framing.crc) return skipped("no CRC on this connection");
  const Bytes bad = raw::write(s.offer->read_only.stag, s.offer->read_only.to, raw::zeros(64));
  return provoke(context, s, bad, {{{2, 0, 2}}}, {.crc_xor = 1});
}

// ULPDU_Length too short for any header, or for the one it has. The RFCs name no code for that.
Verdict too_short(Context& context, const Bytes& ulpdu) {
  Session s = context.open();
  s.link.send_fpdu(ulpdu);
  const Reaction reaction = context.reaction(s);
  if (reaction.terminate) {
    const Bytes& body = reaction.terminate->payload;
    if (reaction.end == raw::End::kOpen) return wrong("Terminate, but the connection stays open");
    return right("Terminate " +
                 raw::to_hex(raw::View(body).first(std::min<std::size_t>(3, body.size()))));
  }
  if (reaction.end != raw::End::kOpen) return right(raw::to_string(reaction.end));
  try {
    s.expect_alive();
  } catch (const raw::Failure&) {
    return wrong("the peer takes what follows for the rest of the header");
  }
  return wrong("the peer goes on as if nothing had been");
}

// 64768 octets of ULPDU, whatever the segment size of TCP.
Verdict largest(Context& context) {
  Session s = context.open();
  constexpr std::size_t kPayload = 64768 - 14;
  const Bytes payload = raw::pattern(kPayload, 5);
  try {
    s.write(s.offer->region, 3, payload);
    if (s.read(s.offer->region, 3, kPayload) != payload) return wrong("wrong octets placed");
  } catch (const raw::Cut& why) {
    return noted(fmt::format("not taken: {}", why.what()));
  }
  return right("taken");
}

Verdict ends_inside(Context& context, bool reset) {
  Session s = context.open();
  const Bytes fpdu = s.link.frame(raw::write(1, 0, raw::zeros(100)));
  s.link.send(raw::View(fpdu).first(50));
  if (reset) {
    s.link.reset();
  } else {
    s.link.shutdown_write();
    (void)context.reaction(s);
    if (s.link.end() == raw::End::kOpen) return wrong("the connection stays open");
  }
  context.open().expect_alive();
  return right();
}

Verdict garbage(Context& context) {
  Session s = context.open();
  s.link.send(raw::pattern(70000, 3));  // more than any length field can ask for
  const Reaction reaction = context.reaction(s);
  if (reaction.end != raw::End::kOpen) return right(raw::to_string(reaction.end));
  return wrong("the connection stays open");
}

// With markers wanted by the peer the wire has them; those with a wrong pointer have a code.
Verdict markers_of_the_peer(Context& context) {
  Session s = context.open();
  if (!s.reply.has(raw::kM)) return skipped("the peer asks for no markers");
  for (int i = 0; i < 40; ++i) s.expect_alive();
  return right("markers in what we sent");
}

}  // namespace

void add_framing_checks(Checks& checks) {
  const auto add = [&checks](const char* id, const char* rfc, const char* title, auto run,
                             Needs needs = Needs::kNothing) {
    checks.push_back({id, rfc, title, needs, false, false, run});
  };
  add("fpdu.octet-by-octet", "5044 5.1", "an FPDU may come in any pieces", octet_by_octet);
  add("fpdu.coalesced", "5044 5.2", "many FPDUs may come in one segment", many_in_one_segment);
  add("fpdu.pad", "5044 4.1", "the value of the pad is ignored", pad_is_ignored);
  add("fpdu.pad-sent", "5044 4.1", "the pad is sent as zero", pad_is_sent_as_zero, Needs::kServer);
  add("fpdu.peer-markers", "5044 4.3", "a peer that asks for markers takes them",
      markers_of_the_peer);
  add("fpdu.crc", "5044 8", "a wrong CRC draws Terminate 2/0/02", bad_crc);
  add("fpdu.crc-payload", "5044 8", "nothing is placed from under a wrong CRC", bad_crc_in_payload,
      Needs::kServer);
  add("fpdu.length-0", "5044 4.1", "an FPDU without ULPDU ends the connection",
      [](Context& c) { return too_short(c, {}); });
  add("fpdu.length-1", "5044 4.1", "a ULPDU of 1 octet ends the connection",
      [](Context& c) { return too_short(c, Bytes(1, 0x41)); });
  add("fpdu.short-tagged", "5041 4.2", "a tagged header cut short ends the connection",
      [](Context& c) {
        Bytes cut = raw::write(1, 0, {});
        cut.resize(13);
        return too_short(c, cut);
      });
  add("fpdu.short-untagged", "5041 4.3", "an untagged header cut short ends the connection",
      [](Context& c) {
        Bytes cut = raw::send(1, {});
        cut.resize(17);
        return too_short(c, cut);
      });
  add("fpdu.short-read", "5040 4.4", "a Read Request cut short ends the connection",
      [](Context& c) {
        Bytes cut = raw::read_request(1, {});
        cut.resize(45);
        return too_short(c, cut);
      });
  add("fpdu.largest", "5044 3", "the largest FPDU, 64768 octets, is taken", largest,
      Needs::kServer);
  add("fpdu.fin-inside", "5044 7.3", "the stream may end inside an FPDU",
      [](Context& c) { return ends_inside(c, false); });
  add("fpdu.reset-inside", "5044 7.3", "the stream may be reset inside an FPDU",
      [](Context& c) { return ends_inside(c, true); });
  add("fpdu.garbage", "5044 4.4", "random octets end the connection", garbage);
}

}  // namespace weft::selftest
