// Our encoder, given the work of a captured side, sends the same octets; and our receiver takes
// what that side's peer sent.
#include <gtest/gtest.h>

#include "proto/startup.h"
#include "replay.h"

namespace weft::testing {
namespace {

using proto::Negotiated;
using proto::Startup;
using proto::StartupOffer;

// siw cuts these by segmentation offload or by the window: sizes vary within one connection.
bool cut_unevenly(const std::string& name) {
  return name == "gso_65536" || name.ends_with("_65536_mtu65536");
}

// What these carry is refused, by design.
bool ends_in_refusal(const std::string& name) {
  return name.starts_with("term_") || name == "sendinv_stag0";
}

std::vector<std::string> names_without(bool (*left_out)(const std::string&)) {
  std::vector<std::string> names = capture_names();
  std::erase_if(names, left_out);
  return names;
}

Negotiated outcome(const Decoded& decoded, int side) {
  Negotiated n;
  n.initiator = side == 0;
  n.crc = decoded.crc;
  ByteReader in(decoded.from[1].frame);
  const MpaFrame frame = *decode_mpa_frame(in, MpaKind::kReply);
  ByteReader data(frame.private_data);
  if (!frame.enhanced) return n;
  const EnhancedWords words = *decode_enhanced_words(data);
  if (words.peer_to_peer) n.rtr = words.rtr_read ? RtrKind::kRead : RtrKind::kWrite;
  return n;
}

class Sent : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Siw, Sent, ::testing::ValuesIn(names_without(cut_unevenly)),
                         [](const auto& test) { return test.param; });

TEST_P(Sent, SameWorkGivesTheSameOctets) {
  for (const auto& connection : read_pcap(capture_file(GetParam(), ".pcap"))) {
    const Decoded decoded = decode(connection, 100000);
    for (const int side : {0, 1}) {
      SCOPED_TRACE(side == 0 ? "played: the client" : "played: the server");
      Replay replay(decoded, side, outcome(decoded, side));
      replay.send_all();
      if (HasFatalFailure()) return;
    }
  }
}

class Received : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Siw, Received, ::testing::ValuesIn(names_without(ends_in_refusal)),
                         [](const auto& test) { return test.param; });

TEST_P(Received, EverythingThePeerSentIsTaken) {
  for (const auto& connection : read_pcap(capture_file(GetParam(), ".pcap"))) {
    const Decoded decoded = decode(connection, 100000);
    for (const int side : {0, 1}) {
      Replay replay(decoded, side, outcome(decoded, side));
      replay.send_all(!cut_unevenly(GetParam()));
      if (HasFatalFailure()) return;
      replay.receive_rest();
      Endpoint& end = replay.endpoint();
      EXPECT_FALSE(end.down.has_value());
      EXPECT_TRUE(end.violations.empty());
      EXPECT_EQ(end.stream().reads_outstanding(), 0U);
      end.stream().peer_closed();
      ASSERT_TRUE(end.down.has_value());
      EXPECT_EQ(end.down->how, proto::StreamEnd::kOrderly);
      for (const auto& done : end.sends) EXPECT_EQ(done.status, WcStatus::kSuccess);
    }
  }
}

// --- what is refused ---

struct Refusal {
  const char* name;
  Access access;
  std::uint32_t receive_bytes;
  TerminateCode ours;
};

class Refused : public ::testing::TestWithParam<Refusal> {};

constexpr Access kReadOnly = Access::kLocalWrite | Access::kRemoteRead;

INSTANTIATE_TEST_SUITE_P(
    Siw, Refused,
    ::testing::Values(Refusal{"term_write_badstag", Endpoint::kAll, 64, {1, 1, 0x00}},
                      Refusal{"term_write_badkey_multi", Endpoint::kAll, 64, {1, 1, 0x00}},
                      Refusal{"term_write_oob", Endpoint::kAll, 64, {1, 1, 0x01}},
                      Refusal{"term_write_noaccess", kReadOnly, 64, {1, 1, 0x00}},
                      Refusal{"term_write_wrap", Endpoint::kAll, 64, {1, 1, 0x03}},
                      // siw says 1/2/02 to a message that is too long
                      Refusal{"term_send_toolong", Endpoint::kAll, 16, {1, 2, 0x05}}),
    [](const auto& test) { return test.param.name; });

// Our server in place of siw's: its region, as its private data says, and the client's FPDUs.
TEST_P(Refused, OurServerRefusesWhatSiwRefuses) {
  const auto connections = read_pcap(capture_file(GetParam().name, ".pcap"));
  ASSERT_EQ(connections.size(), 1U);
  const Decoded decoded = decode(connections[0], 100000);
  const auto& reply = decoded.from[1].frame;
  const std::uint8_t* region = reply.data() + kMpaFrameSize + kEnhancedWordsSize;
  const Stag captured{load_be32(region)};
  const std::uint64_t base = load_be64(region + 4);
  const std::uint32_t size = load_be32(region + 12);

  Endpoint server({});
  const Stag ours = server.add_region(server.take(size), size, GetParam().access, base);
  for (std::uint64_t i = 0; i < 4; ++i) {
    server.post_recv(i, server.take(GetParam().receive_bytes), GetParam().receive_bytes);
  }
  proto::StreamParams p;
  p.crc = decoded.crc;
  p.ird = p.ord = 4;
  server.start(p);
  for (const Fpdu& fpdu : decoded.from[0].fpdus) {
    std::vector<std::uint8_t> wire = fpdu.wire;
    std::uint8_t* const stag = wire.data() + kFpduLengthSize + 2;
    if (peek_tagged(fpdu.ulpdu[0]) && load_be32(stag) == captured.value) {
      store_be32(stag, ours.value);
    }
    server.stream().feed(wire);
  }
  ASSERT_TRUE(server.down.has_value());
  EXPECT_EQ(server.down->how, proto::StreamEnd::kTerminated);
  EXPECT_FALSE(server.down->by_peer);
  EXPECT_EQ(server.down->code, GetParam().ours);
}

// siw's Terminate reaches the request it is about.
TEST_P(Refused, OurClientLearnsItFromSiwsTerminate) {
  const auto connections = read_pcap(capture_file(GetParam().name, ".pcap"));
  ASSERT_EQ(connections.size(), 1U);
  const Decoded decoded = decode(connections[0], 100000);
  Replay replay(decoded, 0, outcome(decoded, 0));
  replay.send_all();
  Endpoint& client = replay.endpoint();
  const Fpdu& terminate = decoded.from[1].fpdus.back();
  std::vector<std::uint8_t> wire = terminate.wire;
  client.stream().feed(wire);
  ASSERT_TRUE(client.down.has_value());
  EXPECT_EQ(client.down->how, proto::StreamEnd::kTerminated);
  EXPECT_TRUE(client.down->by_peer);
  ByteReader body(std::span(terminate.ulpdu).subspan(DdpUntagged::kSize));
  EXPECT_EQ(client.down->code, decode_terminate(body, false)->terminate.reason());
}

}  // namespace
}  // namespace weft::testing
