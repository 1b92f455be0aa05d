// `weft stat`: from counters to rates, and how they are shown.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "weft/stat/rates.h"
#include "weft/stat/show.h"

namespace weft::cli {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kWrite = 0, kSend = 3;

ProcessCounters sample(std::int64_t age_s, std::uint64_t scale) {
  ProcessCounters out;
  out.age_ns = age_s * kSecond;
  Counters& c = out.counters;
  c.tx_messages[kWrite] = 100 * scale;
  c.rx_messages[kSend] = 7 * scale;
  c.tx_bytes = 8000 * scale;
  c.tx_fpdus = 128 * scale;
  c.tx_calls = 2 * scale;
  c.tx_blocked = 3 * scale;
  c.polls = 40 * scale;
  c.empty_polls = 10 * scale;
  c.wakeups = 5 * scale;
  return out;
}

TEST(StatRates, AreDifferencesPerSecondOfTheOtherProcess) {
  const Rates r = rates_between(sample(10, 1), sample(12, 3));
  EXPECT_DOUBLE_EQ(r.seconds, 2);
  EXPECT_DOUBLE_EQ(r.out.messages[kWrite], 100);
  EXPECT_DOUBLE_EQ(r.in.messages[kSend], 7);
  EXPECT_DOUBLE_EQ(r.out.idle_calls, 3);
  EXPECT_DOUBLE_EQ(r.wakeups, 5);
  EXPECT_DOUBLE_EQ(r.empty_share.value(), 0.25);
}

TEST(StatRates, QuotientsAreOfTheIntervalAndAbsentWithoutCalls) {
  const Rates r = rates_between(sample(10, 1), sample(12, 3));
  EXPECT_DOUBLE_EQ(r.out.fpdus_per_call.value(), 64);
  EXPECT_DOUBLE_EQ(r.out.bytes_per_call.value(), 4000);
  EXPECT_FALSE(r.in.fpdus_per_call.has_value());
  EXPECT_FALSE(r.in.bytes_per_call.has_value());
  EXPECT_FALSE(rates_between({}, {}).empty_share.has_value());
}

TEST(StatRates, ANewDeviceOfTheProcessStartsAnew) {
  const Rates r = rates_between(sample(100, 50), sample(2, 1));
  EXPECT_DOUBLE_EQ(r.seconds, 2);
  EXPECT_DOUBLE_EQ(r.out.messages[kWrite], 50);
}

TEST(StatShow, TextNamesOnlyOperationsThatHappened) {
  const std::string text =
      stat_text({7, "server", false}, sample(12, 3), rates_between(sample(10, 1), sample(12, 3)));
  EXPECT_NE(text.find("7 server: 0 connections"), std::string::npos) << text;
  EXPECT_NE(text.find("write"), std::string::npos) << text;
  EXPECT_NE(text.find("25.0 % found nothing"), std::string::npos) << text;
  EXPECT_EQ(text.find("atomic"), std::string::npos) << text;
  EXPECT_EQ(text.find("bad CRCs"), std::string::npos) << text;
}

TEST(StatShow, ABadCrcIsNews) {
  ProcessCounters after = sample(12, 3);
  after.counters.crc_errors = 2;
  const std::string text =
      stat_text({7, "server", false}, after, rates_between(sample(10, 1), after));
  EXPECT_NE(text.find("bad CRCs 2"), std::string::npos) << text;
}

TEST(StatShow, JsonIsOneLineAndHasTheCountersOnlyForTotals) {
  const auto line = [](bool totals) {
    const std::string text =
        stat_json({7, "server", totals}, sample(12, 3), rates_between({}, sample(12, 3)));
    EXPECT_EQ(text.find('\n'), text.size() - 1);
    return nlohmann::json::parse(text);
  };
  EXPECT_DOUBLE_EQ(line(false)["out"]["operations_per_s"]["write"].get<double>(), 25);
  EXPECT_TRUE(line(false)["in"]["bytes_per_call"].is_null());
  EXPECT_FALSE(line(false).contains("totals"));
  EXPECT_EQ(line(true)["totals"]["tx_messages"][kWrite], 300);
}

}  // namespace
}  // namespace weft::cli
