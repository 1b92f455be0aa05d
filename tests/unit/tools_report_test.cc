#include "weft/perf/perf_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace weft::cli {
namespace {

RoundResult round_of(double gb_per_s, double latency_us, std::uint64_t size) {
  RoundResult round;
  round.has_bandwidth = true;
  round.bytes_per_s = gb_per_s * 1e9;
  round.messages_per_s = round.bytes_per_s / static_cast<double>(size);
  round.bytes = static_cast<std::uint64_t>(round.bytes_per_s);  // one second
  round.messages = round.bytes / size;
  round.client_cpu_s = 1;
  round.server_cpu_s = 0.5;
  round.has_latency = true;
  round.latency = {latency_us, latency_us, 2 * latency_us, 3 * latency_us, 4 * latency_us, 100};
  return round;
}

// Three rounds of an RDMA Write beside TCP: 2, 1 and 6 GB/s beside 4, 4 and 4.
RunResults example() {
  RunResults results;
  results.conditions.weft_version = "0.1.0";
  results.conditions.rounds = 3;
  results.conditions.mode = "poll";
  results.conditions.tcp_congestion = "same";
  ContenderResult write;
  write.spec.size = 4096;
  for (const double rate : {2.0, 1.0, 6.0}) write.rounds.push_back(round_of(rate, 3, 4096));
  write.client = {.congestion = "reno", .path = "tcp", .crc = true, .max_ulpdu_bytes = 16384};
  write.server.congestion = "reno";
  write.verified_bytes = 4096;
  write.verified_messages = 1;
  ContenderResult tcp = write;
  tcp.spec.transport = Transport::kTcp;
  tcp.spec.op = Operation::kSend;
  tcp.client.crc = false;
  tcp.rounds = {round_of(4, 2, 4096), round_of(4, 2, 4096), round_of(4, 2, 4096)};
  results.contenders = {write, tcp};
  return results;
}

TEST(ReportJson, HasTheMembersOfTheSchema) {
  const auto document = nlohmann::json::parse(report_json(example()));
  ASSERT_EQ(document["results"].size(), 2U);
  const auto& write = document["results"][0];
  EXPECT_EQ(write["transport"], "rdma");
  EXPECT_EQ(write["op"], "write");
  EXPECT_EQ(write["size"], 4096);
  EXPECT_EQ(write["depth"], 128);
  EXPECT_EQ(write["crc"], true);
  EXPECT_DOUBLE_EQ(write["bandwidth_bytes_per_s"], 2e9);
  EXPECT_DOUBLE_EQ(write["messages_per_s"], 2e9 / 4096);
  EXPECT_DOUBLE_EQ(write["latency_us"]["p50"], 3);
  EXPECT_DOUBLE_EQ(write["latency_us"]["p99"], 6);
  EXPECT_DOUBLE_EQ(write["cpu_s_per_gb"]["client"], 0.5);
  EXPECT_DOUBLE_EQ(write["cpu_s_per_gb"]["server"], 0.25);
  EXPECT_EQ(write["verified_bytes"], 4096);
  EXPECT_EQ(document["results"][1]["transport"], "tcp");
  EXPECT_EQ(document["results"][1]["crc"], false);
}

TEST(ReportJson, GivesTheMedianOfTheRatiosRoundByRound) {
  const auto document = nlohmann::json::parse(report_json(example()));
  EXPECT_DOUBLE_EQ(document["results"][0]["ratio_to_tcp"], 0.5);
  EXPECT_DOUBLE_EQ(document["results"][0]["latency_ratio_to_tcp"], 1.5);
  EXPECT_TRUE(document["results"][0]["ratio_to_tcp_copy"].is_null());
}

TEST(ReportJson, SaysNullForWhatWasNotMeasured) {
  RunResults results = example();
  for (RoundResult& round : results.contenders[0].rounds) round.has_latency = false;
  const auto document = nlohmann::json::parse(report_json(results));
  EXPECT_TRUE(document["results"][0]["latency_us"]["p50"].is_null());
  EXPECT_TRUE(document["results"][0]["latency_us"].contains("p99"));
}

TEST(ReportTable, AlignsItsColumns) {
  const std::string table = report_table(example());
  const std::size_t begin = table.find("size  contender");
  ASSERT_NE(begin, std::string::npos) << table;
  const std::string heading = table.substr(table.rfind('\n', begin) + 1,
                                           table.find('\n', begin) - table.rfind('\n', begin) - 1);
  const std::size_t rdma = table.find("4 KiB  rdma write");
  const std::size_t tcp = table.find("4 KiB  tcp");
  ASSERT_NE(rdma, std::string::npos) << table;
  ASSERT_NE(tcp, std::string::npos) << table;
  // Right-aligned figures end where their title ends.
  const std::size_t end = heading.find("messages/s") + 10;
  for (const std::size_t line : {table.rfind('\n', rdma) + 1, table.rfind('\n', tcp) + 1}) {
    EXPECT_NE(table[line + end - 1], ' ');
    EXPECT_EQ(table[line + end], ' ');
  }
}

TEST(ReportTable, ShowsConditionsRatiosAndVerification) {
  const std::string table = report_table(example());
  EXPECT_NE(table.find("congestion control reno"), std::string::npos) << table;
  EXPECT_NE(table.find("CRC on"), std::string::npos);
  EXPECT_NE(table.find("16384"), std::string::npos);
  EXPECT_NE(table.find("0.50x"), std::string::npos);
  EXPECT_NE(table.find("every byte compared"), std::string::npos);
  EXPECT_NE(table.find("poll"), std::string::npos);
}

TEST(ReportTable, TellsBothSidesApartWhereTheyDiffer) {
  RunResults results = example();
  results.contenders[0].server.congestion = "bbr";
  EXPECT_NE(report_table(results).find("reno (client), bbr (server)"), std::string::npos);
}

TEST(ReportTable, NamesWhatDiffersBetweenContendersOnly) {
  RunResults results = example();
  EXPECT_EQ(report_table(results).find("batch"), std::string::npos);
  results.contenders.push_back(results.contenders[0]);
  results.contenders.back().spec.batch = 8;
  EXPECT_NE(report_table(results).find("batch"), std::string::npos);
}

TEST(ReportTable, SaysHowManyMessagesEachRowHadUnderWay) {
  const std::string table = report_table(example());
  EXPECT_NE(table.find("contender   depth"), std::string::npos) << table;
  EXPECT_NE(table.find("Depth: messages outstanding"), std::string::npos) << table;
}

TEST(ReportCsv, HasAsManyFieldsInEachLineAsInItsHeading) {
  const std::string csv = report_csv(example());
  std::size_t at = 0;
  std::ptrdiff_t commas = -1;
  int lines = 0;
  while (at < csv.size()) {
    const std::size_t end = csv.find('\n', at);
    const auto count = std::count(csv.begin() + static_cast<std::ptrdiff_t>(at),
                                  csv.begin() + static_cast<std::ptrdiff_t>(end), ',');
    if (commas < 0) commas = count;
    EXPECT_EQ(count, commas);
    at = end + 1;
    ++lines;
  }
  EXPECT_EQ(lines, 3);
}

}  // namespace
}  // namespace weft::cli
