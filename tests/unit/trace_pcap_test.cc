#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "trace/pcap.h"
#include "wire/fpdu.h"
#include "wire/mpa_startup.h"

namespace weft::trace {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes mpa_frame(bool reply, bool markers) {
  MpaFrame frame;
  frame.is_reply = reply;
  frame.markers = markers;
  frame.crc = true;
  frame.revision = 1;
  Bytes out(frame.encoded_size());
  ByteWriter writer(out);
  encode(frame, writer);
  return out;
}

// A Send of `payload` octets as the stream's next FPDU, without markers.
Bytes send_fpdu(std::uint32_t msn, std::size_t payload) {
  const auto ulpdu = static_cast<std::uint16_t>(kDdpUntaggedSize + payload);
  Bytes out(fpdu_size(ulpdu));
  store_be16(out.data(), ulpdu);
  out[2] = 0x41;
  out[3] = 0x43;
  store_be32(out.data() + 12, msn);
  const std::size_t covered = fpdu_covered(ulpdu);
  store_crc(out.data() + covered, crc32c(std::span(out).first(covered)));
  return out;
}

class PcapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "weft-pcap-test." + std::to_string(getpid());
    tracer_ = std::move(*Tracer::open(path_));
  }
  void TearDown() override { unlink(path_.c_str()); }

  // Sizes of the TCP payloads in the file, in order, without empty ones.
  std::vector<std::size_t> payloads() const {
    std::ifstream in(path_, std::ios::binary);
    const Bytes file{std::istreambuf_iterator<char>(in), {}};
    std::vector<std::size_t> out;
    std::size_t at = 24;
    while (at + 16 <= file.size()) {
      std::uint32_t length = 0;
      std::memcpy(&length, file.data() + at + 8, 4);
      const std::uint8_t* ip = file.data() + at + 16;
      const std::size_t ip_size = ip[0] == 0x45 ? 20 : 40;
      const std::size_t tcp_size = static_cast<std::size_t>(ip[ip_size + 12] >> 4U) * 4;
      if (length > ip_size + tcp_size) out.push_back(length - ip_size - tcp_size);
      at += 16 + length;
    }
    EXPECT_EQ(at, file.size());
    return out;
  }
  std::string tshark(const std::string& options) const {
    const std::string command = "tshark -r " + path_ +
                                " --disable-protocol rpcordma --disable-protocol smb_direct " +
                                options + " 2>/dev/null";
    FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    char buffer[4096];
    for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
    pclose(pipe);
    return out;
  }
  std::string path_;
  std::unique_ptr<Tracer> tracer_;
};

SocketAddress address(const char* text) { return *SocketAddress::parse(text); }

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// Feeds a stream in pieces of a size that fits nothing.
void feed_rx(Trace& trace, const Bytes& stream, std::size_t piece) {
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    trace.rx(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
  }
}

TEST_F(PcapTest, PacketsEndWhereFpdusEndHoweverTheOctetsCome) {
  const Bytes request = mpa_frame(false, false);
  const Bytes reply = mpa_frame(true, false);
  const Bytes fpdu = send_fpdu(1, 1000);
  for (const std::size_t piece : {1U, 7U, 1500U}) {
    tracer_.reset();
    SetUp();
    {
      const auto trace =
          tracer_->start(address("192.0.2.1:1000"), address("192.0.2.2:2000"), false);
      feed_rx(*trace, request, piece);
      trace->tx(reply);
      Bytes stream = fpdu;
      stream.insert(stream.end(), fpdu.begin(), fpdu.end());
      feed_rx(*trace, stream, piece);
    }
    std::size_t total = 0;
    for (const std::size_t size : payloads()) {
      EXPECT_TRUE(size == 20 || size % fpdu.size() == 0) << size;
      total += size;
    }
    EXPECT_EQ(total, 40 + 2 * fpdu.size());
  }
}

TEST_F(PcapTest, BatchLargerThanAPacketIsCutBetweenFpdus) {
  Bytes batch;
  const Bytes fpdu = send_fpdu(1, 16000);
  for (int i = 0; i < 20; ++i) batch.insert(batch.end(), fpdu.begin(), fpdu.end());
  {
    const auto trace = tracer_->start(address("192.0.2.1:1000"), address("192.0.2.2:2000"), true);
    trace->tx(mpa_frame(false, false));
    trace->rx(mpa_frame(true, false));
    // As a transport does: several slices, of which it took only a part.
    Slice slices[2] = {{batch.data(), 100}, {batch.data() + 100, batch.size() - 100}};
    trace->tx(slices, batch.size() - 5);
    trace->tx(std::span(batch).last(5));
  }
  const auto sizes = payloads();
  ASSERT_GT(sizes.size(), 2U);
  for (std::size_t i = 2; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i] % fpdu.size(), 0U);
    EXPECT_LE(sizes[i], 65000U);
  }
}

TEST_F(PcapTest, WithMarkersEachFpduIsAPacketOfItsOwn) {
  const Bytes fpdu = send_fpdu(1, 100);
  Bytes batch(4);  // the first marker
  for (int i = 0; i < 2; ++i) batch.insert(batch.end(), fpdu.begin(), fpdu.end());
  {
    const auto trace = tracer_->start(address("192.0.2.1:1000"), address("192.0.2.2:2000"), true);
    trace->tx(mpa_frame(false, false));
    trace->rx(mpa_frame(true, true));
    trace->tx(batch);
  }
  EXPECT_EQ(payloads(), (std::vector<std::size_t>{20, 20, 4 + fpdu.size(), fpdu.size()}));
}

TEST_F(PcapTest, FpdusOfARingGetTheCrcThatTheyWouldHaveHad) {
  const Bytes fpdu = send_fpdu(1, 1000);
  Bytes bare = fpdu;
  std::fill(bare.end() - kCrcSize, bare.end(), std::uint8_t{0});
  {
    const auto trace = tracer_->start(address("127.0.0.1:1000"), address("127.0.0.1:2000"), true);
    trace->tx(mpa_frame(false, false));
    trace->rx(mpa_frame(true, false));
    trace->tx(fpdu);
    trace->by_ring(true, false);
    trace->tx(bare);
  }
  std::ifstream in(path_, std::ios::binary);
  const Bytes file{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(payloads(), (std::vector<std::size_t>{20, 20, fpdu.size(), fpdu.size()}));
  EXPECT_TRUE(std::equal(fpdu.rbegin(), fpdu.rend(), file.rbegin()));
}

TEST_F(PcapTest, WhatIsIncompleteAtTheEndIsWrittenToo) {
  const Bytes fpdu = send_fpdu(1, 100);
  {
    const auto trace = tracer_->start(address("[::1]:1000"), address("[::1]:2000"), true);
    trace->tx(mpa_frame(false, false));
    trace->rx(mpa_frame(true, false));
    trace->tx(std::span(fpdu).first(50));
    trace->tx_fin();
  }
  EXPECT_EQ(payloads(), (std::vector<std::size_t>{20, 20, 50}));
}

TEST_F(PcapTest, StreamThatIsNotMpaIsWrittenAsItComes) {
  {
    const auto trace = tracer_->start(address("192.0.2.1:1"), address("192.0.2.2:2"), true);
    const Bytes noise(300, 0x5a);
    trace->rx(noise);
    trace->rx(noise);
  }
  EXPECT_EQ(payloads(), (std::vector<std::size_t>{300, 300}));
}

TEST_F(PcapTest, ConnectionOfTwoEndsInThisProcessIsWrittenOnce) {
  const auto a = address("127.0.0.1:1");
  const auto b = address("127.0.0.1:2");
  {
    const auto active = tracer_->start(a, b, true);
    const auto passive = tracer_->start(b, a, false);
    active->tx(mpa_frame(false, false));
    passive->rx(mpa_frame(false, false));
    passive->tx(mpa_frame(true, false));
    active->rx(mpa_frame(true, false));
  }
  EXPECT_EQ(payloads().size(), 2U);
}

TEST_F(PcapTest, WiresharkDecodesBothAddressFamiliesWithGoodChecksums) {
  if (std::system("tshark --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no tshark";
  for (const auto& [local, peer] : {std::pair{"192.0.2.1:18515", "192.0.2.2:40000"},
                                    {"[2001:db8::1]:18515", "[2001:db8::2]:40001"}}) {
    const auto trace = tracer_->start(address(local), address(peer), false);
    trace->rx(mpa_frame(false, false));
    trace->tx(mpa_frame(true, false));
    for (std::uint32_t msn = 1; msn <= 5; ++msn) trace->rx(send_fpdu(msn, 100 * msn + msn % 4));
    trace->tx(send_fpdu(1, 3));
    trace->rx_fin();
    trace->tx_fin();
  }
  const std::string checks = "-o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE ";
  EXPECT_EQ(
      tshark(checks + "-Y '_ws.malformed || tcp.checksum.status == 0 || tcp.analysis.flags || "
                      "ip.checksum.status == 0'"),
      "");
  EXPECT_EQ(lines(tshark("-Y iwarp_mpa.req")), 2U);
  EXPECT_EQ(lines(tshark("-Y iwarp_mpa.rep")), 2U);
  EXPECT_EQ(lines(tshark("-Y 'iwarp_rdma.opcode == 3' -T fields -e iwarp_mpa.ulpdulength")), 12U);
}

TEST_F(PcapTest, FileIsReadableByItsOwnerAlone) {
  struct stat found {};
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST_F(PcapTest, SymbolicLinkIsNotFollowed) {
  const std::string link = path_ + ".link", target = path_ + ".target";
  ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
  EXPECT_FALSE(Tracer::open(link));
  EXPECT_NE(access(target.c_str(), F_OK), 0) << "written through the link";
  unlink(link.c_str());
  unlink(target.c_str());
}

TEST(Pcap, FileThatCannotBeWrittenIsAnError) {
  const auto tracer = Tracer::open("/nonexistent/folder/x.pcap");
  ASSERT_FALSE(tracer);
  EXPECT_EQ(tracer.error(), Error::kSystem);
}

}  // namespace
}  // namespace weft::trace
