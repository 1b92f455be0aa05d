// The raw peer itself against bytes worked out by hand: RFC examples, and FPDUs that two other CRC
// implementations and Wireshark agree on. If these fail, believe no other conformance test.
#include <gtest/gtest.h>

#include "raw_peer.h"

namespace {

using raw::Bytes;
using raw::hex;
using raw::operator+;
using raw::operator+=;

// An FPDU as the first of its stream, CRC on, no markers.
Bytes first_fpdu(const Bytes& ulpdu) { return raw::Peer().frame(ulpdu); }

Bytes crc_field(const Bytes& covered) {
  const std::uint32_t crc = raw::crc32c(covered);
  Bytes out;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    out.push_back(static_cast<std::uint8_t>(crc >> shift));
  }
  return out;
}

TEST(RawPeer, ComputesTheCrcExamplesOfRfc3720) {
  Bytes up;
  Bytes down;
  for (std::uint8_t i = 0; i < 32; ++i) {
    up.push_back(i);
    down.push_back(static_cast<std::uint8_t>(31 - i));
  }
  EXPECT_EQ(crc_field(raw::text("123456789")), hex("839206e3"));
  EXPECT_EQ(crc_field(raw::zeros(32)), hex("aa36918a"));
  EXPECT_EQ(crc_field(Bytes(32, 0xff)), hex("43aba862"));
  EXPECT_EQ(crc_field(up), hex("4e79dd46"));
  EXPECT_EQ(crc_field(down), hex("5cdb3f11"));
}

TEST(RawPeer, BuildsStartUpFramesOctetForOctet) {
  EXPECT_EQ(raw::mpa_request(raw::kC, 1), hex("4d504120494420526571204672616d65 40 01 0000"));
  EXPECT_EQ(raw::mpa_request(raw::kC | raw::kS, 2,
                             raw::enhanced(raw::kBitA | 16, raw::kRtrWrite | raw::kRtrRead | 16) +
                                 raw::text("ping")),
            hex("4d504120494420526571204672616d65 50 02 0008 8010 c010 70696e67"));
  EXPECT_EQ(raw::mpa_reply(raw::kC | raw::kS, 2,
                           raw::enhanced(raw::kBitA | 16, raw::kRtrRead | 8) + raw::text("pong")),
            hex("4d504120494420526570204672616d65 50 02 0008 8010 4008 706f6e67"));
}

TEST(RawPeer, BuildsFpdusOctetForOctet) {
  EXPECT_EQ(first_fpdu(raw::send(1, raw::text("hello"))),
            hex("0017 41 43 00000000 00000000 00000001 00000000 68656c6c6f 000000 b990b10c"));
  EXPECT_EQ(first_fpdu(raw::write(0x01020304, 0x1000, raw::text("RDMA-Write"))),
            hex("0018 c1 40 01020304 0000000000001000 52444d412d5772697465 0000 bb340e93"));
  EXPECT_EQ(first_fpdu(raw::read_request(1, {.size = 8, .src_stag = 0x22222222, .src_to = 0x3000})),
            hex("002e 41 41 00000000 00000001 00000001 00000000 11111111 0000000000002000 00000008"
                "22222222 0000000000003000 4acebf6e"));
  EXPECT_EQ(first_fpdu(raw::immediate(3, 0x0011223344556677, true)),
            hex("001a 41 49 00000000 00000000 00000003 00000000 0011223344556677 fb315de6"));
  EXPECT_EQ(first_fpdu(raw::read_response(0x11111111, 0x2000, raw::text("12345678"))),
            hex("0016 c1 42 11111111 0000000000002000 3132333435363738 064e10cb"));
  EXPECT_EQ(first_fpdu(raw::atomic_response(1, 0x77, 41)),
            hex("001e 41 4b 00000000 00000003 00000001 00000000 00000077 0000000000000029"
                "556671a6"));
}

TEST(RawPeer, BuildsAtomicRequestsOctetForOctet) {
  EXPECT_EQ(first_fpdu(raw::atomic_request(
                2, {.request_id = 0x77, .stag = 0x22222222, .to = 0x3000, .data = 1})),
            hex("0046 41 4a 00000000 00000001 00000002 00000000 00000000 00000077 22222222"
                "0000000000003000 0000000000000001 0000000000000000 0000000000000000"
                "ffffffffffffffff d6b50c98"));
  EXPECT_EQ(first_fpdu(raw::atomic_request(3, {.op = 2,
                                               .request_id = 0x78,
                                               .stag = 0x22222222,
                                               .to = 0x3008,
                                               .data = 0xaaaa,
                                               .mask = ~0ULL,
                                               .compare = 0x5555})),
            hex("0046 41 4a 00000000 00000001 00000003 00000000 00000002 00000078 22222222"
                "0000000000003008 000000000000aaaa ffffffffffffffff 0000000000005555"
                "ffffffffffffffff 6e4daba7"));
}

TEST(RawPeer, BuildsTerminatesOctetForOctet) {
  using raw::Attach;
  const Bytes write = raw::write(0x01020304, 0x1000, raw::zeros(10));
  const Bytes send = raw::send(1, raw::zeros(5));
  EXPECT_EQ(first_fpdu(raw::terminate({1, 1, 1}, Attach::kDdp, write)),
            hex("0026 41 47 00000000 00000002 00000001 00000000 11 01 c0 00 0018 c140 01020304"
                "0000000000001000 d2a5dba5"));
  EXPECT_EQ(first_fpdu(raw::terminate({1, 2, 2}, Attach::kDdp, send)),
            hex("002a 41 47 00000000 00000002 00000001 00000000 12 02 c0 00 0017 4143 00000000"
                "00000000 00000001 00000000 9b27256c"));
  EXPECT_EQ(first_fpdu(raw::terminate(
                {0, 1, 0}, Attach::kDdpAndRead,
                raw::read_request(1, {.size = 8, .src_stag = 0x22222222, .src_to = 0x3000}))),
            hex("0046 41 47 00000000 00000002 00000001 00000000 01 00 e0 00 002e 4141 00000000"
                "00000001 00000001 00000000 11111111 0000000000002000 00000008 22222222"
                "0000000000003000 b3df3277"));
  EXPECT_EQ(first_fpdu(raw::terminate({2, 0, 2})),
            hex("0016 41 47 00000000 00000002 00000001 00000000 20 02 00 00 7fe42585"));
}

TEST(RawPeer, BuildsTerminatesInTheLayoutOfLinuxSiw) {
  using raw::Attach;
  using raw::Layout;
  EXPECT_EQ(
      first_fpdu(raw::terminate({1, 1, 1}, Attach::kDdp,
                                raw::write(0x01020304, 0x1000, raw::zeros(10)), Layout::kSiw)),
      hex("0026 4147 00000000 00000002 00000001 00000000 11 01 03 00 000a c140 01020304"
          "0000000000001000 1ffb8b66"));
  EXPECT_EQ(first_fpdu(
                raw::terminate({1, 2, 2}, Attach::kDdp, raw::send(1, raw::zeros(5)), Layout::kSiw)),
            hex("002a 4147 00000000 00000002 00000001 00000000 21 02 03 00 0005 4143 00000000"
                "00000000 00000001 00000000 c5d505cb"));
  EXPECT_EQ(first_fpdu(raw::terminate({2, 0, 2}, Attach::kNothing, {}, Layout::kSiw)),
            hex("0016 4147 00000000 00000002 00000001 00000000 02 02 00 00 75d367ed"));
}

// A stream with markers: the Sends of these payload sizes, one after the other.
Bytes marked_stream(const std::vector<Bytes>& payloads, std::size_t* last_at) {
  raw::Peer peer;
  peer.framing.markers_out = true;
  Bytes all;
  std::uint32_t msn = 1;
  for (const Bytes& payload : payloads) {
    *last_at = all.size();
    all += peer.frame(raw::send(msn++, payload));
  }
  return all;
}

TEST(RawPeer, PutsMarkersWhereTheWorkedExamplesHaveThem) {
  struct Example {
    std::vector<Bytes> payloads;
    std::size_t at;
    const char* last_fpdu;
  };
  const Bytes hello = raw::text("hello");
  const std::string nothing(48, '0');
  const std::string line1 =
      "00000000 002a 4143 00000000 00000000 00000001 00000000" + nothing + "52239983";
  const std::string line2 =
      "002a 4143 00000000 00000000 00000002 00000000 00000014" + nothing + "84925898";
  const Example examples[] = {
      {{raw::zeros(24)}, 0, line1.c_str()},
      {{raw::zeros(464), raw::zeros(24)}, 492, line2.c_str()},
      {{raw::zeros(480), hello},
       508,
       "0017 4143 00000004 00000000 00000000 00000002 00000000 68656c6c6f 000000 57cd95ee"},
      {{raw::zeros(456), hello},
       484,
       "0017 4143 00000000 00000000 00000002 00000000 68656c6c6f 000000 0000001c 5a375eac"},
      {{raw::zeros(24), raw::zeros(436), hello},
       512,
       "00000000 0017 4143 00000000 00000000 00000003 00000000 68656c6c6f 000000 b0114d10"},
  };
  for (const Example& e : examples) {
    std::size_t at = 0;
    const Bytes all = marked_stream(e.payloads, &at);
    EXPECT_EQ(at, e.at);
    EXPECT_EQ(Bytes(all.begin() + static_cast<std::ptrdiff_t>(at), all.end()), hex(e.last_fpdu));
  }
}

}  // namespace
