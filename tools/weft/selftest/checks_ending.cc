// How connections end: Terminates received, FIN, reset. RFC 5040 section 6, RFC 5044 section 7.3.
#include <fmt/format.h>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;

// A Terminate is not answered with another one.
Verdict closes_quietly(Context& context, const Bytes& terminate) {
  Session s = context.open();
  s.expect_alive();
  s.link.send_fpdu(terminate);
  const Reaction reaction = context.reaction(s);
  if (reaction.terminate) return wrong("a Terminate in answer to a Terminate");
  if (reaction.end == raw::End::kOpen) return wrong("the connection stays open");
  return right(raw::to_string(reaction.end));
}

// Garbage in a Terminate may well draw one.
Verdict closes(Context& context, const Bytes& terminate) {
  Session s = context.open();
  s.expect_alive();
  s.link.send_fpdu(terminate);
  const Reaction reaction = context.reaction(s);
  if (reaction.end == raw::End::kOpen) return wrong("the connection stays open");
  return right(raw::to_string(reaction.end));
}

Verdict fin(Context& context) {
  Session s = context.open();
  s.expect_alive();
  s.link.shutdown_write();
  const Reaction reaction = context.reaction(s);
  if (reaction.terminate) return noted("a Terminate in answer to an orderly FIN");
  if (reaction.end == raw::End::kOpen) return wrong("the connection stays half open");
  return right(raw::to_string(reaction.end));
}

Verdict fin_first(Context& context) {
  raw::Peer link = context.dial();
  const raw::MpaFrame reply = context.exchange(link, context.request());
  if (reply.has(raw::kR)) return skipped("rejected");
  link.shutdown_write();
  link.drain();
  context.open().expect_alive();
  return right("closed, and the next one is served");
}

Verdict reset(Context& context) {
  for (int i = 0; i < 10; ++i) {
    Session s = context.open();
    if (i % 2 == 0) s.expect_alive();
    s.link.reset();
  }
  context.open().expect_alive();
  return right("10 times, and the next one is served");
}

Verdict peer_disconnects(Context& context) {
  Session s = context.open();
  s.tell({.kind = CommandKind::kDisconnect});
  const Reaction reaction = context.reaction(s);
  if (reaction.terminate) return wrong("a Terminate where the application disconnected");
  if (reaction.end == raw::End::kOpen) return wrong("the connection stays open");
  return right(raw::to_string(reaction.end));
}

Verdict reset_amid_response(Context& context) {
  for (int i = 0; i < 10; ++i) {
    Session s = context.open();
    s.request_read(s.offer->region, 0, kRegionBytes, {.stag = 7, .to = 0});
    if (i % 2 == 0) (void)s.link.recv_segment(raw::kReadResponse);
    s.link.reset();
  }
  context.open().expect_alive();
  return right("10 times, and the next one is served");
}

}  // namespace

void add_ending_checks(Checks& checks) {
  const auto add = [&checks](const char* id, const char* rfc, const char* title, auto run,
                             Needs needs = Needs::kNothing, bool harsh = false) {
    checks.push_back({id, rfc, title, needs, false, harsh, run});
  };
  const Bytes offending = raw::write(7, 9, raw::zeros(4));
  add("end.terminate", "5040 4.8", "a Terminate ends the connection and is not answered",
      [](Context& c) {
        return closes_quietly(c, raw::terminate({1, 1, 0}));
      });
  add("end.terminate-headers", "5040 4.8", "a Terminate with headers attached is understood",
      [offending](Context& c) {
        return closes_quietly(c, raw::terminate({1, 1, 1}, raw::Attach::kDdp, offending));
      });
  add("end.terminate-siw", "5040 4.8", "a Terminate in the octet order of Linux siw too",
      [offending](Context& c) {
        return closes_quietly(
            c, raw::terminate({1, 1, 1}, raw::Attach::kDdp, offending, raw::Layout::kSiw));
      });
  add("end.terminate-unknown", "5040 4.8", "a Terminate with an unregistered code too",
      [](Context& c) {
        return closes_quietly(c, raw::terminate({5, 7, 0xee}));
      });
  add("end.terminate-short", "5040 4.8", "a Terminate cut short ends the connection",
      [](Context& c) {
        return closes(c, raw::ulpdu(raw::Untagged{
                             .opcode = raw::kTerminate, .qn = 2, .payload = raw::zeros(2)}));
      });
  add("end.fin", "5044 7.3", "FIN is answered with FIN", fin);
  add("end.fin-first", "5044 7.3", "FIN before the first FPDU", fin_first, Needs::kNothing, true);
  add("end.reset", "5044 7.3", "resets do no harm to others", reset);
  add("end.disconnect", "5044 7.3", "the peer's application disconnects", peer_disconnects,
      Needs::kServer);
  add("end.reset-amid-read", "5044 7.3", "resets amid Read Responses do no harm to others",
      reset_amid_response, Needs::kServer);
}

}  // namespace weft::selftest
