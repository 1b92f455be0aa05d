// RFC 7306: Immediate Data and atomics. A peer without them answers with 0/2/06 and is right.
#include <fmt/format.h>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;

constexpr raw::Code kUnexpectedOpcode{0, 2, 6};

// The next segment; nothing if the peer says that it does not know the operation.
std::optional<raw::Segment> answer(Session& s) {
  raw::Segment segment = s.link.recv_segment();
  if (segment.opcode != raw::kTerminate) return segment;
  const Bytes& body = segment.payload;
  const bool refuses =
      body.size() >= 2 && body[1] == kUnexpectedOpcode.code && (body[0] == 0x02 || body[0] == 0x20);
  if (!refuses) throw raw::Failure("Terminate " + raw::to_hex(body));
  return std::nullopt;
}

Verdict not_known() { return skipped("the peer does not have RFC 7306: Terminate 0/2/06"); }

Verdict immediate(Context& context, bool solicited) {
  Session s = context.open();
  s.link.send_fpdu(raw::immediate(s.send_msn++, 0x0011223344556677, solicited));
  const std::optional<raw::Segment> first = answer(s);
  if (!first) return not_known();
  const std::optional<Report> report = decode_report(first->payload);
  if (!report || (report->flags & Report::kImmediate) == 0) {
    return wrong("the application was not told of immediate data");
  }
  if (report->immediate == 0x0011223344556677) return right();
  // All that verbs can show an application: the first four octets.
  if (report->immediate == 0x0011223300000000) return right("the application got 32 bits of it");
  return wrong(fmt::format("the application got {:016x}", report->immediate));
}

Verdict immediate_length(Context& context) {
  Session s = context.open();
  s.link.send_fpdu(raw::immediate(s.send_msn++, 1));
  if (!answer(s)) return not_known();
  Bytes bad = raw::immediate(s.send_msn, 1);
  bad.pop_back();
  // No RFC names the code.
  return provoke(context, s, bad, {{{0, 2, 0xff}, {0, 2, 6}, {2, 0, 3}, {1, 2, 5}}});
}

struct Result {
  std::uint32_t id;
  std::uint64_t old;
};

std::optional<Result> atomic(Session& s, const raw::AtomicFields& fields) {
  const std::uint32_t msn = s.read_msn++;
  s.link.send_fpdu(raw::atomic_request(msn, fields));
  const std::optional<raw::Segment> got = answer(s);
  if (!got) return std::nullopt;
  if (got->opcode != raw::kAtomicResponse || got->payload.size() != 12) {
    throw raw::Failure("no Atomic Response: " + raw::to_hex(got->whole));
  }
  return Result{raw::get32(got->payload, 0), raw::get64(got->payload, 4)};
}

// The peer computes in its own byte order, which is seen from where the addend's octets land.
std::uint64_t number(const Bytes& memory, bool little) {
  std::uint64_t v = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    v = v << 8U | memory[little ? 7 - i : i];
  }
  return v;
}

Verdict fetch_add(Context& context) {
  Session s = context.open();
  const Buffer at = s.offer->region;
  const Bytes before = s.read(at, 0, 8);
  const auto got =
      atomic(s, {.request_id = 0x77, .stag = at.stag, .to = at.to, .data = 0x0102030405060708});
  if (!got) return not_known();
  if (got->id != 0x77) return wrong("another Request Identifier in the Response");
  const bool little = got->old == number(before, true);
  if (!little && got->old != number(before, false)) return wrong("not the old value");
  const std::uint64_t now = number(s.read(at, 0, 8), little);
  if (now != got->old + 0x0102030405060708) return wrong("not the sum");
  return right();
}

Verdict compare_and_swap(Context& context) {
  Session s = context.open();
  const Buffer at = s.offer->region;
  const auto peek = atomic(s, {.stag = at.stag, .to = at.to + 8});
  if (!peek) return not_known();
  raw::AtomicFields swap{.op = 2,
                         .request_id = 0x78,
                         .stag = at.stag,
                         .to = at.to + 8,
                         .data = 0x5555555555555555,
                         .mask = ~std::uint64_t{0},
                         .compare = peek->old + 1};
  const auto missed = atomic(s, swap);
  swap.compare = peek->old;
  const auto hit = atomic(s, swap);
  const auto after = atomic(s, {.stag = at.stag, .to = at.to + 8});
  if (!missed || !hit || !after) return wrong("refused after it was taken once");
  if (missed->old != peek->old || hit->old != peek->old) return wrong("not the old value");
  return after->old == swap.data ? right() : wrong("not swapped, or swapped when it should not");
}

Verdict atomic_fault(Context& context, std::function<void(raw::AtomicFields&, const Offer&)> spoil,
                     const Fault& fault) {
  Session s = context.open();
  raw::AtomicFields fields{.stag = s.offer->region.stag, .to = s.offer->region.to};
  if (!atomic(s, fields)) return not_known();
  spoil(fields, *s.offer);
  return provoke(context, s, raw::atomic_request(s.read_msn, fields), fault);
}

}  // namespace

void add_extension_checks(Checks& checks) {
  const auto add = [&checks](const char* id, const char* rfc, const char* title, auto run) {
    checks.push_back({id, rfc, title, Needs::kServer, true, false, run});
  };
  const auto add_fault = [&add](const char* id, const char* title, auto spoil, Fault fault) {
    add(id, "7306 8.2", title,
        [spoil, fault](Context& c) { return atomic_fault(c, spoil, fault); });
  };
  add("immediate.plain", "7306 6.1", "Immediate Data",
      [](Context& c) { return immediate(c, false); });
  add("immediate.solicited", "7306 6.2", "Immediate Data with Solicited Event",
      [](Context& c) { return immediate(c, true); });
  add("immediate.length", "7306 6.3", "Immediate Data of 7 octets ends the connection",
      immediate_length);
  add("atomic.fetch-add", "7306 5.1.1", "FetchAdd", fetch_add);
  add("atomic.cmp-swap", "7306 5.1.2", "CmpSwap", compare_and_swap);
  add_fault("atomic.misaligned", "an atomic on an odd address: 0/2/07",
            [](raw::AtomicFields& f, const Offer&) { f.to += 4; }, {{{0, 2, 7}}});
  add_fault("atomic.unknown-op", "an atomic operation code that does not exist: 0/2/06",
            [](raw::AtomicFields& f, const Offer&) { f.op = 5; }, {{{0, 2, 6}}, {{0, 2, 0xff}}});
  add_fault("atomic.unknown-stag", "an atomic on an unknown STag: 0/1/00",
            [](raw::AtomicFields& f, const Offer&) { f.stag = 0x00666600; }, {{{0, 1, 0}}});
  add_fault("atomic.no-right", "an atomic without the right: 0/1/02",
            [](raw::AtomicFields& f, const Offer& o) {
              f.stag = o.read_only.stag;
              f.to = o.read_only.to;
            },
            {{{0, 1, 2}}});
  add_fault("atomic.out-of-bounds", "an atomic behind the region: 0/1/01",
            [](raw::AtomicFields& f, const Offer&) { f.to += kRegionBytes; }, {{{0, 1, 1}}});
}

}  // namespace weft::selftest
