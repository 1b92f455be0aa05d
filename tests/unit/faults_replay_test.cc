// A log of effects: each a rule that has this effect alone.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <string_view>
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

TEST(FaultText, IsReadAsTheSameRule) {
  for (const std::string_view line :
       {"fail ibv_reg_mr on 3 with ENOMEM",
        "fail rdma_connect from 3 with EIO as slow",
        "fail ibv_post_send on qp 7 every 1000 with ENOMEM, bad_wr second",
        "in rank 3 in program *a?b* fail ibv_reg_mr with 5% with ENOMEM",
        "complete send on qp 0 on 3 with RETRY_EXC_ERR, lost",
        "in host h2 fail ibv_reg_mr from lib lib*.so on 1 with ENOMEM",
        "cm REJECTED on 1 with ECONNREFUSED private \"no\"",
        "complete receive after 2s with LOC_LEN_ERR",
        "cm REJECTED on 2 with ECONNREFUSED",
        "cm TIMEWAIT_EXIT every 1",
        "cm DEVICE_REMOVAL after 10ms",
        "event PORT_ERR after first",
        "event CQ_ERR on cq 4 after 1.500us",
        "disconnect on qp 9 at send completion 5 of qp 9",
        "kill SIGTERM at receive completion 1 of qp 0",
        "link delay 1ms jitter 200us rate 64000bit",
        "link rate 1bit on qp 3",
        "link stall 200ms at every 64000000B",
        "link stall 200ms on qp 1 at 64B",
        "link stall 1ms every 2s",
        "link cut on qp 2 at 1000B",
        "octet flip at every 7B",
        "receive late 5ms from 1",
        "receive late 1.001us on qp 2 on 4"}) {
    std::string text(line);
    if (text.find("after first") != std::string::npos)
      text += "\nfail ibv_reg_mr on 1 with ENOMEM as first";
    const FaultFile file = file_of(text);
    ASSERT_FALSE(file.rules.empty()) << line;
    EXPECT_EQ(text_of(file.rules.front()), line);
  }
}

TEST(FaultText, HasShortFormsInFull) {
  const auto whole = [](const std::string& text) { return text_of(file_of(text).rules.front()); };
  EXPECT_EQ(whole("receive late 5ms"), "receive late 5ms from 1");
  EXPECT_EQ(whole("receive late 2000us on qp 3 as late"),
            "receive late 2ms on qp 3 from 1 as late");
  EXPECT_EQ(whole("complete send at completion 1000 with FATAL_ERR"),
            "complete send on 1000 with FATAL_ERR");
  EXPECT_EQ(whole("disconnect after 1s"), "disconnect on qp 0 after 1s");
}

TEST(FaultText, APortThatIsDownForATimeIsTwoRules) {
  const FaultFile file = file_of("event PORT_ERR after 2s for 500ms as down");
  ASSERT_EQ(file.rules.size(), 2U);
  EXPECT_EQ(text_of(file.rules[0]), "event PORT_ERR after 2s as down");
  EXPECT_EQ(text_of(file.rules[1]), "event PORT_ACTIVE after 2500ms");
  FaultPlayer player(file, "", "program");
  player.acted(*player.next_action());
  EXPECT_EQ(player.next_action()->due, 2500ms);
}

TEST(FaultReplay, LibrariesAndHostsAreTold) {
  auto player = player_of("fail reg_mr from lib libmpi* on 2nd");
  EXPECT_TRUE(player.asks_library("ibv_reg_mr"));
  EXPECT_FALSE(player.asks_library("ibv_alloc_pd"));
  const auto reg_mr = [&](const char* library) {
    return player.call("ibv_reg_mr", 0s, false, {}, library).has_value();
  };
  EXPECT_FALSE(reg_mr("libmpi.so.40"));
  EXPECT_FALSE(reg_mr("program"));
  EXPECT_TRUE(reg_mr("libmpi.so.40"));
  const auto on_host = [](const char* name) {
    return FaultPlayer(file_of("in host h2 fail reg_mr on 1st"), "", "program", name).has_rules();
  };
  EXPECT_TRUE(on_host("h2"));
  EXPECT_FALSE(on_host("h1"));
}

TEST(FaultText, WrongWordsAreNamed) {
  const auto why = [](const std::string& text) { return parse_faults(text).error(); };
  EXPECT_NE(why("receive early 5ms").find("1:9: 'early': write late"), std::string::npos);
  EXPECT_NE(why("receive late soon").find("write a time"), std::string::npos);
  EXPECT_NE(why("fail reg_mr on qp 1 on 1st").find("no call about one"), std::string::npos);
  EXPECT_NE(why("kill SIGTERM at completion 3").find("at send completion 5 of qp 0"),
            std::string::npos);
  EXPECT_NE(why("disconnect at send completion 3").find("of qp 0"), std::string::npos);
}

TEST(FaultReplay, CallsAreThoseOfTheirQueuePair) {
  auto player = player_of("seed 2\nfail post_send every 3 with EIO");
  player.made_qp(70);
  player.made_qp(90);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(player.call("ibv_post_send", 0s, false, 70));
  const auto struck = player.call("ibv_post_send", 0s, false, 90);
  ASSERT_TRUE(struck);
  EXPECT_EQ(struck->count, 3U);
  EXPECT_EQ(text_of(struck->exact), "fail ibv_post_send on qp 1 on 1 with EIO");
  auto again = player_of(text_of(struck->exact));
  again.made_qp(70);
  again.made_qp(90);
  EXPECT_FALSE(again.call("ibv_post_send", 0s, false, 70));
  EXPECT_TRUE(again.call("ibv_post_send", 0s, false, 90));
  EXPECT_FALSE(again.call("ibv_post_send", 0s, false, 90));
}

TEST(FaultReplay, ListsAreCountedApart) {
  auto player = player_of("fail post_send after 1s with EIO, bad_wr second");
  player.made_qp(70);
  EXPECT_FALSE(player.call("ibv_post_send", 0s, true, 70));
  EXPECT_FALSE(player.call("ibv_post_send", 2s, false, 70)) << "it has no second";
  const auto struck = player.call("ibv_post_send", 2s, true, 70);
  ASSERT_TRUE(struck);
  EXPECT_EQ(text_of(struck->exact), "fail ibv_post_send on qp 0 on 2 with EIO, bad_wr second");
}

TEST(FaultReplay, ChanceAndTimeBecomeCounts) {
  auto player = player_of(
      "seed 4\ncomplete send with 50% with FATAL_ERR as first\n"
      "receive late 5ms after 1s\ncm REJECTED after 2s");
  player.made_qp(70);
  std::vector<std::string> log;
  for (int i = 0; i < 20 && log.size() < 2; ++i) {
    if (const auto struck = player.completes(70, false, 0s)) log.push_back(text_of(struck->exact));
  }
  ASSERT_EQ(log.size(), 2U);
  EXPECT_TRUE(log[0].starts_with("complete send on qp 0 on ")) << log[0];
  EXPECT_TRUE(log[0].ends_with(" with FATAL_ERR as first")) << log[0];
  EXPECT_TRUE(log[1].ends_with(" with FATAL_ERR")) << "a name is that of one rule: " << log[1];
  EXPECT_FALSE(player.receives(70, 0s));
  EXPECT_EQ(text_of(player.receives(70, 1s)->exact), "receive late 5ms on qp 0 on 2");
  constexpr int kEstablished = 9;
  EXPECT_FALSE(player.fetches(kEstablished, 1s));
  EXPECT_EQ(text_of(player.fetches(kEstablished, 3s)->struck.exact),
            "cm REJECTED on 2 with ECONNREFUSED");
}

TEST(FaultReplay, WhatComesByItselfIsBehindTheLastCompletion) {
  auto player = player_of("kill SIGTERM after 2s as over");
  player.made_qp(70);
  player.made_qp(90);
  const auto action = player.next_action();
  ASSERT_TRUE(action);
  EXPECT_EQ(text_of(player.exact_of(*action, 2500ms)), "kill SIGTERM after 2500ms as over");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(player.completes(70, false, 0s));
  EXPECT_FALSE(player.completes(90, true, 0s));
  EXPECT_FALSE(player.completes(90, true, 0s));
  EXPECT_EQ(text_of(player.exact_of(*action, 2500ms)),
            "kill SIGTERM at receive completion 2 of qp 1 as over");
}

TEST(FaultReplay, WhatComesByItselfComesAtItsCompletion) {
  auto player = player_of(
      "disconnect on qp 1 at receive completion 2 of qp 0\n"
      "kill SIGTERM after 1s");
  player.made_qp(70);
  EXPECT_EQ(player.next_action()->rule.effect, Effect::kKill);
  EXPECT_FALSE(player.completes(70, true, 0s));
  EXPECT_FALSE(player.completes(70, false, 0s)) << "a send request";
  EXPECT_EQ(player.next_action()->rule.effect, Effect::kKill);
  EXPECT_FALSE(player.completes(70, true, 0s));
  const auto action = player.next_action();
  EXPECT_EQ(action->rule.effect, Effect::kDisconnect);
  EXPECT_TRUE(action->by_rule);
  player.acted(*action);
  EXPECT_EQ(player.next_action()->rule.effect, Effect::kKill);
}

TEST(FaultReplay, OctetsAreThoseOfOneConnection) {
  auto player = player_of("link stall 1ms every 2s as slow\nlink cut on qp 1 at 5kB");
  player.made_qp(70);
  const FaultRule exact = player.exact_of(70, 1, 4000);
  EXPECT_EQ(text_of(exact), "link stall 1ms on qp 0 at 4000B as slow");
  EXPECT_TRUE(player.had_effect(1, 0s));
  EXPECT_FALSE(player.had_effect(1, 0s)) << "once more";
  EXPECT_TRUE(player.misfits(70, true).empty()) << "the cut is another one's";
}

}  // namespace
}  // namespace weft::faults
