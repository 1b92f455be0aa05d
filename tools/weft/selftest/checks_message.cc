// Sends, RDMA Writes and Reads that follow the rules, and the faults that need a posted receive.
// All with `weft selftest --serve` at the other end.
#include <fmt/format.h>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::operator+;
using raw::Untagged;

Verdict compare(const Report& report, const Bytes& sent) {
  if (report.bytes != sent.size()) {
    return wrong(fmt::format("{} octets arrive of {}", report.bytes, sent.size()));
  }
  if (report.crc != raw::crc32c(sent)) return wrong("other octets arrive");
  if (report.flags != 0) return wrong(fmt::format("flags {:02x} at the application", report.flags));
  return right();
}

Verdict send_sizes(Context& context) {
  Session s = context.open();
  for (const std::size_t size : {0U, 1U, 2U, 3U, 4U, 63U, 1424U, 1425U, 9000U, 16384U}) {
    const Bytes payload = raw::pattern(size, static_cast<unsigned>(size));
    s.send(payload);
    const Verdict v = compare(s.take_report(), payload);
    if (v.grade != Grade::kRight) return v;
  }
  return right("0 to 16384 octets");
}

// The STag of an ordinary region may be beyond the reach of Send with Invalidate: verbs know the
// right to invalidate only for windows and fast registration.
Verdict not_to_be_invalidated(Session& s, raw::Segment terminate, const Bytes& sent) {
  const Reaction reaction{.terminate = std::move(terminate), .others = {}, .end = s.link.drain()};
  Verdict v = judge(reaction, sent, {{{0, 2, 9}, {0, 1, 9}}});
  if (v.grade != Grade::kWrong) v = noted("the peer's region cannot be invalidated: " + v.detail);
  return v;
}

Verdict send_kind(Context& context, raw::Opcode opcode, bool invalidates) {
  Session s = context.open();
  const Buffer spare = s.offer->spare;
  const Bytes payload = raw::pattern(100, 1);
  const Bytes message = raw::ulpdu(Untagged{.opcode = opcode,
                                            .msn = s.send_msn++,
                                            .payload = payload,
                                            .rsvd = invalidates ? spare.stag : 0});
  s.link.send_fpdu(message);
  raw::Segment answer = s.link.recv_segment();
  if (invalidates && answer.opcode == raw::kTerminate) {
    return not_to_be_invalidated(s, std::move(answer), message);
  }
  Report report = s.take_report(std::move(answer));
  const bool told = (report.flags & Report::kInvalidated) != 0;
  // Whether the event was solicited is for the notification: a completion need not say it.
  report.flags = 0;
  const Verdict v = compare(report, payload);
  if (v.grade != Grade::kRight) return v;
  if (!invalidates) return told ? wrong("the application is told of an invalidation") : v;
  if (told && report.invalidated != spare.stag) return wrong("another STag is reported");
  const Verdict gone =
      provoke(context, s, raw::write(spare.stag, spare.to, raw::zeros(8)), {{{1, 1, 0}}});
  if (gone.grade == Grade::kWrong) return wrong("the STag still works: " + gone.detail);
  return told ? gone : noted("the STag is gone, but the application is not told");
}

Bytes piece(std::uint32_t msn, std::uint32_t mo, bool last, const Bytes& payload) {
  return raw::ulpdu(Untagged{.last = last, .msn = msn, .mo = mo, .payload = payload});
}

Bytes slice(const Bytes& all, std::size_t from, std::size_t count) {
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(from);
  return {at, at + static_cast<std::ptrdiff_t>(count)};
}

Verdict send_in_segments(Context& context, std::size_t each, bool writes_between) {
  Session s = context.open();
  const Bytes payload = raw::pattern(3000, 9);
  const std::uint32_t msn = s.send_msn++;
  for (std::size_t at = 0; at < payload.size(); at += each) {
    const std::size_t count = std::min(each, payload.size() - at);
    const bool last = at + count == payload.size();
    s.link.send_fpdu(piece(msn, static_cast<std::uint32_t>(at), last, slice(payload, at, count)));
    if (writes_between) s.write(s.offer->region, at, slice(payload, at, count));
  }
  const Verdict v = compare(s.take_report(), payload);
  if (v.grade != Grade::kRight || !writes_between) return v;
  return s.read(s.offer->region, 0, 3000) == payload ? right() : wrong("wrong octets placed");
}

Verdict many_sends(Context& context) {
  Session s = context.open();
  Bytes all;
  for (int i = 0; i < 16; ++i) all = all + s.link.frame(raw::send(s.send_msn++, raw::pattern(40)));
  s.link.send(all);
  for (int i = 0; i < 16; ++i) {
    const Verdict v = compare(s.take_report(), raw::pattern(40));
    if (v.grade != Grade::kRight) return v;
  }
  return right("16 in one segment");
}

Verdict write_sizes(Context& context) {
  Session s = context.open();
  std::uint64_t offset = 0;
  for (const std::size_t size : {1U, 2U, 3U, 5U, 1428U, 1429U, 9001U}) {
    const Bytes payload = raw::pattern(size, static_cast<unsigned>(size));
    s.write(s.offer->region, offset, payload);
    if (s.read(s.offer->region, offset, static_cast<std::uint32_t>(size)) != payload) {
      return wrong(fmt::format("a Write of {} octets reads back otherwise", size));
    }
    offset += size;
  }
  return right("1 to 9001 octets, at odd offsets");
}

Verdict write_in_segments(Context& context) {
  Session s = context.open();
  const Bytes payload = raw::pattern(5000, 4);
  for (std::size_t at = 0; at < payload.size(); at += 1000) {
    s.link.send_fpdu(raw::ulpdu(raw::Tagged{.last = at == 4000,
                                            .stag = s.offer->region.stag,
                                            .to = s.offer->region.to + at,
                                            .payload = slice(payload, at, 1000)}));
  }
  return s.read(s.offer->region, 0, 5000) == payload ? right() : wrong("wrong octets placed");
}

// When the Send is delivered, the Write before it is placed.
Verdict write_then_send(Context& context) {
  Session s = context.open();
  for (unsigned round = 0; round < 20; ++round) {
    const Bytes payload = raw::pattern(4000, round);
    s.write(s.offer->region, 0, payload);
    (void)s.ask({.kind = CommandKind::kStatus});
    if (s.read(s.offer->region, 0, 4000) != payload) return wrong("old octets after the Send");
  }
  return right("20 times");
}

Verdict whole_region(Context& context) {
  Session s = context.open();
  if (s.read(s.offer->region, 0, kRegionBytes) != raw::pattern(kRegionBytes, kRegionSeed)) {
    return wrong("other octets than the application put there");
  }
  s.write(s.offer->region, kRegionBytes - 5, raw::pattern(5));
  return s.read(s.offer->region, kRegionBytes - 5, 5) == raw::pattern(5)
             ? right("to the last octet")
             : wrong("the last octets are not written");
}

// As many Reads at once as the peer's Reply allows, answered in order.
Verdict reads_at_once(Context& context) {
  Session s = context.open();
  const unsigned depth = s.reply.has(raw::kS) ? std::min<unsigned>(s.reply.ird(), 16) : 1;
  const auto sink = [](unsigned i) {
    return Buffer{.stag = 0x600U + i, .to = std::uint64_t{i} << 32U};
  };
  for (unsigned i = 0; i < depth; ++i) s.request_read(s.offer->region, i * 10, 5000, sink(i));
  const Bytes all = raw::pattern(6000, kRegionSeed);
  for (unsigned i = 0; i < depth; ++i) {
    if (s.take_response(sink(i), 5000) != slice(all, std::size_t{i} * 10, 5000)) {
      return wrong(fmt::format("wrong content in Read Response {}", i));
    }
  }
  return right(fmt::format("{} Reads", depth));
}

// Far more than the Reply allows, and nobody takes the answers.
Verdict too_many_reads(Context& context) {
  Session s = context.open();
  if (!s.reply.has(raw::kS) || s.reply.ird() == 0x3fff) return skipped("no IRD is agreed on");
  const unsigned depth = s.reply.ird();
  // Together more than the buffers of TCP hold, so that the first stay open.
  const std::uint32_t size = std::min<std::uint32_t>(kRegionBytes, (20U << 20U) / (depth + 1));
  Bytes all, last;
  for (unsigned i = 0; i < depth + 40; ++i) {
    last = raw::read_request(
        s.read_msn++,
        {.size = size, .src_stag = s.offer->region.stag, .src_to = s.offer->region.to});
    all = all + s.link.frame(last);
  }
  s.link.send(all);
  const Reaction reaction = context.reaction(s);
  if (!reaction.terminate && reaction.others.size() > std::size_t{depth} + 40) {
    return noted("all are served: the peer keeps no account");
  }
  // Which of the Requests was one too many depends on how fast the peer is.
  Verdict v = judge(reaction, last, {{{1, 2, 2}}, {{1, 2, 3}, {0, 2, 7}}});
  return v.grade == Grade::kNoted && v.detail.find("DDP header") != std::string::npos
             ? right("Terminate 1/2/02")
             : v;
}

Verdict too_long(Context& context) {
  Session s = context.open();
  return provoke(context, s, raw::send(1, raw::pattern(kReceiveBytes + 1)),
                 {{{1, 2, 5}}, {{1, 2, 2}}});
}

Verdict too_long_in_segments(Context& context) {
  Session s = context.open();
  s.link.send_fpdu(piece(1, 0, false, raw::pattern(kReceiveBytes)));
  return provoke(context, s, piece(1, kReceiveBytes, true, raw::zeros(1)),
                 {{{1, 2, 5}}, {{1, 2, 2}}});
}

Verdict no_receive(Context& context) {
  Session s = context.open(encode(Wish{WishKind::kNoReceives}));
  return provoke(context, s, raw::send(1, raw::zeros(8)), {{{1, 2, 2}}});
}

Verdict hole(Context& context) {
  Session s = context.open();
  s.link.send_fpdu(piece(1, 0, false, raw::zeros(100)));
  return provoke(context, s, piece(1, 200, true, raw::zeros(100)), {{{1, 2, 4}}});
}

Verdict other_message_amid(Context& context) {
  Session s = context.open();
  s.link.send_fpdu(piece(1, 0, false, raw::zeros(100)));
  return provoke(context, s, piece(2, 0, true, raw::zeros(100)),
                 {{{1, 2, 3}, {1, 2, 4}}, {{1, 2, 2}}});
}

}  // namespace

void add_message_checks(Checks& checks) {
  const auto add = [&checks](const char* id, const char* rfc, const char* title, auto run) {
    checks.push_back({id, rfc, title, Needs::kServer, false, false, run});
  };
  add("send.sizes", "5040 5.3", "Sends of any size are delivered", send_sizes);
  add("send.solicited", "5040 5.3", "Send with Solicited Event",
      [](Context& c) { return send_kind(c, raw::kSendSe, false); });
  add("send.invalidate", "5040 5.3", "Send with Invalidate: the STag is gone",
      [](Context& c) { return send_kind(c, raw::kSendInv, true); });
  add("send.solicited-invalidate", "5040 5.3", "Send with Solicited Event and Invalidate",
      [](Context& c) { return send_kind(c, raw::kSendSeInv, true); });
  add("send.segments", "5041 5.1", "a Send may come in any segments",
      [](Context& c) { return send_in_segments(c, 700, false); });
  add("send.tiny-segments", "5041 5.1", "a Send may come in segments of 7 octets",
      [](Context& c) { return send_in_segments(c, 7, false); });
  add("send.interleaved", "5041 5.3", "Writes between the segments of a Send",
      [](Context& c) { return send_in_segments(c, 500, true); });
  add("send.many", "5041 5.3", "Sends are delivered in order, each once", many_sends);
  add("send.too-long", "5041 7.2", "a Send longer than the receive: 1/2/05", too_long);
  add("send.grows-too-long", "5041 7.2", "a Send that outgrows its receive: 1/2/05",
      too_long_in_segments);
  add("send.no-receive", "5041 7.2", "a Send without a receive: 1/2/02", no_receive);
  add("send.hole", "5041 7.2", "a segment that leaves a hole: 1/2/04", hole);
  add("send.other-amid", "5041 5.3", "another Send inside an open one: 1/2/03 or 1/2/04",
      other_message_amid);
  add("write.sizes", "5040 5.1", "Writes of any size are placed", write_sizes);
  add("write.segments", "5041 5.2", "a Write may come in any segments", write_in_segments);
  add("write.then-send", "5040 5.5", "a Write is placed when the Send behind it is delivered",
      write_then_send);
  add("read.whole-region", "5040 5.2", "Read and Write reach the whole region", whole_region);
  add("read.many", "5040 5.2", "Reads at once are answered in order", reads_at_once);
  add("read.too-many", "5040 6.1", "more Reads than the agreed IRD: 1/2/02", too_many_reads);
}

}  // namespace weft::selftest
