// Frames of MPA start-up, and either role brought to where it answers.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "proto/startup.h"
#include "wire_testing.h"

namespace weft::proto::startup_test {

using testing::Bytes;
using testing::hex;
using testing::operator+;
using testing::to_hex;

inline const Bytes kRequestKey = hex("4d504120494420526571204672616d65");
inline const Bytes kReplyKey = hex("4d504120494420526570204672616d65");

inline Bytes text(std::string_view s) { return {s.begin(), s.end()}; }
inline Bytes request(std::string_view rest) { return kRequestKey + hex(rest); }
inline Bytes reply(std::string_view rest) { return kReplyKey + hex(rest); }

inline Startup client(const StartupOffer& offer) {
  auto s = Startup::initiator(offer);
  EXPECT_TRUE(s.has_value());
  s->sent(s->to_send().size());
  EXPECT_EQ(s->state(), StartupState::kAwaitingReply);
  return *s;
}

inline Startup server_with(const Bytes& frame) {
  Startup s = Startup::responder();
  EXPECT_EQ(s.received(frame).value_or(0), frame.size());
  EXPECT_EQ(s.state(), StartupState::kRequestReady);
  return s;
}

// The Reply that `offer` draws to `frame`.
inline Bytes answer(const Bytes& frame, const StartupOffer& offer) {
  Startup s = server_with(frame);
  EXPECT_TRUE(s.accept(offer).has_value());
  const auto out = s.to_send();
  return {out.begin(), out.end()};
}

inline StartupFailure failure_of(const Bytes& frame) {
  Startup s = Startup::responder();
  const auto taken = s.received(frame);
  EXPECT_FALSE(taken.has_value());
  return s.failure();
}

inline StartupFailure failure_of_reply(const StartupOffer& offer, const Bytes& frame) {
  Startup s = client(offer);
  EXPECT_FALSE(s.received(frame).has_value());
  EXPECT_EQ(s.state(), StartupState::kFailed);
  EXPECT_TRUE(s.to_send().empty());
  return s.failure();
}

// The example pair of RFC 6581 set-up: CRC, peer-to-peer, both RTR kinds, 16 and 16.
inline StartupOffer ping_offer(const Bytes& data) {
  StartupOffer o;
  o.peer_to_peer = true;
  o.ird = o.ord = 16;
  o.private_data = data;
  return o;
}

}  // namespace weft::proto::startup_test
