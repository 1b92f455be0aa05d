// A bad connection costs only itself: the others of the same device keep their data and their pace.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "session.h"

namespace weft::test {
namespace {

using raw::Bytes;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// One more connection of this server, in revision 1 with CRC, opened by a zero-length Write.
struct Stream {
  explicit Stream(Server& server) : weft(server.host), peer(server.dial()) {
    peer.send(raw::mpa_request(raw::kC, 1));
    weft.connection =
        take_event(*server.weft.events, ConnectionEvent::Type::kConnectRequest).connection;
    weft.connection->set_channel(weft.events);
    must(weft.connection->accept(weft.qp, {}), "accept");
    (void)peer.recv_mpa();
    peer.send_fpdu(raw::write(0, 0, {}));
    take_event(*weft.events, ConnectionEvent::Type::kEstablished);
  }
  Endpoint weft;
  raw::Peer peer;
  std::uint32_t msn = 0;
};

// A Write and a Send that says so, checked at both ends.
void work(Stream& s, Memory& target) {
  const std::uint32_t msn = ++s.msn;
  post_empty_recvs(*s.weft.qp, msn, 1);
  s.peer.send_fpdus(
      {raw::write(target.rkey(), target.to(), raw::pattern(2000, msn)), raw::send(msn, {})});
  take_success(*s.weft.recv_cq, msn);
  ASSERT_EQ(target.copy(0, 2000), raw::pattern(2000, msn));
  post(*s.weft.qp, wr_send(msn), {target.sge(0, 500)});
  ASSERT_EQ(s.peer.recv_segment(raw::kSend).payload, target.copy(0, 500));
  take_success(*s.weft.send_cq, msn);
}

using Crime = std::function<void(Stream&)>;

const std::vector<Crime>& crimes() {
  static const std::vector<Crime> kCrimes = {
      [](Stream& s) { s.peer.send_fpdu(raw::send(1, {}), {.crc_xor = 1}); },
      [](Stream& s) { s.peer.send_fpdu(Bytes(1, 0)); },
      [](Stream& s) { s.peer.send_fpdu(raw::send(1, {})); },
      [](Stream& s) { s.peer.send_fpdu(raw::write(0x666, 0, raw::zeros(9))); },
      [](Stream& s) { s.peer.send_fpdu(raw::read_request(1, {.size = 9, .src_stag = 0x666})); },
      [](Stream& s) {
        s.peer.send_fpdu(raw::terminate({0, 0, 0}));
      },
      [](Stream& s) { s.peer.send(raw::zeros(100000)); },
      [](Stream& s) { s.peer.send(Bytes(7, 0xff)); },
      [](Stream& s) { s.peer.shutdown_write(); },
      [](Stream& s) { s.peer.reset(); },
  };
  return kCrimes;
}

TEST(Isolation, EveryKindOfMisbehaviorLeavesOtherStreamsAlone) {
  Server server;
  Memory target(server.host, 2000);
  Stream good(server);
  for (std::size_t i = 0; i < crimes().size(); ++i) {
    SCOPED_TRACE(i);
    Stream bad(server);
    post_empty_recvs(*bad.weft.qp, 1, 0);
    crimes()[i](bad);
    work(good, target);
    if (bad.peer.is_open()) bad.peer.shutdown_write();
    take_event(*bad.weft.events, ConnectionEvent::Type::kDisconnected);
    work(good, target);
  }
}

// Sixteen streams misbehave at once, again and again, while one works.
TEST(Isolation, ManyBadStreamsAtOnceDoNotStopAGoodOne) {
  Server server;
  Memory target(server.host, 2000);
  Stream good(server);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<Stream>> bad;
    for (int i = 0; i < 16; ++i) bad.push_back(std::make_unique<Stream>(server));
    for (std::size_t i = 0; i < bad.size(); ++i) {
      if (i % 2 == 0) {
        bad[i]->peer.send_fpdu(raw::send(9, {}));
      } else {
        bad[i]->peer.reset();
      }
      work(good, target);
    }
  }
  EXPECT_EQ(good.weft.qp->state(), QpState::kRts);
}

// Works on a stream of its own, in its own thread, until told to stop.
class Worker {
 public:
  explicit Worker(Server& server) : target_(server.host, 2000), stream_(server) {
    thread_ = std::thread([this] { loop(); });
  }
  ~Worker() { stop(); }

  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] int rounds() const { return rounds_; }
  // REQUIRES: stopped.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  [[nodiscard]] QpState state() const { return stream_.weft.qp->state(); }

 private:
  void loop() {
    try {
      for (; !stopping_ && !::testing::Test::HasFailure(); ++rounds_) work(stream_, target_);
    } catch (const std::exception& why) {
      trouble_ = why.what();
    }
  }

  Memory target_;
  Stream stream_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> rounds_ = 0;
  std::string trouble_;
  std::thread thread_;
};

// Streams in several threads work without a pause while others misbehave in every way, in full
// operation and before it. All of the good ones get on, after each crime and after the last.
TEST(Isolation, UnderLoadABadPeerCostsOnlyItsOwnConnection) {
  Server server;
  std::vector<std::unique_ptr<Worker>> good;
  for (int i = 0; i < 3; ++i) good.push_back(std::make_unique<Worker>(server));
  const auto all_get_on = [&good] {
    for (const auto& worker : good) {
      const int before = worker->rounds();
      if (!eventually([&] { return worker->rounds() > before + 1; })) return false;
    }
    return true;
  };
  ASSERT_TRUE(all_get_on());
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < crimes().size(); ++i) {
      SCOPED_TRACE(i);
      server.dial().reset();  // before its Request
      raw::Peer half = server.dial();
      half.send(raw::request_key());  // and inside it
      Stream bad(server);
      post_empty_recvs(*bad.weft.qp, 1, 0);
      crimes()[i](bad);
      half.reset();
      if (bad.peer.is_open()) bad.peer.shutdown_write();
      take_event(*bad.weft.events, ConnectionEvent::Type::kDisconnected);
      ASSERT_TRUE(all_get_on());
    }
  }
  for (const auto& worker : good) {
    worker->stop();
    EXPECT_EQ(worker->trouble(), "");
    EXPECT_EQ(worker->state(), QpState::kRts);
  }
}

// A peer that never reads what it asked for holds up nobody else.
TEST(Isolation, PeerThatDoesNotReadHoldsUpNobodyElse) {
  Config config = plain_config();
  config.socket_buffer_bytes = 65536;
  Server server(config);
  Memory target(server.host, 2000);
  Memory big(server.host, 4U << 20U);
  Stream good(server);
  Stream stuck(server);
  for (std::uint32_t msn = 1; msn <= 8; ++msn) {
    stuck.peer.send_fpdu(
        raw::read_request(msn, {.size = 4U << 20U, .src_stag = big.rkey(), .src_to = big.to()}));
  }
  post(*stuck.weft.qp, wr_write(1, 1, 1), {big.sge()});
  for (int i = 0; i < 50; ++i) work(good, target);
}

// Octets of this process that are in memory.
std::size_t resident_bytes() {
  std::size_t all = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Each stream takes several descriptors here.
void allow_many_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

// Takes a little of what was asked for. False: the connection has ended.
bool read_a_little(Stream& s) {
  try {
    (void)s.peer.recv(1024);
    return true;
  } catch (const raw::Failure&) {
    return false;
  }
}

// More peers that ask for Reads and do not read than there is memory for, and some that read very
// slowly: those that began first lose their connections, the others and the rest of the device go
// on. What all of them cost is `send_memory` and a little for each.
TEST(Isolation, PeersThatDoNotReadCostBoundedMemory) {
  constexpr std::uint32_t kSize = 4U << 20U;
  constexpr std::size_t kPeers = 200;
  constexpr std::size_t kEach = (64U << 10U) + (16U << 10U);
  allow_many_files();
  Config config = plain_config();
  config.socket_buffer_bytes = 65536;
  config.send_memory_bytes = 4U << 20U;
  Server server(config);
  Memory memory(server.host, kSize);
  Stream good(server);
  work(good, memory);
  std::vector<std::unique_ptr<Stream>> peers;
  for (std::size_t i = 0; i < kPeers; ++i) peers.push_back(std::make_unique<Stream>(server));
  const std::size_t before = resident_bytes();
  std::size_t most = before;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < kPeers; ++i) {
    peers[i]->peer.send_fpdu(
        raw::read_request(1, {.size = kSize, .src_stag = memory.rkey(), .src_to = memory.to()}));
    if (i % 10 == 0) {
      for (std::size_t slow = 0; slow <= i; slow += 10)
        taken += read_a_little(*peers[slow]) ? 1 : 0;
      work(good, memory);
    }
    most = std::max(most, resident_bytes());
  }
  for (int i = 0; i < 5; ++i) work(good, memory);
  most = std::max(most, resident_bytes());
  std::size_t ended = 0;
  for (const auto& peer : peers) ended += peer->weft.qp->state() == QpState::kError ? 1 : 0;
  EXPECT_GT(ended, 0U);
  EXPECT_GT(taken, kPeers / 10);
  if (kSanitized) return;  // they keep what is freed
  EXPECT_LT(most - before, config.send_memory_bytes + kPeers * kEach);
}

// Peers that stop inside an FPDU wait; Weft does not wait with them.
TEST(Isolation, PeersThatStopInsideAnFpduHoldUpNobodyElse) {
  Server server;
  Memory target(server.host, 2000);
  Stream good(server);
  std::vector<std::unique_ptr<Stream>> slow;
  for (std::size_t i = 0; i < 12; ++i) {
    slow.push_back(std::make_unique<Stream>(server));
    const Bytes fpdu = slow[i]->peer.frame(
        raw::write(target.rkey(), target.to(), raw::pattern(1000, static_cast<unsigned>(i))));
    slow[i]->peer.send(raw::View(fpdu).first(1 + i * 80));
  }
  for (int i = 0; i < 20; ++i) work(good, target);
}

//= RFC 5040 section 8.1.1
//# An RNIC MUST ensure that a specific Stream in a specific Protection Domain cannot access an
//# STag in a different Protection Domain.
TEST(Rfc5040_8_1_1, StreamsOfDifferentDomainsCannotUseEachOthersStags) {
  Server server;
  const auto other_pd = must(server.host.device->create_pd(), "create a protection domain");
  Memory mine(server.host, 64);
  Memory theirs(*other_pd, 64, kAllAccess);
  for (const bool read : {false, true}) {
    Stream s(server);
    s.peer.send_fpdu(raw::write(mine.rkey(), mine.to(), raw::text("ok")));
    const Bytes bad =
        read ? raw::read_request(1, {.size = 8, .src_stag = theirs.rkey(), .src_to = theirs.to()})
             : raw::write(theirs.rkey(), theirs.to(), raw::text("no"));
    s.peer.send_fpdu(bad);
    s.peer.expect_terminate_code(read ? raw::Code{0, 1, 3} : raw::Code{1, 1, 2});
    EXPECT_TRUE(theirs.untouched());
  }
}

//= RFC 5040 section 8.1.1
//# An RNIC MUST ensure that if an STag is limited in scope to a single Stream, no other Stream can
//# use the STag.
TEST(Rfc5040_8_1_1, WindowBoundForOneStreamWorksOnNoOther) {
  Server server;
  Memory region(server.host, 64, kAllAccess | Access::kBindWindow);
  const auto window =
      must(server.host.pd->create_window(MemoryWindow::Type::kType2), "create a window");
  Stream owner(server);
  Stream thief(server);
  post(*owner.weft.qp, wr_bind(1, *window, *region.region, region.to(), 32,
                               Access::kRemoteWrite | Access::kRemoteRead, next_rkey(*window)));
  take_success(*owner.weft.send_cq, 1);
  owner.peer.send_fpdu(raw::write(window->rkey(), region.to(), raw::text("owner")));
  owner.peer.send_fpdu(
      raw::read_request(1, {.size = 5, .src_stag = window->rkey(), .src_to = region.to()}));
  EXPECT_EQ(owner.peer.recv_segment(raw::kReadResponse).payload, raw::text("owner"));
  thief.peer.send_fpdu(raw::write(window->rkey(), region.to(), raw::text("thief")));
  thief.peer.expect_terminate_code({1, 1, 2});
  EXPECT_EQ(region.copy(0, 5), raw::text("owner"));
}

//= RFC 5040 section 8.1.1
//# An RNIC MUST choose the value of STags in a way difficult to predict.
TEST(Rfc5040_8_1_1, StagsFollowNoCounterAndAreReusedLate) {
  Host host;
  std::set<std::uint32_t> seen;
  std::set<std::uint32_t> steps;
  std::uint32_t previous = 0;
  for (int i = 0; i < 200; ++i) {
    const Memory memory(host, 16);  // gone at the end of each round
    const std::uint32_t index = memory.rkey() >> 8U;
    EXPECT_TRUE(seen.insert(index).second) << "used again at once";
    steps.insert(index - previous);
    previous = index;
  }
  EXPECT_GT(steps.size(), 150U);
}

// Small segments and the like are counted, so that somebody can notice the abuse.
TEST(Rfc5042_6_4_4, TinySegmentsAreCounted) {
  Session s;
  Memory in(s.host, 64);
  post_recv(*s.weft.qp, 1, {in.sge()});
  const auto before = s.host.device->counters().small_segments;
  for (std::uint32_t i = 0; i < 10; ++i) {
    s.peer.send_fpdu(raw::ulpdu(raw::Untagged{.last = i == 9, .mo = i, .payload = raw::text("x")}));
  }
  take_success(*s.weft.recv_cq, 1);
  EXPECT_EQ(s.host.device->counters().small_segments - before, 9U);
}

}  // namespace
}  // namespace weft::test
