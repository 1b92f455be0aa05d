// MPA start-up: RFC 5044 section 7.1. What the peer answers to Requests good and bad.
#include <fmt/format.h>

#include <thread>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::operator+;

// The depth words of the profile without peer-to-peer.
Bytes plain_words() { return raw::enhanced(16, 16); }

Verdict revision_is_echoed(Context& context, const Profile& profile) {
  Session s = context.open(profile);
  s.expect_open();
  return right();
}

Verdict crc_stays_off(Context& context) {
  raw::Peer link = context.dial();
  const Bytes request = raw::mpa_request(raw::kS, 2, plain_words());
  raw::MpaFrame reply = context.exchange(link, request);
  if (reply.has(raw::kR)) return noted("the peer rejects connections without CRC");
  if (reply.has(raw::kC)) return right("the peer insists on CRC");
  const raw::MpaFrame sent{.flags = raw::kS, .revision = 2, .pd = plain_words()};
  Session s = context.begin(std::move(link), sent, std::move(reply));
  s.link.framing.unused_crc = 0xdeadbeef;
  s.expect_alive();
  return right("no CRC, and its field is not looked at");
}

Verdict markers_are_sent(Context& context) {
  const auto flags = static_cast<std::uint8_t>(raw::kM | raw::kC | raw::kS);
  raw::Peer link = context.dial();
  raw::MpaFrame reply = context.exchange(link, raw::mpa_request(flags, 2, plain_words()));
  if (reply.has(raw::kR)) return wrong("the peer rejects a Request for markers");
  const raw::MpaFrame sent{.flags = flags, .revision = 2, .pd = plain_words()};
  Session s = context.begin(std::move(link), sent, std::move(reply));
  if (!s.offer) {
    for (int i = 0; i < 40; ++i) s.expect_alive();  // 20 octets each: past the second marker
    return right("markers at both of 2 places");
  }
  if (s.read(s.offer->region, 0, 5000) != raw::pattern(5000, kRegionSeed)) {
    return wrong("wrong content between the markers");
  }
  return right("markers at each place in 5000 octets");
}

Verdict private_data(Context& context, std::size_t size) {
  constexpr std::size_t kRdmaCm = 256;  // rdma_cm counts them with one octet, Linux to 256
  const Bytes data = raw::pattern(size, static_cast<unsigned>(size));
  const std::size_t words = context.profile.enhanced ? 4 : 0;
  try {
    Session s = context.open(data);
    s.expect_alive();
    if (!s.offer) return right("accepted");
    if (s.offer->private_bytes == size && s.offer->private_crc == raw::crc32c(data)) {
      return right("the application got them all");
    }
    const std::string got =
        fmt::format("the application got {} octets, or other ones", s.offer->private_bytes);
    return size + words <= kRdmaCm ? wrong(got) : noted(got);
  } catch (const raw::Failure& why) {
    if (size + words <= kRdmaCm) throw;
    return noted(fmt::format("not taken: {}", why.what()));
  }
}

Verdict too_much_private_data(Context& context) {
  raw::Peer link = context.dial();
  link.send(raw::mpa_request(raw::kC, 1, raw::zeros(513)));
  return expect_refused(link);
}

Verdict refuses(Context& context, const Bytes& request) {
  raw::Peer link = context.dial();
  link.send(request);
  return expect_refused(link);
}

Verdict rejects_as_told(Context& context, std::size_t size) {
  raw::Peer link = context.dial();
  const Bytes wish = encode(Wish{WishKind::kReject, static_cast<std::uint16_t>(size)});
  const raw::MpaFrame reply = context.exchange(link, context.request(wish));
  if (!reply.has(raw::kR)) return wrong("no R in the Reply");
  if (reply.revision != context.profile.revision) return wrong("another revision in the Reply");
  if (reply.user_data() != raw::pattern(size, kSentSeed)) {
    return wrong("other private data than the application gave");
  }
  const raw::End end = link.drain();
  return right(fmt::format("rejected, then {}", raw::to_string(end)));
}

Verdict split_request(Context& context) {
  const raw::MpaFrame sent{.flags = raw::kC | raw::kS, .revision = 2, .pd = plain_words()};
  raw::Peer link = context.dial();
  for (const std::uint8_t octet : raw::mpa_request(sent.flags, 2, sent.pd)) {
    link.send(raw::View(&octet, 1));
    std::this_thread::sleep_for(raw::milliseconds(2));
  }
  raw::MpaFrame reply = link.recv_mpa();
  context.begin(std::move(link), sent, std::move(reply)).expect_open();
  return right();
}

Verdict surplus_behind_request(Context& context) {
  raw::Peer link = context.dial();
  link.send(raw::mpa_request(raw::kC | raw::kS, 2, plain_words()) +
            raw::Peer().frame(raw::write(1, 0, {})));
  try {
    const raw::MpaFrame reply = link.recv_mpa();
    return noted(reply.has(raw::kR) ? "rejected" : "accepted: the octets are kept for later");
  } catch (const raw::Cut&) {
    if (link.end() == raw::End::kOpen) throw;
    return right(fmt::format("not taken: {}", raw::to_string(link.end())));
  }
}

// How long a peer waits is its own choice: reported, and only too long for this tool is not.
Verdict silence(Context& context, const Bytes& first) {
  raw::Peer link = context.dial();
  if (!first.empty()) link.send(first);
  link.patience = raw::milliseconds(2 * context.patience.count() + 2000);
  try {
    link.expect_closed();
  } catch (const raw::Failure&) {
    if (link.end() != raw::End::kOpen) return wrong("octets in answer to nothing");
    return noted(fmt::format("still open after {} ms", link.patience.count()));
  }
  return right(raw::to_string(link.end()));
}

Verdict responder_waits(Context& context) {
  raw::Peer link = context.dial();
  const raw::MpaFrame reply =
      context.exchange(link, raw::mpa_request(raw::kC | raw::kS, 2, plain_words()));
  if (reply.has(raw::kR)) return skipped("the peer rejects what is not peer-to-peer");
  return link.quiet(raw::milliseconds(300))
             ? right()
             : wrong("octets behind the Reply before our first FPDU");
}

Verdict survives(Context& context, const std::function<void(raw::Peer&)>& mischief) {
  for (int i = 0; i < 10; ++i) {
    raw::Peer link = context.dial();
    mischief(link);
    link.reset();
  }
  context.open().expect_alive();
  return right("10 times, and the next one is served");
}

Verdict many_at_once(Context& context) {
  constexpr std::size_t kCount = 16;
  std::vector<Session> sessions;
  for (std::size_t i = 0; i < kCount; ++i) sessions.push_back(context.open());
  for (Session& s : sessions) s.expect_alive();
  return right(fmt::format("{} connections", kCount));
}

void add_forms(Checks& checks) {
  const auto add = [&checks](const char* id, const char* rfc, const char* title, const Profile& p) {
    checks.push_back({id, rfc, title, Needs::kNothing, false, false,
                      [p](Context& c) { return revision_is_echoed(c, p); }});
  };
  add("startup.rev2", "6581 10", "an enhanced Request gets an enhanced Reply",
      {.revision = 2, .enhanced = true, .peer_to_peer = false});
  add("startup.rev2-plain", "6581 10", "revision 2 without S gets a plain Reply",
      {.revision = 2, .enhanced = false, .peer_to_peer = false});
  add("startup.rev1", "6581 10", "a Request of revision 1 gets a Reply of revision 1",
      {.revision = 1, .enhanced = false, .peer_to_peer = false});
  checks.push_back({"startup.crc-off", "5044 4.4",
                    "without CRC on either side its field is ignored", Needs::kNothing, false,
                    false, crc_stays_off});
  checks.push_back({"startup.markers", "5044 4.3", "a peer that asks for markers gets them",
                    Needs::kNothing, false, false, markers_are_sent});
  checks.push_back({"startup.waits", "5044 7.1.2",
                    "a responder says nothing before the first FPDU has come", Needs::kNothing,
                    false, false, responder_waits});
  checks.push_back({"startup.octet-by-octet", "5044 7.1", "a Request may come in any pieces",
                    Needs::kNothing, false, false, split_request});
  checks.push_back({"startup.surplus", "5044 7.1.2",
                    "octets directly behind a Request break the rule of the start", Needs::kNothing,
                    false, false, surplus_behind_request});
}

void add_private_data(Checks& checks) {
  for (const std::size_t size : {0U, 1U, 56U, 196U, 251U, 508U}) {
    checks.push_back({fmt::format("startup.private-{}", size), "5044 7.1.1",
                      fmt::format("{} octets of private data are taken", size), Needs::kNothing,
                      false, false, [size](Context& c) { return private_data(c, size); }});
  }
  checks.push_back({"startup.private-513", "5044 7.1.1", "PD_Length above 512 is refused",
                    Needs::kNothing, false, false, too_much_private_data});
  for (const std::size_t size : {0U, 1U, 196U}) {
    checks.push_back({fmt::format("startup.reject-{}", size), "5044 7.1.1",
                      fmt::format("a reject carries {} octets of private data", size),
                      Needs::kServer, false, false,
                      [size](Context& c) { return rejects_as_told(c, size); }});
  }
}

void add_bad_requests(Checks& checks) {
  const auto add = [&checks](const char* id, const char* rfc, const char* title, Bytes request) {
    checks.push_back({id, rfc, title, Needs::kNothing, false, false,
                      [request = std::move(request)](Context& c) { return refuses(c, request); }});
  };
  Bytes key = raw::mpa_request(raw::kC, 1);
  key[3] ^= 0x20;
  add("startup.bad-key", "5044 7.1.1", "a wrong key is refused", key);
  add("startup.two-initiators", "5044 7.1.2", "a Reply in place of a Request is refused",
      raw::mpa_reply(raw::kC, 1));
  add("startup.unknown-revision", "5044 7.1.1", "revision 99 is refused",
      raw::mpa_request(raw::kC, 99));
  add("startup.enhanced-short", "6581 9", "S with fewer than 4 octets of private data is refused",
      raw::mpa_request(raw::kC | raw::kS, 2, raw::zeros(3)));
  add("startup.enhanced-empty", "6581 9", "S without private data is refused",
      raw::mpa_request(raw::kC | raw::kS, 2));
  checks.push_back({"startup.silence", "5044 7.1.2", "a peer that never says anything is closed",
                    Needs::kNothing, false, false, [](Context& c) { return silence(c, {}); }});
  checks.push_back({"startup.half-request", "5044 7.1.2", "half a Request and silence is closed",
                    Needs::kNothing, false, false, [](Context& c) {
                      const Bytes whole = c.request();
                      return silence(c, Bytes(whole.begin(), whole.begin() + 10));
                    }});
}

}  // namespace

void add_startup_checks(Checks& checks) {
  add_forms(checks);
  add_private_data(checks);
  add_bad_requests(checks);
  checks.push_back({"startup.reset-early", "5044 7.1",
                    "peers that vanish before their Request do no harm", Needs::kNothing, false,
                    true, [](Context& c) { return survives(c, [](raw::Peer&) {}); }});
  checks.push_back({"startup.reset-amid", "5044 7.1",
                    "peers that vanish inside their Request do no harm", Needs::kNothing, false,
                    true, [](Context& c) {
                      return survives(c, [](raw::Peer& link) { link.send(raw::request_key()); });
                    }});
  checks.push_back({"startup.reset-after-reply", "6581 6",
                    "peers that vanish before the RTR they promised do no harm", Needs::kNothing,
                    false, true, [](Context& c) {
                      return survives(
                          c, [&c](raw::Peer& link) { (void)c.exchange(link, c.request()); });
                    }});
  checks.push_back({"startup.sixteen", "5044 7.1", "16 connections at once", Needs::kServer, false,
                    false, many_at_once});
}

}  // namespace weft::selftest
