// MPA start-up in both roles: any octets, in any pieces.
//
// Octet 0: bit 0 responder, bit 1 our revision is 1, bit 2 peer-to-peer, bit 3 reject; octet 1: how
// many octets come at once. The rest is what the peer sends.
#include "proto/startup.h"

#include <algorithm>

#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

using proto::Startup;
using proto::StartupFailure;
using proto::StartupOffer;
using proto::StartupState;

StartupOffer offer_of(std::uint8_t options) {
  StartupOffer o;
  o.revision = (options & 2U) != 0 ? 1 : 2;
  o.peer_to_peer = o.revision == 2 && (options & 4U) != 0;
  o.ird = 4;
  o.ord = 5;
  return o;
}

// Whatever our frame is, the decoder of the other side takes it.
void check_sendable(const Startup& s) {
  ByteReader in(s.to_send());
  const auto frame = decode_mpa_frame(in, s.is_initiator() ? MpaKind::kRequest : MpaKind::kReply);
  check(frame.has_value() && in.empty());
}

void check_done(const Startup& s, const StartupOffer& offer) {
  const proto::Negotiated& n = s.result();
  const proto::StartupPeer peer = s.peer();
  check(n.crc == (offer.crc || peer.crc));
  check(n.tx_markers == peer.markers);
  check(n.initiator || n.ird >= 1);
  check(n.ird <= std::max<std::uint16_t>(offer.ird, 1));
  check(n.ord <= std::max<std::uint16_t>(offer.ord, 1));
  check(n.rtr == RtrKind::kNone || n.peer_to_peer);
  check(!n.startup_failure || n.initiator);
  if (peer.enhanced && peer.ird != kIrdOrdNotNegotiated && n.rtr != RtrKind::kRead) {
    check(n.ord <= peer.ird);
  }
  check(peer.private_data.size() <= kMaxPrivateData);
}

void run(std::span<const std::uint8_t> input) {
  const StartupOffer offer = offer_of(input[0]);
  const std::size_t piece = input[1] == 0 ? 600 : input[1];
  Startup s = (input[0] & 1U) != 0 ? Startup::responder() : *Startup::initiator(offer);
  if (s.is_initiator()) {
    check_sendable(s);
    s.sent(s.to_send().size());
  }
  std::span<const std::uint8_t> rest = input.subspan(2);
  while (!rest.empty()) {
    const std::size_t n = std::min(piece, rest.size());
    const std::size_t missing = s.missing();
    const auto taken = s.received(rest.first(n));
    if (!taken) {
      check(s.failure() != StartupFailure::kNone);
      break;
    }
    check(*taken <= n);
    check(missing == 0 || *taken >= std::min(n, missing));
    rest = rest.subspan(*taken);
    if (*taken == 0) break;
  }
  if (s.state() == StartupState::kRequestReady) {
    const bool no = (input[0] & 8U) != 0;
    check((no ? s.reject({}) : s.accept(offer)).has_value());
    check_sendable(s);
  } else if (!s.to_send().empty()) {
    check_sendable(s);  // the answer to revision 0
  }
  while (!s.to_send().empty()) s.sent(1);
  if (s.state() == StartupState::kDone) check_done(s, offer);
  check(!is_sending(s.state()));
  s.peer_closed();
}

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 2) weft::fuzzing::run({data, size});
  return 0;
}
