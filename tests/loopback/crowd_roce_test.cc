// What strangers can take of a RoCE-like device has limits: 10,000 of each, and honest queue pairs
// are served beside them.
#include <gtest/gtest.h>
#include <weft/limits.h>
#include <weft/wiring.h>

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "support/crowd.h"
#include "support/weft_side.h"
#include "wired_end.h"

namespace weft::test {
namespace {

bool has_room() { return Crowd::has_room(limits::kHalfOpenConnections + 1000); }

bool takes_at_most(const Crowd& crowd, std::size_t limit) {
  return eventually([&] { return crowd.is_alone_but_for(limit); });
}

// Honest queue pairs have no end of retries, so that the kernel may drop their SYN now and then: it
// repeats it, and so do they. A minute is for a machine that has other things to do.
void wire_patiently(const WiredEnd& a, const WiredEnd& b) {
  WiringToSend how;
  how.timeout = 0;
  must(a.to_rtr(b), "to RTR");
  must(b.to_rtr(a), "to RTR");
  must(a.qp->start_sending(how), "to RTS");
  must(b.qp->start_sending(how), "to RTS");
}

void expect_completion(const WiredEnd& end, std::uint64_t id) {
  const std::optional<WorkCompletion> wc = next(*end.cq, std::chrono::minutes(1));
  ASSERT_TRUE(wc.has_value()) << "request " << id;
  EXPECT_EQ(wc->wr_id, id);
  EXPECT_EQ(wc->status, WcStatus::kSuccess) << to_string(*wc);
}

void expect_message(const WiredEnd& from, const WiredEnd& to, std::uint64_t id) {
  post_recv(*to.qp, id);
  post(*from.qp, wr_send(id));
  expect_completion(from, id);
  expect_completion(to, id);
}

// A whole hello, for a queue pair that is not there: docs/personality.md.
std::string hello_for_nobody() {
  constexpr std::size_t kSize = 64, kFlags = 11, kType = 56;
  std::string out = "WEFTROCE\x01";
  out.resize(kSize, '\0');
  out[kFlags] = 1;
  out[kType] = 2;
  return out;
}

// Both ends of the honest pair are sought at the same port, which the crowd fills.
TEST(CrowdOfRoce, ThatSaysNothingKeepsNoQueuePairsApart) {
  if (!has_room()) GTEST_SKIP() << "too few descriptors";
  Host host(roce_config());
  const WiredEnd a(host), b(host);
  const Crowd crowd(port_of(b.qp->number()), "");
  wire_patiently(a, b);
  expect_message(a, b, 1);
  EXPECT_TRUE(takes_at_most(crowd, limits::kHalfOpenConnections));
}

TEST(CrowdOfRoce, OfHellosForNobodyIsAnsweredAndTheHonestOneAmongThem) {
  if (!has_room()) GTEST_SKIP() << "too few descriptors";
  Host host(roce_config());
  const WiredEnd a(host), b(host);
  const Crowd crowd(port_of(b.qp->number()), hello_for_nobody());
  wire_patiently(a, b);
  expect_message(a, b, 1);
  EXPECT_TRUE(takes_at_most(crowd, limits::kHalfOpenConnections));
}

// Strangers that come one behind the other without end.
TEST(CrowdOfRoce, ThatNeverEndsKeepsNoQueuePairsApart) {
  if (!has_room()) GTEST_SKIP() << "too few descriptors";
  Host host(roce_config());
  const WiredEnd a(host), b(host);
  const std::uint16_t port = port_of(b.qp->number());
  const std::jthread strangers([port](const std::stop_token& over) {
    constexpr std::size_t kAtOnce = 2000;
    while (!over.stop_requested()) const Crowd crowd(port, "", kAtOnce);
  });
  for (std::uint64_t id = 1; id <= 20; ++id) {
    const WiredEnd c(host), d(host);
    wire_patiently(c, d);
    expect_message(c, d, id);
  }
}

// Nothing but what is meant for the queue pair takes a receive, of which there is one. The honest
// datagram may find the socket full, as any datagram may: then it comes again.
TEST(CrowdOfRoce, OfDatagramsForOthersTakesNoReceive) {
  constexpr int kDatagrams = 10'000;
  constexpr std::uint32_t kOtherKey = 0x1234;
  Host host(roce_config());
  const DatagramEnd stranger(host), honest(host), to(host);
  Memory into(host, 256);
  post_recv(*to.qp, 1, {into.sge()});
  const auto send = [&](const DatagramEnd& from, DatagramPeer peer, std::uint64_t id) {
    peer.gid = loopback_gid();
    peer.number = to.qp->number();
    SendWr wr = wr_send(id);
    wr.peer = &peer;
    post(*from.qp, wr);
    take_success(*from.sent, id);
  };
  std::jthread strangers([&] {
    DatagramPeer peer;
    peer.key = kOtherKey;
    for (int i = 0; i < kDatagrams; ++i) send(stranger, peer, 2);
  });
  std::optional<WorkCompletion> received;
  EXPECT_TRUE(eventually([&] {
    send(honest, DatagramPeer(), 3);
    received = next(*to.cq, milliseconds(1));
    return received.has_value();
  }));
  strangers.join();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->source_qp, honest.qp->number());
}

}  // namespace
}  // namespace weft::test
