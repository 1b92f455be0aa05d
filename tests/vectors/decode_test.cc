// Every captured stream reads as the decodes beside it say.
#include <gtest/gtest.h>

#include <algorithm>

#include "decode.h"

#include "proto/startup.h"
#include "wire/terminate.h"

namespace weft::testing {
namespace {

using proto::Startup;
using proto::StartupOffer;
using proto::StartupState;

class Captured : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Siw, Captured, ::testing::ValuesIn(capture_names()),
                         [](const auto& test) { return test.param; });

std::vector<std::string> only(const std::vector<std::string>& lines, char side) {
  std::vector<std::string> out;
  for (const std::string& line : lines) {
    if (line[0] == side) out.push_back(line);
  }
  return out;
}

TEST_P(Captured, ReadsAsTheDecodeSays) {
  const auto connections = read_pcap(capture_file(GetParam(), ".pcap"));
  const auto expected = read_decode(capture_file(GetParam(), ".fpdus.txt"));
  ASSERT_EQ(connections.size(), expected.size());
  for (std::size_t c = 0; c < connections.size(); ++c) {
    const std::size_t size =
        connections[c].from[0].bytes.size() + connections[c].from[1].bytes.size();
    const std::size_t smallest = size < 20000 ? 1 : 777;
    for (const std::size_t chunk : {smallest, std::size_t{1460}, std::size_t{100000}}) {
      const Decoded decoded = decode(connections[c], chunk);
      EXPECT_EQ(describe_direction(connections[c], decoded, 0), only(expected[c], '>'));
      EXPECT_EQ(describe_direction(connections[c], decoded, 1), only(expected[c], '<'));
      EXPECT_TRUE(decoded.from[0].at_border);
      EXPECT_TRUE(decoded.from[1].at_border);
    }
  }
}

// --- start-up ---

// What the sender of a frame must have wanted.
StartupOffer offer_of(const MpaFrame& frame) {
  StartupOffer o;
  o.crc = frame.crc;
  o.markers = frame.markers;
  o.revision = frame.revision;
  ByteReader data(frame.private_data);
  if (frame.enhanced) {
    const auto words = decode_enhanced_words(data);
    EXPECT_TRUE(words.has_value());
    o.peer_to_peer = words->peer_to_peer;
    if (words->peer_to_peer) {
      o.rtr_read = words->rtr_read;
      o.rtr_write = words->rtr_write;
    }
    o.ird = words->ird;
    o.ord = words->ord;
  }
  o.private_data = data.rest();
  return o;
}

// Our sending side never sets reserved bits; siw does with one option.
std::vector<std::uint8_t> without_reserved(std::vector<std::uint8_t> frame) {
  frame[16] &= 0xf0U;
  return frame;
}
std::vector<std::uint8_t> copy(std::span<const std::uint8_t> s) { return {s.begin(), s.end()}; }

TEST_P(Captured, StartUpGivesTheSameFrames) {
  for (const auto& connection : read_pcap(capture_file(GetParam(), ".pcap"))) {
    const Decoded decoded = decode(connection, 1460);
    const auto& request = decoded.from[0].frame;
    const auto& reply = decoded.from[1].frame;
    ByteReader in(request);
    auto initiator = Startup::initiator(offer_of(*decode_mpa_frame(in, MpaKind::kRequest)));
    ASSERT_TRUE(initiator);
    EXPECT_EQ(copy(initiator->to_send()), without_reserved(request));

    Startup responder = Startup::responder();
    ASSERT_EQ(responder.received(request).value_or(0), request.size());
    in = ByteReader(reply);
    const MpaFrame answer = *decode_mpa_frame(in, MpaKind::kReply);
    if (!answer.reject) {
      ASSERT_TRUE(responder.accept(offer_of(answer)));
      EXPECT_EQ(copy(responder.to_send()), without_reserved(reply));
    }

    initiator->sent(initiator->to_send().size());
    ASSERT_EQ(initiator->received(reply).value_or(0), reply.size());
    EXPECT_EQ(initiator->state(), answer.reject ? StartupState::kRejected : StartupState::kDone);
    EXPECT_EQ(copy(initiator->peer().private_data), copy(offer_of(answer).private_data));
    if (answer.reject) continue;
    EXPECT_EQ(initiator->result().crc, decoded.crc);
    EXPECT_EQ(responder.result().crc, decoded.crc);
    EXPECT_EQ(initiator->result().rtr, responder.result().rtr);
  }
}

// siw's application asked for an IRD of 3 and an ORD of 2, by the notes about this capture; siw
// itself raised the IRD to what the Request wants.
TEST(CapturedStartup, TheReplyToARequestThatWantsMoreIsAsSiwGaveIt) {
  const auto connections = read_pcap(capture_file("mpa_ird_ord", ".pcap"));
  ASSERT_EQ(connections.size(), 1U);
  const Decoded decoded = decode(connections[0], 1460);
  Startup responder = Startup::responder();
  ASSERT_TRUE(responder.received(decoded.from[0].frame));
  ByteReader in(decoded.from[1].frame);
  StartupOffer offer = offer_of(*decode_mpa_frame(in, MpaKind::kReply));
  EXPECT_GT(offer.ird, 3);
  offer.ord = 2;
  ASSERT_TRUE(responder.accept(offer));
  EXPECT_EQ(copy(responder.to_send()), decoded.from[1].frame);
}

TEST(CapturedStartup, ARejectArrivesWithItsData) {
  const auto connections = read_pcap(capture_file("reject_pdata", ".pcap"));
  ASSERT_EQ(connections.size(), 1U);
  const Decoded decoded = decode(connections[0], 1460);
  StartupOffer offer;
  offer.crc = false;
  auto initiator = Startup::initiator(offer);
  ASSERT_TRUE(initiator);
  initiator->sent(initiator->to_send().size());
  ASSERT_TRUE(initiator->received(decoded.from[1].frame));
  EXPECT_EQ(initiator->state(), StartupState::kRejected);
  EXPECT_EQ(copy(initiator->peer().private_data),
            (std::vector<std::uint8_t>{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}));
}

// --- Terminates ---

struct TerminateCase {
  const char* name;
  TerminateCode reason;
  std::uint16_t segment_length;  // siw: of the payload alone
};

class CapturedTerminate : public ::testing::TestWithParam<TerminateCase> {};

INSTANTIATE_TEST_SUITE_P(Siw, CapturedTerminate,
                         ::testing::Values(TerminateCase{"term_write_badstag", {1, 1, 0x00}, 64},
                                           TerminateCase{
                                               "term_write_badkey_multi", {1, 1, 0x00}, 1428},
                                           TerminateCase{"term_write_oob", {1, 1, 0x01}, 1428},
                                           TerminateCase{"term_write_noaccess", {1, 1, 0x00}, 64},
                                           TerminateCase{"term_write_wrap", {1, 0, 0x00}, 64},
                                           TerminateCase{"term_send_toolong", {1, 2, 0x02}, 17}),
                         [](const auto& test) { return test.param.name; });

TEST_P(CapturedTerminate, IsReadInTheLayoutOfItsSender) {
  const auto connections = read_pcap(capture_file(GetParam().name, ".pcap"));
  ASSERT_EQ(connections.size(), 1U);
  const Decoded decoded = decode(connections[0], 1460);
  ASSERT_EQ(decoded.from[1].fpdus.size(), 1U);
  ByteReader body(std::span(decoded.from[1].fpdus[0].ulpdu).subspan(DdpUntagged::kSize));
  const auto terminate = decode_terminate(body, false);
  ASSERT_TRUE(terminate);
  EXPECT_EQ(terminate->layout, TerminateLayout::kSiw);
  EXPECT_EQ(terminate->terminate.reason(), GetParam().reason);
  EXPECT_EQ(terminate->terminate.segment_length, GetParam().segment_length);
  // The header that offended is the last one that the client sent before.
  const auto& culprits = decoded.from[0].fpdus;
  const auto header = terminate->terminate.ddp_bytes();
  const bool found = std::any_of(culprits.begin(), culprits.end(), [&](const Fpdu& f) {
    return std::equal(header.begin(), header.end(), f.ulpdu.begin());
  });
  EXPECT_TRUE(found && !header.empty());
}

}  // namespace
}  // namespace weft::testing
