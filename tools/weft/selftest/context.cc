// Connections of the checks: start-up with good manners, and the operations on top.
#include <fmt/format.h>

#include <utility>

#include "weft/selftest/selftest_check.h"

namespace weft::selftest {
namespace {

using raw::Bytes;
using raw::operator+;
using raw::operator+=;

// Of the kinds that both sides want, the Write: it needs no answer.
void send_rtr(Session& s, std::uint16_t wanted) {
  const std::uint16_t both = s.reply.ord_word() & wanted;
  if ((both & raw::kRtrWrite) != 0) {
    s.link.send_fpdu(raw::write(1, 0, {}));
  } else if ((both & raw::kRtrRead) != 0) {
    s.expect_alive();
  } else {
    throw raw::Failure("the Reply agrees to none of the offered RTR kinds");
  }
}

raw::MpaFrame request_frame(const Profile& p, const Bytes& private_data) {
  raw::MpaFrame frame;
  frame.flags = static_cast<std::uint8_t>((p.crc ? raw::kC : 0) | (p.enhanced ? raw::kS : 0));
  frame.revision = p.revision;
  if (p.enhanced) {
    const int ird = p.ird | (p.peer_to_peer ? raw::kBitA : 0);
    const int ord = p.ord | (p.peer_to_peer ? raw::kRtrWrite | raw::kRtrRead : 0);
    frame.pd = raw::enhanced(static_cast<std::uint16_t>(ird), static_cast<std::uint16_t>(ord));
  }
  frame.pd += private_data;
  return frame;
}

bool wants_peer_to_peer(const raw::MpaFrame& frame) {
  return frame.has(raw::kS) && frame.pd.size() >= 4 && (frame.ird_word() & raw::kBitA) != 0;
}

}  // namespace

raw::Peer Context::dial() const {
  if (std::chrono::steady_clock::now() > give_up) throw raw::Failure("the check takes too long");
  raw::Peer link = raw::Peer::connect(address.get(), address.size(), patience);
  link.names_lines = false;
  return link;
}

raw::MpaFrame Context::exchange(raw::Peer& link, const Bytes& request) const {
  link.send(request);
  raw::MpaFrame reply = link.recv_mpa();
  if (reply.key != raw::reply_key()) throw raw::Failure("the Reply has a wrong key");
  return reply;
}

Bytes Context::request(const Bytes& private_data) const {
  const raw::MpaFrame frame = request_frame(profile, private_data);
  return raw::mpa_request(frame.flags, frame.revision, frame.pd);
}

Session Context::open(const Profile& p, const Bytes& private_data) const {
  raw::Peer link = dial();
  const raw::MpaFrame sent = request_frame(p, private_data);
  raw::MpaFrame reply = exchange(link, raw::mpa_request(sent.flags, sent.revision, sent.pd));
  return begin(std::move(link), sent, std::move(reply));
}

Session Context::begin(raw::Peer link, const raw::MpaFrame& sent, raw::MpaFrame reply) const {
  if (reply.has(raw::kR)) throw raw::Failure("the peer rejects the connection");
  if (reply.revision != sent.revision) {
    throw raw::Failure(fmt::format("Reply of revision {} to a Request of revision {}",
                                   reply.revision, sent.revision));
  }
  if (reply.has(raw::kS) != sent.has(raw::kS)) {
    throw raw::Failure(reply.has(raw::kS) ? "enhanced Reply to a plain Request"
                                          : "plain Reply to an enhanced Request");
  }
  Session s{.link = std::move(link), .reply = std::move(reply), .offer = {}};
  s.link.framing.crc = sent.has(raw::kC) || s.reply.has(raw::kC);
  s.link.framing.any_unused_crc = true;
  s.link.framing.any_pad = true;  // there is a check for it
  s.link.framing.markers_in = sent.has(raw::kM);
  s.link.framing.markers_out = s.reply.has(raw::kM);
  s.offer = decode_offer(s.reply.user_data());
  if (wants_peer_to_peer(sent) && wants_peer_to_peer(s.reply)) {
    send_rtr(s, sent.ord_word());
  } else {
    // A responder may not send before it has received an FPDU.
    s.link.send_fpdu(raw::write(1, 0, {}));
  }
  if (by_ring) s.link.move_to_ring();
  return s;
}

Reaction Context::reaction(Session& s) const {
  Reaction out;
  try {
    while (!out.terminate) {
      raw::Segment segment = s.link.recv_segment();
      if (segment.opcode == raw::kTerminate) {
        out.terminate = std::move(segment);
      } else {
        out.others.push_back(std::move(segment));
      }
    }
    out.end = s.link.drain();
  } catch (const raw::Cut&) {
    out.end = s.link.end();
  } catch (const raw::Failure&) {
    if (!out.terminate) throw;  // what a sender may not send
  }
  return out;
}

void Session::send(const Bytes& payload, raw::Opcode opcode, std::uint32_t stag) {
  link.send_fpdu(raw::ulpdu(
      raw::Untagged{.opcode = opcode, .msn = send_msn++, .payload = payload, .rsvd = stag}));
}

void Session::write(const Buffer& to, std::uint64_t offset, const Bytes& payload) {
  link.send_fpdu(raw::write(to.stag, to.to + offset, payload));
}

void Session::request_read(const Buffer& from, std::uint64_t offset, std::uint32_t size,
                           const Buffer& sink) {
  link.send_fpdu(raw::read_request(read_msn++, {.sink_stag = sink.stag,
                                                .sink_to = sink.to,
                                                .size = size,
                                                .src_stag = from.stag,
                                                .src_to = from.to + offset}));
}

Bytes Session::take_response(const Buffer& sink, std::uint32_t size) {
  Bytes out;
  for (bool last = false; !last;) {
    const raw::Segment s = link.recv_segment(raw::kReadResponse);
    if (s.stag != sink.stag || s.to != sink.to + out.size()) {
      throw raw::Failure(fmt::format("Read Response to STag {:08x} TO {:x}, not {:08x} {:x}",
                                     s.stag, s.to, sink.stag, sink.to + out.size()));
    }
    out += s.payload;
    last = s.last;
    if (out.size() > size || (last && out.size() != size)) {
      throw raw::Failure(
          fmt::format("Read Response of {} octets for a Read of {}", out.size(), size));
    }
  }
  return out;
}

Bytes Session::read(const Buffer& from, std::uint64_t offset, std::uint32_t size) {
  const Buffer sink{.stag = 0x51000000U + read_msn, .to = 0x1000};
  request_read(from, offset, size, sink);
  return take_response(sink, size);
}

void Session::expect_alive() {
  if (!read({.stag = 1, .to = 0}, 0, 0).empty()) throw raw::Failure("octets for a Read of nothing");
}

void Session::expect_open() {
  if (offer) {
    (void)ask({.kind = CommandKind::kStatus});
  } else if (reply.has(raw::kS)) {
    expect_alive();
  } else if (!link.quiet(raw::milliseconds(200))) {
    throw raw::Failure("the peer sends something or closes, though nothing is wrong");
  }
}

Bytes Session::take_message(std::optional<raw::Segment> first) {
  Bytes out;
  for (bool last = false; !last;) {
    const raw::Segment s = first ? *std::exchange(first, {}) : link.recv_segment();
    if (s.tagged || s.qn != 0) {
      throw raw::Failure(fmt::format("expected a Send, got opcode {}", s.opcode));
    }
    if (s.msn != peer_msn || s.mo != out.size()) {
      throw raw::Failure(
          fmt::format("Send with MSN {} MO {}, not {} {}", s.msn, s.mo, peer_msn, out.size()));
    }
    out += s.payload;
    last = s.last;
  }
  ++peer_msn;
  return out;
}

Report Session::take_report(std::optional<raw::Segment> first) {
  const std::optional<Report> report = decode_report(take_message(std::move(first)));
  if (!report) throw raw::Failure("the peer's application sent no Report");
  return *report;
}

void Session::tell(const Command& command) { send(encode(command)); }

Report Session::ask(const Command& command) {
  tell(command);
  return take_report();
}

}  // namespace weft::selftest
