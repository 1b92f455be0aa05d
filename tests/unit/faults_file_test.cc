// Files of faults: how they are read, and which calls and completions they let fail.
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include "faults/fault_file.h"
#include "faults/fault_player.h"

namespace weft::faults {
namespace {

using namespace std::chrono_literals;

FaultPlayer player_of(std::string_view text, std::string_view rank = "",
                      std::string_view line = "program -x") {
  auto file = parse_faults(text);
  EXPECT_TRUE(file) << file.error();
  return {std::move(*file), rank, line};
}

// The calls of `count` that fail, from 1.
std::vector<int> failing(FaultPlayer& player, int count, std::string_view call = "ibv_reg_mr",
                         FaultPlayer::Time now = 0s) {
  std::vector<int> out;
  for (int i = 1; i <= count; ++i) {
    if (player.call(call, now)) out.push_back(i);
  }
  return out;
}

constexpr int kRetryExceeded = 12, kGeneral = 21;

TEST(FaultFile, ARuleIsReadInAllItsParts) {
  const auto file = parse_faults(
      "seed 7  # of chance\n\n"
      "in rank 3 in program *bw* complete send on qp 2 every 1000 with RETRY_EXC_ERR as lost\n"
      "fail rdma_connect after 1.5ms with ECONNREFUSED\n"
      "kill SIGSTOP after lost");
  ASSERT_TRUE(file) << file.error();
  EXPECT_EQ(file->seed, 7U);
  ASSERT_EQ(file->rules.size(), 3U);
  const FaultRule& first = file->rules[0];
  EXPECT_EQ(first.line, 3);
  EXPECT_EQ(first.rank, "3");
  EXPECT_EQ(first.program, "*bw*");
  EXPECT_EQ(first.effect, Effect::kCompleteSend);
  EXPECT_EQ(first.qp, 2U);
  EXPECT_EQ(first.when, (When{When::How::kEvery, 1000, 0, 0s, ""}));
  EXPECT_EQ(first.error, kRetryExceeded);
  EXPECT_EQ(first.name, "lost");
  EXPECT_EQ(file->rules[1].call, "rdma_connect");
  EXPECT_EQ(file->rules[1].error, ECONNREFUSED);
  EXPECT_EQ(file->rules[1].when.time, 1500us);
  EXPECT_EQ(file->rules[2].number, SIGSTOP);
  EXPECT_EQ(file->rules[2].when.rule, "lost");
}

TEST(FaultFile, RequestsAndReceivesMayBeDeliveredAndRequestsLost) {
  const auto file = parse_faults(
      "complete send on 2nd with FATAL_ERR, delivered\n"
      "complete receive on 2nd with FATAL_ERR, delivered as gone\n"
      "complete send on 2nd with FATAL_ERR, lost");
  ASSERT_TRUE(file) << file.error();
  EXPECT_FALSE(file->rules[0].lost);
  EXPECT_FALSE(file->rules[1].lost);
  EXPECT_EQ(file->rules[1].name, "gone");
  EXPECT_TRUE(file->rules[2].lost);
  EXPECT_FALSE(parse_faults("complete receive on 2nd with FATAL_ERR, lost"));
}

TEST(FaultFile, RulesOfLinksAreReadInAllTheirParts) {
  using What = LinkEffect::What;
  const auto file = parse_faults(
      "link delay 1ms jitter 200us rate 10Gbit on qp 1\n"
      "link stall 200ms at every 64MB as slow\n"
      "link stall 1ms every 2s on qp 3\n"
      "link cut on qp 2 at 1GB\n"
      "octet flip at 1500B\n"
      "link rate 64kbit");
  ASSERT_TRUE(file) << file.error();
  const auto& rules = file->rules;
  EXPECT_EQ(rules[0].link, (LinkEffect{What::kPace, 1ms, 200us, 10'000'000'000}));
  EXPECT_EQ(rules[0].qp, 1U);
  EXPECT_EQ(rules[1].link, (LinkEffect{What::kStall, 0s, 0s, 0, 200ms, 64'000'000, true}));
  EXPECT_EQ(rules[1].name, "slow");
  EXPECT_EQ(rules[2].link, (LinkEffect{What::kStall, 0s, 0s, 0, 1ms, 0, true, 2s}));
  EXPECT_EQ(rules[2].qp, 3U);
  EXPECT_EQ(rules[3].link, (LinkEffect{What::kCut, 0s, 0s, 0, 0s, 1'000'000'000}));
  EXPECT_EQ(rules[3].qp, 2U);
  EXPECT_EQ(rules[4].link, (LinkEffect{What::kFlip, 0s, 0s, 0, 0s, 1500}));
  EXPECT_EQ(rules[5].link.bits_per_second, 64'000U);
}

TEST(FaultPlayer, ALinkIsMadeOfTheRulesOfItsQueuePair) {
  auto player = player_of(
      "link delay 1ms\nlink rate 1Gbit on qp 1\nlink cut at 1kB on qp 0\noctet flip at every 10B "
      "as bad\nkill SIGTERM after bad");
  player.made_qp(70);
  player.made_qp(71);
  const LinkTrouble first = player.link_of(70, 0s), second = player.link_of(71, 0s);
  EXPECT_EQ(first.delay, 1ms);
  EXPECT_EQ(first.bits_per_second, 0U);
  ASSERT_EQ(first.rules.size(), 2U);
  EXPECT_EQ(first.rules[0].what, LinkRule::What::kCut);
  EXPECT_EQ(first.rules[0].name, 3);
  EXPECT_EQ(first.rules[1].at, 10U);
  EXPECT_TRUE(first.rules[1].repeats);
  EXPECT_EQ(second.bits_per_second, 1'000'000'000U);
  EXPECT_EQ(second.rules.size(), 1U);
  EXPECT_NE(first.seed, second.seed);
  EXPECT_FALSE(player.link_of(99, 0s).is_any());
  EXPECT_FALSE(player.next_action());
  player.had_effect(4, 5s);
  ASSERT_TRUE(player.next_action());
  EXPECT_EQ(player.unused(), (std::vector{3, 5}));
}

TEST(FaultPlayer, AListOfOneHasNoSecondRequest) {
  auto player = player_of("fail post_send on 2nd with ENOMEM, bad_wr second");
  EXPECT_FALSE(player.call("ibv_post_send", 0s, true));
  EXPECT_FALSE(player.call("ibv_post_send", 0s, false));
  const auto struck = player.call("ibv_post_send", 0s, true);
  ASSERT_TRUE(struck);
  EXPECT_TRUE(struck->second);
}

TEST(FaultPlayer, LostRequestsCountWhenTheyArePosted) {
  auto player = player_of("complete send on qp 0 on 2nd with FATAL_ERR, lost");
  player.made_qp(5);
  EXPECT_FALSE(player.loses(5, 0s));
  EXPECT_FALSE(player.completes(5, false, 0s));
  EXPECT_TRUE(player.loses(5, 0s));
  EXPECT_FALSE(player.loses(5, 0s));
  EXPECT_FALSE(player.completes(5, false, 0s));
}

TEST(FaultPlayer, ALostRequestThatWasRefusedIsNotCounted) {
  FaultPlayer player = player_of(
      "complete send on 2nd with RETRY_EXC_ERR, lost as gone\nevent QP_FATAL on qp 0 after gone");
  player.made_qp(5);
  EXPECT_FALSE(player.loses(5, 0s));
  player.not_posted(5, 0);
  EXPECT_FALSE(player.loses(5, 0s));
  EXPECT_TRUE(player.loses(5, 0s));
  player.not_posted(5, 1);
  EXPECT_TRUE(player.loses(5, 0s));
  EXPECT_FALSE(player.loses(5, 0s));
  EXPECT_FALSE(player.next_action());
  player.had_effect(1, 7s);
  ASSERT_TRUE(player.next_action());
  EXPECT_EQ(player.next_action()->due, 7s);
}

TEST(FaultFile, ACallHasItsUsualErrorWhereNoneIsGiven) {
  const auto file = parse_faults("fail create_comp_channel on 1st\nfail ibv_reg_mr from 2");
  ASSERT_TRUE(file) << file.error();
  EXPECT_EQ(file->rules[0].error, EMFILE);
  EXPECT_EQ(file->rules[1].error, ENOMEM);
}

TEST(FaultFile, MistakesNameThePlaceAndSayWhatIsLegal) {
  for (const auto& [text, words] :
       {std::pair<std::string_view, std::string_view>(
            "\n  fial reg_mr on 1st", "2:3: 'fial': write fail, complete, event, cm"),
        std::pair<std::string_view, std::string_view>("fail", "1:5: the line ends too early"),
        std::pair<std::string_view, std::string_view>("in house h1 fail reg_mr on 1st",
                                                      "1:4: 'house': write `in rank N`"),
        std::pair<std::string_view, std::string_view>("fail dealloc_pd on 1st",
                                                      "1:6: 'dealloc_pd': no such call"),
        std::pair<std::string_view, std::string_view>("fail reg_mr with 101%", "a share as 5%"),
        std::pair<std::string_view, std::string_view>("fail reg_mr with 0%", "a share as 5%"),
        std::pair<std::string_view, std::string_view>("fail reg_mr with nan%", "a share as 5%"),
        std::pair<std::string_view, std::string_view>("fail reg_mr after 2h",
                                                      "'2h': write a time as 2s"),
        std::pair<std::string_view, std::string_view>("fail reg_mr after me",
                                                      "after me: no rule has this name"),
        std::pair<std::string_view, std::string_view>("complete send on qp x on 1st with FATAL_ERR",
                                                      "'x': write the number"),
        std::pair<std::string_view, std::string_view>("complete send on 1st with WR_FLUSH_ERR",
                                                      "'WR_FLUSH_ERR': write a status"),
        std::pair<std::string_view, std::string_view>("kill SIGFOO after 1s",
                                                      "'SIGFOO': write a signal: SIGKILL"),
        std::pair<std::string_view, std::string_view>("fail reg_mr on 1st as", "write a name"),
        std::pair<std::string_view, std::string_view>(
            "link delay 1ms on qp 0 as slow", "'as': a link has its delay, rate or loss from"),
        std::pair<std::string_view, std::string_view>(
            "fail reg_mr on 1st as 2s", "'2s': write a name; it begins with no number"),
        std::pair<std::string_view, std::string_view>("fail reg_mr after 99999999999999999999s",
                                                      "write a time as 2s"),
        std::pair<std::string_view, std::string_view>("fail reg_mr after b as b",
                                                      "1: after b: the rules wait for each other"),
        std::pair<std::string_view, std::string_view>(
            "fail reg_mr after b as a\nfail reg_mr after a as b", "wait for each other"),
        std::pair<std::string_view, std::string_view>(
            "fail reg_mr on 1st as a\nfail reg_mr on 2nd as a", "2: as a: another rule has"),
        std::pair<std::string_view, std::string_view>(std::string_view("seed 1\n\0fail", 12),
                                                      "2: an octet of 0"),
        std::pair<std::string_view, std::string_view>("seed x", "'x': write a number")}) {
    const auto file = parse_faults(text);
    ASSERT_FALSE(file) << text;
    EXPECT_NE(file.error().find(words), std::string::npos) << text << ": " << file.error();
  }
}

TEST(FaultPlayer, CallsFailAsCounted) {
  auto on = player_of("fail reg_mr on 3rd");
  EXPECT_EQ(failing(on, 9), (std::vector{3}));
  auto from = player_of("fail reg_mr from 8th");
  EXPECT_EQ(failing(from, 10), (std::vector{8, 9, 10}));
  auto every = player_of("fail reg_mr every 4");
  EXPECT_EQ(failing(every, 9), (std::vector{4, 8}));
  auto other = player_of("fail alloc_pd every 1");
  EXPECT_TRUE(failing(other, 9).empty());
}

TEST(FaultPlayer, TheFirstRuleCountsWhereTwoMean) {
  auto player = player_of("fail reg_mr on 2nd with EPERM\nfail reg_mr every 2 with EINVAL");
  EXPECT_FALSE(player.call("ibv_reg_mr", 0s));
  EXPECT_EQ(player.call("ibv_reg_mr", 0s)->error, EPERM);
  EXPECT_FALSE(player.call("ibv_reg_mr", 0s));
  EXPECT_EQ(player.call("ibv_reg_mr", 0s)->error, EINVAL);
}

TEST(FaultPlayer, ChanceIsTheSameForASeed) {
  auto one = player_of("seed 1\nfail reg_mr with 5%");
  auto again = player_of("seed 1\nfail reg_mr with 5%");
  auto two = player_of("seed 2\nfail reg_mr with 5%");
  const auto drawn = failing(one, 10'000);
  EXPECT_EQ(failing(again, 10'000), drawn);
  EXPECT_NE(failing(two, 10'000), drawn);
  EXPECT_GT(drawn.size(), 400U);
  EXPECT_LT(drawn.size(), 600U);
}

TEST(FaultPlayer, ChanceIsOfItsOwnForEachQueuePairAndRank) {
  constexpr std::string_view kRule = "seed 3\ncomplete send with 5% with FATAL_ERR";
  const auto drawn = [](std::string_view text, std::string_view rank, std::uint32_t qp) {
    auto player = player_of(text, rank);
    for (std::uint32_t number = 0; number < 4; ++number) player.made_qp(number);
    std::vector<int> out;
    for (int i = 0; i < 400; ++i) {
      if (player.completes(qp, false, 0s)) out.push_back(i);
    }
    return out;
  };
  EXPECT_NE(drawn(kRule, "0", 0), drawn(kRule, "0", 1));
  EXPECT_NE(drawn(kRule, "0", 0), drawn(kRule, "1", 0));
  EXPECT_EQ(drawn(kRule, "0", 2), drawn(kRule, "0", 2));
  // Comments change nothing.
  EXPECT_EQ(drawn("# a line\n" + std::string(kRule), "0", 2), drawn(kRule, "0", 2));
}

TEST(FaultPlayer, TimeAndOtherRulesAreWaitedFor) {
  auto player = player_of("fail reg_mr after 2s as first\nfail alloc_pd after first");
  EXPECT_TRUE(failing(player, 3, "ibv_reg_mr", 1s).empty());
  EXPECT_TRUE(failing(player, 3, "ibv_alloc_pd", 3s).empty());
  EXPECT_EQ(failing(player, 3, "ibv_reg_mr", 3s), (std::vector{1}));
  EXPECT_EQ(failing(player, 3, "ibv_alloc_pd", 3s), (std::vector{1}));
}

TEST(FaultPlayer, CompletionsAreCountedForEachQueuePairAndKind) {
  auto player = player_of("complete send on qp 1 on 2nd with GENERAL_ERR");
  player.made_qp(70);
  player.made_qp(90);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(player.completes(70, false, 0s));
  EXPECT_FALSE(player.completes(90, true, 0s)) << "a receive";
  EXPECT_FALSE(player.completes(90, false, 0s));
  const auto struck = player.completes(90, false, 0s);
  ASSERT_TRUE(struck);
  EXPECT_EQ(struck->error, kGeneral);
  EXPECT_EQ(struck->count, 2U);
  EXPECT_FALSE(player.completes(11, false, 0s)) << "nobody has made it";
  // A number that is used again is another queue pair.
  player.made_qp(90);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(player.completes(90, false, 0s));
}

TEST(FaultPlayer, RulesAreForTheirProcessesOnly) {
  EXPECT_TRUE(player_of("in rank 3 fail reg_mr on 1st", "3").has_rules());
  EXPECT_TRUE(player_of("in rank 03 fail reg_mr on 1st", "3").has_rules());
  EXPECT_FALSE(player_of("in rank 3 fail reg_mr on 1st", "4").has_rules());
  EXPECT_FALSE(player_of("in rank 3 fail reg_mr on 1st", "").has_rules());
  EXPECT_TRUE(player_of("in program *-x* fail reg_mr on 1st").has_rules());
  EXPECT_FALSE(player_of("in program *-y* fail reg_mr on 1st").has_rules());
}

TEST(FaultPlayer, WhatComesByItselfIsInTheOrderOfItsTimes) {
  auto player = player_of(
      "kill SIGTERM after 5s\nevent QP_FATAL on qp 3 after 2s as fatal\nkill SIGKILL after x\n"
      "fail reg_mr on 1st as x\ndisconnect after fatal");
  auto next = player.next_action();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->rule.effect, Effect::kEvent);
  EXPECT_EQ(next->rule.object, Object::kQp);
  EXPECT_EQ(next->rule.place, 3U);
  EXPECT_EQ(next->due, 2s);
  EXPECT_FALSE(next->by_rule);
  static_cast<void>(player.call("ibv_reg_mr", 1s));
  next = player.next_action();
  EXPECT_EQ(next->rule.number, SIGKILL);
  EXPECT_TRUE(next->by_rule);
  player.acted(*next);
  player.acted(*player.next_action());
  next = player.next_action();
  EXPECT_EQ(next->rule.effect, Effect::kDisconnect) << "behind the event";
  player.acted(*next);
  player.acted(*player.next_action());
  EXPECT_FALSE(player.next_action());
}

TEST(FaultPlayer, EventsOfRdmaCmTakeThePlaceOfThoseThatSaySuccess) {
  constexpr int kAddrResolved = 0, kRouteResolved = 2, kEstablished = 9, kRejected = 8;
  auto player = player_of("cm REJECTED on 2nd\ncm ROUTE_ERROR on 1st with EIO");
  EXPECT_FALSE(player.fetches(kAddrResolved, 0s));
  const auto route = player.fetches(kRouteResolved, 0s);
  ASSERT_TRUE(route);
  EXPECT_EQ(route->struck.error, EIO);
  EXPECT_FALSE(player.fetches(kEstablished, 0s));
  const auto rejected = player.fetches(kEstablished, 0s);
  ASSERT_TRUE(rejected);
  EXPECT_EQ(rejected->event, kRejected);
  EXPECT_EQ(rejected->struck.error, ECONNREFUSED);
}

TEST(FaultFile, StatusesHaveTheNamesOfVerbs) {
  EXPECT_EQ(status_name(kRetryExceeded), "RETRY_EXC_ERR");
  EXPECT_EQ(status_name(kGeneral), "GENERAL_ERR");
  EXPECT_EQ(status_name(22), "?");
  EXPECT_EQ(status_name(-1), "?");
}

}  // namespace
}  // namespace weft::faults
