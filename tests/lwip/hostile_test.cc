// A peer that speaks TCP and says what it likes, to an endpoint over lwIP: FPDUs of every kind with
// wrong fields, cut anywhere, in segments of any size. The endpoint ends the connection or goes on,
// and the next caller is served. A sanitizer sees what is touched or kept beyond that.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <lwip/tcp.h>
#include "base/bytes.h"
#include "base/crc32c.h"
#include "pair.h"
#include "wire/fpdu.h"
#include "wire/mpa_startup.h"

namespace weft::testing {
namespace {

using Octets = std::vector<std::uint8_t>;

class Peer {
 public:
  explicit Peer(const Pair& pair) : pcb_(tcp_new()) {
    tcp_arg(pcb_, this);
    tcp_nagle_disable(pcb_);
    tcp_recv(pcb_, [](void* self, tcp_pcb* pcb, pbuf* p, err_t) {
      auto& peer = *static_cast<Peer*>(self);
      if (p == nullptr) return peer.end(false);
      peer.received_ += p->tot_len;
      tcp_recved(pcb, p->tot_len);
      pbuf_free(p);
      return static_cast<err_t>(ERR_OK);
    });
    tcp_err(pcb_, [](void* self, err_t) { static_cast<Peer*>(self)->pcb_ = nullptr; });
    EXPECT_EQ(tcp_bind(pcb_, &pair.world.address(0), 0), ERR_OK);
    EXPECT_EQ(tcp_connect(pcb_, &pair.world.address(1), Pair::kPort,
                          [](void* self, tcp_pcb*, err_t) {
                            static_cast<Peer*>(self)->up_ = true;
                            return static_cast<err_t>(ERR_OK);
                          }),
              ERR_OK);
  }
  ~Peer() { (void)end(true); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] bool up() const { return up_; }
  [[nodiscard]] bool gone() const { return pcb_ == nullptr; }
  [[nodiscard]] std::size_t received() const { return received_; }
  // As much of it as there is room for, in a segment of its own; returns how much that was.
  std::size_t send(std::span<const std::uint8_t> octets) {
    const std::size_t size = std::min<std::size_t>(octets.size(), tcp_sndbuf(pcb_));
    if (size == 0 ||
        tcp_write(pcb_, octets.data(), static_cast<u16_t>(size), TCP_WRITE_FLAG_COPY) != ERR_OK) {
      return 0;
    }
    tcp_output(pcb_);
    return size;
  }
  err_t end(bool reset) {
    if (pcb_ == nullptr) return ERR_OK;
    tcp_pcb* pcb = pcb_;
    pcb_ = nullptr;
    tcp_arg(pcb, nullptr);
    tcp_recv(pcb, nullptr);
    tcp_err(pcb, nullptr);
    if (!reset && tcp_close(pcb) == ERR_OK) return ERR_OK;
    tcp_abort(pcb);
    return ERR_ABRT;
  }

 private:
  tcp_pcb* pcb_;
  bool up_ = false;
  std::size_t received_ = 0;
};

class Sayings {
 public:
  Sayings(std::uint32_t seed, Stag stag, bool crc) : random_(seed), stag_(stag), crc_(crc) {}

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  Octets request(bool markers) {
    std::uint8_t room[64];
    ByteWriter out(room);
    MpaFrame frame;
    frame.markers = markers;
    frame.crc = crc_;
    frame.revision = 1;
    encode(frame, out);
    Octets octets(room, room + frame.encoded_size());
    if (below(10) == 0) flip_bit(octets);
    return octets;
  }

  // Without markers: where the peer wants some, what follows is wrong in yet another way.
  Octets fpdu() {
    Octets ulpdu = message();
    if (below(8) == 0 && !ulpdu.empty()) flip_bit(ulpdu);
    Octets out(fpdu_size(static_cast<std::uint32_t>(ulpdu.size())));
    store_be16(out.data(), static_cast<std::uint16_t>(ulpdu.size()));
    std::copy(ulpdu.begin(), ulpdu.end(), out.begin() + 2);
    const std::size_t covered = out.size() - kCrcSize;
    store_le32(out.data() + covered, crc_ ? crc32c({out.data(), covered}) : 0);
    if (below(40) == 0) out.resize(below(static_cast<std::uint32_t>(out.size())));
    return out;
  }

 private:
  void flip_bit(Octets& octets) {  // of the headers
    const std::size_t size = std::min<std::size_t>(octets.size(), 20);
    std::uint8_t& octet = octets[below(static_cast<std::uint32_t>(size))];
    octet = static_cast<std::uint8_t>(octet ^ 1U << below(8));
  }
  void put32(Octets& out, std::uint32_t value) {
    out.resize(out.size() + 4);
    store_be32(out.data() + out.size() - 4, value);
  }
  void put_random(Octets& out, std::uint32_t size) {
    for (std::uint32_t i = 0; i < size; ++i) out.push_back(static_cast<std::uint8_t>(random_()));
  }
  void put_stag(Octets& out) { put32(out, below(12) == 0 ? below(1000) : stag_.value); }
  void put_offset(Octets& out) {
    put32(out, below(12) == 0 ? below(3) : 0);
    put32(out, below(70000));
  }

  // A ULPDU: DDP and RDMAP control, then as RFC 5041 section 4 and RFC 5040 section 4 have it.
  Octets message() {
    Octets out;
    const std::uint8_t last = below(4) == 0 ? 0 : 0x40;
    const std::uint32_t kind = below(10);
    if (kind == 0) {
      put_random(out, below(60));
    } else if (kind < 5) {
      out = {static_cast<std::uint8_t>(0x81 | last), static_cast<std::uint8_t>(0x40)};
      put_stag(out);
      put_offset(out);
      put_random(out, below(400));
    } else {
      // Read Request, Send, Immediate Data, Terminate, Atomic Request
      static constexpr std::uint8_t kOpcodes[] = {1, 3, 3, 8, 10};
      const std::uint8_t op = kOpcodes[kind - 5];
      out = {static_cast<std::uint8_t>(0x01 | last), static_cast<std::uint8_t>(0x40 | op)};
      put32(out, 0);
      const std::uint32_t queue = op == 1 || op == 10 ? 1 : 0;
      put32(out, below(20) == 0 ? below(5) : queue);
      put32(out, ++msn_[queue]);
      put32(out, 0);
      if (op == 1) {
        put_stag(out);
        put_offset(out);
        put32(out, below(3000));
        put_stag(out);
        put_offset(out);
      } else {
        put_random(out, op == 8 ? 8 : below(100));
      }
    }
    return out;
  }

  std::mt19937 random_;
  const Stag stag_;
  const bool crc_;
  std::uint32_t msn_[2] = {0, 0};
};

struct Talk {
  bool crc, markers;
  std::string name;
};
class LwipHostile : public ::testing::TestWithParam<Talk> {};

// One connection of such a peer. Returns what its end of it received.
std::size_t talk(Pair& pair, Sayings& says, bool markers) {
  Peer peer(pair);
  EXPECT_TRUE(pair.run_until([&] { return peer.up() || peer.gone(); }));
  Octets octets = says.request(markers);
  const std::uint32_t turns = 10 + says.below(60);
  for (std::uint32_t turn = 0; turn < turns && !peer.gone(); ++turn) {
    const std::size_t most = says.below(3) == 0 ? 1 + says.below(4) : 1 + says.below(2000);
    const std::size_t taken = peer.send(std::span(octets).first(std::min(octets.size(), most)));
    octets.erase(octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(taken));
    (void)pair.run_until([] { return false; }, std::chrono::milliseconds(says.below(12)));
    // It waits for the Reply; mostly.
    if (peer.received() == 0 && says.below(30) != 0) continue;
    while (octets.size() < 2000) {
      const Octets next = says.fpdu();
      octets.insert(octets.end(), next.begin(), next.end());
      if (says.below(3) == 0) break;
    }
  }
  const std::size_t received = peer.received();
  (void)peer.end(says.below(2) == 0);
  return received;
}

TEST_P(LwipHostile, PeersAreEndedAndTheNextCallerIsServed) {
  std::size_t answers = 0;
  PairConfig config;
  config.crc = GetParam().crc;
  config.world.faults = {2, 2, 20, 0};
  Pair pair(config);
  ASSERT_TRUE(pair.listen());
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    pair.renew(pair.server);
    for (std::size_t i = 0; i < 4; ++i) ASSERT_TRUE(pair.server.post_recv(100 * i, 50));
    Sayings says(seed, pair.server.stag, GetParam().crc);
    if (talk(pair, says, GetParam().markers) > MpaFrame::kSize) ++answers;
    ASSERT_TRUE(pair.replace_client());
    ASSERT_TRUE(pair.newcomer.post(SendOp::kWrite, 0, 5000, pair.server.stag, 0));
    ASSERT_TRUE(pair.wait(pair.newcomer, 1));
    EXPECT_EQ(pair.newcomer.done[0].status, WcStatus::kSuccess);
  }
  // What TCP keeps of these connections fades, so that the next test can listen.
  (void)pair.run_until([] { return false; }, std::chrono::minutes(20));
  EXPECT_GE(answers, 50U);  // Read Responses and Terminates: most got as far as full operation
}

INSTANTIATE_TEST_SUITE_P(All, LwipHostile,
                         ::testing::Values(Talk{true, false, "Crc"}, Talk{false, false, "NoCrc"},
                                           Talk{true, true, "CrcMarkers"},
                                           Talk{false, true, "Markers"}),
                         [](const auto& talk) { return talk.param.name; });

}  // namespace
}  // namespace weft::testing
