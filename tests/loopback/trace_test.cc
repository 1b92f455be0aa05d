// The tracer's pcap of our own traffic, read by Wireshark: nothing malformed, every CRC good.
#include <gtest/gtest.h>
#include <stdio.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "support/weft_side.h"

namespace weft::test {
namespace {

// What the command prints.
std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw Failure("cannot run " + command);
  char buffer[4096];
  for (std::size_t n = 0; (n = ::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  ::pclose(pipe);
  return out;
}

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

class Trace : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("tshark --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no tshark";
    path_ = std::filesystem::temp_directory_path() /
            ("weft-trace-" + std::to_string(::getpid()) + ".pcap");
  }
  void TearDown() override {
    if (!path_.empty()) std::filesystem::remove(path_);
  }
  // The payload is ours: guessing an upper protocol in it would only mislead. Nor does the port say
  // what it is: the kernel chooses it, and may take one that another protocol is known by.
  std::string tshark(const std::string& options) const {
    return output_of("tshark -r " + path_.string() +
                     " -o tcp.try_heuristic_first:TRUE --disable-protocol rpcordma" +
                     " --disable-protocol smb_direct " + options + " 2>/dev/null");
  }
  Config config(bool crc) const {
    Config c = plain_config();
    c.crc = crc;
    c.pcap = path_.string();
    return c;
  }
  std::filesystem::path path_;
};

// One of each operation, short and long; returns how many FPDUs went in both directions.
std::uint64_t traffic(const Config& config) {
  Pair pair(config);
  Memory memory(pair.host, 100000);
  Memory into(pair.host, 100000);
  memory.fill_pattern(1);
  std::uint64_t id = 0;
  for (const std::size_t size : {0U, 1U, 100U, 100000U}) {
    post_recv(*pair.b.qp, ++id, {into.sge()});
    post(*pair.a.qp, wr_send(id), {memory.sge(0, size)});
    take_success(*pair.b.recv_cq, id);
    take_success(*pair.a.send_cq, id);
    post(*pair.a.qp, wr_write(id, into.rkey(), into.to()), {memory.sge(0, size)});
    take_success(*pair.a.send_cq, id);
    post(*pair.b.qp, wr_read(id, memory.rkey(), memory.to()), {into.sge(0, size)});
    take_success(*pair.b.send_cq, id);
  }
  post(*pair.a.qp, wr_fetch_add(++id, memory.rkey(), memory.to(), 1), {into.sge(0, 8)});
  take_success(*pair.a.send_cq, id);
  post(*pair.a.qp, wr_cmp_swap(++id, memory.rkey(), memory.to(), 1, 2), {into.sge(0, 8)});
  take_success(*pair.a.send_cq, id);
  post_recv(*pair.b.qp, ++id);
  post(*pair.a.qp, wr_immediate(id, 5));
  take_success(*pair.b.recv_cq, id);
  take_success(*pair.a.send_cq, id);
  // A Terminate at the end.
  post(*pair.a.qp, wr_read(++id, memory.rkey() ^ 0x5a5a5a00U, 0), {into.sge(0, 8)});
  EXPECT_EQ(take(*pair.a.send_cq).status, WcStatus::kRemoteAccess);
  (void)next_event(*pair.a.events);
  (void)next_event(*pair.b.events);
  return pair.host.device->counters().tx_fpdus;
}

TEST_F(Trace, WiresharkFindsNothingMalformedAndEveryCrcGood) {
  const std::uint64_t fpdus = traffic(config(true));
  ASSERT_GT(std::filesystem::file_size(path_), 300000U);
  EXPECT_EQ(tshark("-Y _ws.malformed"), "");
  const std::string all = tshark("-V");
  EXPECT_EQ(count(all, "[Bad"), 0U);
  // Both ends of the connection are in this process: each FPDU may be traced once or twice.
  EXPECT_GE(count(all, "Good CRC32"), fpdus);
  for (const char* what : {"ID Req frame", "ID Rep frame", "Read Request", "Read Response",
                           "Terminate", "Write", "Send"}) {
    EXPECT_GE(count(all, what), 1U) << what;
  }
}

TEST_F(Trace, WiresharkReadsTrafficWithoutCrcToo) {
  (void)traffic(config(false));
  EXPECT_EQ(tshark("-Y _ws.malformed"), "");
  EXPECT_GE(count(tshark("-Y iwarp_ddp"), "\n"), 20U);
}

TEST_F(Trace, UnwritablePcapIsRefusedWithAnError) {
  Config bad = plain_config();
  bad.pcap = "/nonexistent-directory/file.pcap";
  EXPECT_FALSE(Device::open(bad));
}

}  // namespace
}  // namespace weft::test
