// Rules that count the octets of a queue pair, and rules that name it by its peer.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "faults/fault_file.h"
#include "faults/fault_player.h"

namespace weft::faults {
namespace {

using namespace std::chrono_literals;

FaultFile file_of(const std::string& text) {
  auto file = parse_faults(text);
  EXPECT_TRUE(file) << file.error();
  return file.value_or(FaultFile{});
}

FaultPlayer player_of(const std::string& text) { return {file_of(text), "", "program"}; }

constexpr std::uint32_t kFirst = 70, kSecond = 90;

FaultPlayer with_two(const std::string& text) {
  FaultPlayer player = player_of(text);
  player.made_qp(kFirst);
  player.made_qp(kSecond);
  return player;
}

// A call with these octets, which queues them unless it fails.
std::optional<Struck> post(FaultPlayer& player, std::uint32_t qp, std::uint64_t octets,
                           bool signaled = true) {
  auto struck = player.call("ibv_post_send", 0s, false, qp, "", octets);
  if (!struck) static_cast<void>(player.posts(qp, octets, signaled));
  return struck;
}

TEST(FaultText, OctetsAndPeersAreReadAsTheSameRule) {
  for (const std::string_view line :
       {"fail ibv_post_send at 64000000B with ENOMEM",
        "fail ibv_post_send on qp 3 at every 64B with EIO", "fail ibv_post_recv at 1B with ENOMEM",
        "fail ibv_wr_complete at every 1500B with EAGAIN",
        "complete send on qp 0 at 1000B with RETRY_EXC_ERR, lost",
        "complete receive at every 64000000B with LOC_LEN_ERR",
        "fail ibv_post_send on qp h1:0 every 1000 with ENOMEM, bad_wr second",
        "complete send on qp [fe80::1]:2 at 7B with FATAL_ERR",
        "event QP_FATAL on qp node-7.example.org:1 after 2s",
        "disconnect on qp 192.0.2.1:0 at send completion 5 of qp h2:3",
        "link cut on qp h2:1 at 1000000000B", "link delay 1ms on qp h2:0",
        "link delay 1ms rate 64000bit loss 0.5% on qp 1", "link loss 100%",
        "receive late 5ms on qp h1:7 from 1"}) {
    const FaultFile file = file_of(std::string(line));
    ASSERT_FALSE(file.rules.empty()) << line;
    EXPECT_EQ(text_of(file.rules.front()), line);
  }
  EXPECT_EQ(text_of(file_of("fail post_send on qp ::1:4 at 64MB").rules.front()),
            "fail ibv_post_send on qp [::1]:4 at 64000000B with ENOMEM");
}

TEST(FaultFile, MistakesAboutOctetsAndPeersSayWhatIsLegal) {
  for (const auto& [text, words] :
       {std::pair<std::string_view, std::string_view>(
            "fail reg_mr at 64MB",
            "1:13: 'at': no octets are counted of ibv_reg_mr, only of post_send, post_recv and "
            "wr_complete; write on 3rd"),
        std::pair<std::string_view, std::string_view>(
            "fail post_send at 64", "1:19: '64': write a number of octets as 64MB, 100kB or 1500B"),
        std::pair<std::string_view, std::string_view>("fail post_send at every 0B",
                                                      "'0B': write a number of octets"),
        std::pair<std::string_view, std::string_view>("fail post_send 64MB",
                                                      "after NAME, at 64MB, at every 64MB"),
        std::pair<std::string_view, std::string_view>(
            "complete send at message 3 with FATAL_ERR",
            "'message': write at completion 3, at 64MB or at every 64MB"),
        std::pair<std::string_view, std::string_view>("receive late 1ms at 64MB",
                                                      "'at': write when: on 3rd"),
        std::pair<std::string_view, std::string_view>(
            "fail post_send on qp h1 on 1st",
            "1:22: 'h1': write the number of a queue pair: 0 is the first that is made; or "
            "HOST:NUMBER, as h1:0"),
        std::pair<std::string_view, std::string_view>("link cut on qp :1 at 1GB", "':1': write"),
        std::pair<std::string_view, std::string_view>("disconnect on qp h1: after 1s",
                                                      "'h1:': write"),
        std::pair<std::string_view, std::string_view>("event CQ_ERR on cq h1:0 after 1s",
                                                      "'h1:0': write its number")}) {
    const auto file = parse_faults(text);
    ASSERT_FALSE(file) << text;
    EXPECT_NE(file.error().find(words), std::string::npos) << text << ": " << file.error();
  }
}

TEST(FaultPlayer, APostFailsByWhichItsQueuePairReachesTheOctets) {
  auto player = with_two("fail post_send at 1kB with EAGAIN");
  EXPECT_FALSE(post(player, kFirst, 999));
  EXPECT_FALSE(post(player, kSecond, 900)) << "each is counted for itself";
  const auto struck = post(player, kFirst, 1);
  ASSERT_TRUE(struck);
  EXPECT_EQ(struck->error, EAGAIN);
  EXPECT_EQ(text_of(struck->exact), "fail ibv_post_send on qp 0 at 1000B with EAGAIN");
  EXPECT_FALSE(post(player, kFirst, 1)) << "once";
  EXPECT_FALSE(post(player, kSecond, 900)) << "the first that gets there";
}

TEST(FaultPlayer, OctetsOfRequestsThatWereRefusedDoNotCount) {
  auto player = with_two("fail post_send on qp 1 at every 1kB");
  EXPECT_FALSE(post(player, kFirst, 5000));
  EXPECT_FALSE(post(player, kSecond, 600));
  player.refused(kSecond, 600, 600, true);
  EXPECT_FALSE(post(player, kSecond, 600));
  const auto first = post(player, kSecond, 2000);
  ASSERT_TRUE(first);
  EXPECT_EQ(text_of(first->exact), "fail ibv_post_send on qp 1 at 2000B with ENOMEM");
  EXPECT_FALSE(post(player, kSecond, 2000)) << "the same again";
  EXPECT_FALSE(post(player, kSecond, 399));
  EXPECT_TRUE(post(player, kSecond, 1));
  EXPECT_FALSE(post(player, kSecond, 1));
}

// Another thread's request came between the post and its refusal.
TEST(FaultPlayer, RequestThatWasRefusedTakesItsOwnMark) {
  auto player = with_two("complete send at every 1kB with FATAL_ERR");
  const std::uint64_t refused = player.posts(kFirst, 700, true);
  static_cast<void>(player.posts(kFirst, 400, true));
  player.refused(kFirst, 700, refused, true);
  EXPECT_FALSE(player.completes(kFirst, false, 0s)) << "400";
  static_cast<void>(player.posts(kFirst, 599, true));
  EXPECT_FALSE(player.completes(kFirst, false, 0s)) << "999";
  static_cast<void>(player.posts(kFirst, 1, true));
  EXPECT_TRUE(player.completes(kFirst, false, 0s));
}

TEST(FaultPlayer, ReceivesAreCountedApart) {
  auto player = with_two("fail post_recv at 1kB");
  const auto receive = [&] { return player.call("ibv_post_recv", 0s, false, kFirst, "", 400); };
  EXPECT_FALSE(post(player, kFirst, 5000));
  EXPECT_FALSE(receive());
  player.posts_receives(kFirst, 400);
  player.posts_receives(kFirst, 400);
  player.refused_receives(kFirst, 400);
  EXPECT_FALSE(receive());
  player.posts_receives(kFirst, 400);
  EXPECT_TRUE(receive());
}

TEST(FaultPlayer, ACompletionFailsByWhichTheOctetsAreSent) {
  auto player = with_two("complete send at 1kB with FATAL_ERR");
  for (const bool signaled : {true, false, true}) EXPECT_FALSE(post(player, kFirst, 400, signaled));
  EXPECT_FALSE(player.completes(kFirst, false, 0s));
  EXPECT_FALSE(player.completes(kFirst, true, 0s, 5000)) << "a receive";
  const auto struck = player.completes(kFirst, false, 0s);
  ASSERT_TRUE(struck);
  EXPECT_EQ(text_of(struck->exact), "complete send on qp 0 on 2 with FATAL_ERR");
}

TEST(FaultPlayer, CompletionsOfRequestsThatWereFlushedAreNotAwaited) {
  auto player = with_two("complete send at 1kB with FATAL_ERR");
  EXPECT_FALSE(post(player, kFirst, 900));
  player.flushed(kFirst);
  EXPECT_FALSE(post(player, kFirst, 50));
  EXPECT_FALSE(post(player, kFirst, 50));
  EXPECT_FALSE(player.completes(kFirst, false, 0s));
  EXPECT_TRUE(player.completes(kFirst, false, 0s));
}

TEST(FaultPlayer, AReceiveFailsByWhichTheOctetsHaveCome) {
  auto player = with_two("complete receive on qp 1 at every 1kB with LOC_LEN_ERR");
  EXPECT_FALSE(player.completes(kFirst, true, 0s, 5000));
  EXPECT_FALSE(player.completes(kSecond, true, 0s, 999));
  EXPECT_TRUE(player.completes(kSecond, true, 0s, 1));
  EXPECT_FALSE(player.completes(kSecond, true, 0s, 999));
  EXPECT_TRUE(player.completes(kSecond, true, 0s, 1));
}

TEST(FaultPlayer, ALostRequestIsTheOneThatReachesTheOctets) {
  auto player = with_two("complete send at 1kB with FATAL_ERR, lost");
  std::uint64_t at = 0;
  const auto loses = [&](std::uint64_t octets) {
    at = player.posts(kFirst, octets, true);
    return player.loses(kFirst, 0s).has_value();
  };
  EXPECT_FALSE(loses(999));
  EXPECT_TRUE(loses(1));
  player.refused(kFirst, 1, at, true);
  player.not_posted(kFirst, 1);
  EXPECT_TRUE(loses(1)) << "the post was refused";
  EXPECT_FALSE(loses(1));
}

TEST(FaultPlayer, AQueuePairIsNamedByItsPeer) {
  auto player = player_of("fail post_send on qp h1:1 on 2nd\nlink cut on qp h2:0 at 1kB");
  for (const std::uint32_t qp : {50U, 60U, 70U, 80U}) player.made_qp(qp);
  EXPECT_EQ(player.peers(), (std::map<std::string, int>{{"h1", 1}, {"h2", 2}}));
  player.connected(80, {"h1"});
  player.connected(70, {"h2"});
  EXPECT_FALSE(post(player, 60, 1)) << "counted before it is connected";
  player.connected(60, {"h1", "other"});
  player.connected(80, {"h1"});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(post(player, 80, 1)) << "the first to h1";
  const auto struck = post(player, 60, 1);
  ASSERT_TRUE(struck);
  EXPECT_EQ(text_of(struck->exact), "fail ibv_post_send on qp 1 on 2 with ENOMEM");
  EXPECT_TRUE(player.link_of(60, 0s).rules.empty());
  EXPECT_EQ(player.link_of(70, 0s).rules.size(), 1U);
  EXPECT_EQ(text_of(player.exact_of(70, 2, 1000)), "link cut on qp 2 at 1000B");
  EXPECT_EQ(player.named_qp(1, "h1"), 1U);
  EXPECT_FALSE(player.named_qp(2, "h1"));
  EXPECT_EQ(player.named_qp(2, ""), 2U);
}

TEST(FaultPlayer, WhatComesByItselfNamesAPeerToo) {
  auto player = with_two("disconnect on qp h1:0 at receive completion 2 of qp h1:0");
  EXPECT_FALSE(player.completes(kSecond, true, 0s));
  player.connected(kSecond, {"h1"});
  EXPECT_FALSE(player.completes(kFirst, true, 0s));
  EXPECT_FALSE(player.completes(kFirst, true, 0s));
  EXPECT_FALSE(player.next_action());
  EXPECT_FALSE(player.completes(kSecond, true, 0s));
  const auto action = player.next_action();
  ASSERT_TRUE(action);
  EXPECT_EQ(text_of(player.exact_of(*action, 1s)),
            "disconnect on qp 1 at receive completion 2 of qp 1");
}

TEST(FaultPlayer, DatagramsHaveALinkWithoutCutsAndFlips) {
  auto player = player_of(
      "link delay 1ms loss 2%\nlink cut at 1kB\nlink stall 1ms at 1kB\noctet flip at 1kB\n"
      "receive late 1ms\nlink loss 3%");
  player.made_qp(kFirst);
  const LinkTrouble datagrams = player.link_of(kFirst, 0s, true);
  EXPECT_EQ(datagrams.delay, 1ms);
  EXPECT_EQ(datagrams.loss_percent, 3);
  ASSERT_EQ(datagrams.rules.size(), 1U);
  EXPECT_EQ(datagrams.rules[0].name, 3);
  std::vector<int> lines;
  for (const auto& misfit : player.misfits(kFirst, true)) lines.push_back(misfit.line);
  EXPECT_EQ(lines, (std::vector{2, 4, 5}));
  auto other = player_of("link delay 1ms loss 2%\nlink loss 3%\nlink cut at 1kB");
  other.made_qp(kFirst);
  const LinkTrouble connection = other.link_of(kFirst, 0s);
  EXPECT_EQ(connection.loss_percent, 0);
  EXPECT_EQ(connection.rules.size(), 1U);
  lines.clear();
  for (const auto& misfit : other.misfits(kFirst, false)) lines.push_back(misfit.line);
  EXPECT_EQ(lines, (std::vector{1, 2}));
  EXPECT_EQ(other.unused(), (std::vector{2, 3}));
}

}  // namespace
}  // namespace weft::faults
