#include "weft/common/parse.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

TEST(ParseSize, TakesPlainNumbersAndEverySuffix) {
  EXPECT_EQ(parse_size("1"), 1U);
  EXPECT_EQ(parse_size("50000"), 50000U);
  EXPECT_EQ(parse_size("64B"), 64U);
  EXPECT_EQ(parse_size("1k"), 1024U);
  EXPECT_EQ(parse_size("1K"), 1024U);
  EXPECT_EQ(parse_size("64KiB"), 65536U);
  EXPECT_EQ(parse_size("50KB"), 50000U);
  EXPECT_EQ(parse_size("50kB"), 50000U);
  EXPECT_EQ(parse_size("1M"), 1U << 20U);
  EXPECT_EQ(parse_size("1 MiB"), 1U << 20U);
  EXPECT_EQ(parse_size("1MB"), 1000000U);
  EXPECT_EQ(parse_size("1g"), 1U << 30U);
  EXPECT_EQ(parse_size("1GB"), 1000000000U);
  EXPECT_EQ(parse_size("1.5k"), 1536U);
  EXPECT_EQ(parse_size("1.4MB"), 1400000U);
}

TEST(ParseSize, RefusesWhatIsNoSizeAndSaysWhatIs) {
  for (const char* text : {"", "k", "-1", "+1", "1e6", "0x10", "inf", "nan", "1..2", ".", "1T",
                           "12 apples", "1.5", "0.3k", "99999999999G"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.has_value()) << text;
    EXPECT_EQ(size.error().exit_code, kExitUsage);
    EXPECT_NE(size.error().message.find(text), std::string::npos) << size.error().message;
  }
  EXPECT_NE(parse_size("7q").error().message.find("KiB"), std::string::npos);
}

TEST(ParseCount, KeepsToItsRangeOnBothSides) {
  EXPECT_EQ(parse_count("1", 1, 10), 1U);
  EXPECT_EQ(parse_count("10", 1, 10), 10U);
  EXPECT_FALSE(parse_count("0", 1, 10).has_value());
  EXPECT_FALSE(parse_count("11", 1, 10).has_value());
  EXPECT_FALSE(parse_count("99999999999999999999999", 1, ~0ULL).has_value());
  EXPECT_FALSE(parse_count("5x", 1, 10).has_value());
  EXPECT_FALSE(parse_count("", 0, 10).has_value());
  EXPECT_NE(parse_count("11", 1, 10).error().message.find("from 1 to 10"), std::string::npos);
}

TEST(ParseSeconds, TakesUnits) {
  EXPECT_DOUBLE_EQ(*parse_seconds("0.5"), 0.5);
  EXPECT_DOUBLE_EQ(*parse_seconds("2s"), 2);
  EXPECT_DOUBLE_EQ(*parse_seconds("200ms"), 0.2);
  EXPECT_DOUBLE_EQ(*parse_seconds("50us"), 50e-6);
  EXPECT_DOUBLE_EQ(*parse_seconds("2m"), 120);
  for (const char* text : {"", "-1", "s", "1h", "inf", "nan"}) {
    EXPECT_FALSE(parse_seconds(text).has_value()) << text;
  }
}

TEST(ParseOnOff, TakesNothingElse) {
  EXPECT_TRUE(*parse_on_off("on"));
  EXPECT_FALSE(*parse_on_off("OFF"));
  for (const char* text : {"", "yes", "1", "onn"}) EXPECT_FALSE(parse_on_off(text).has_value());
}

TEST(SplitList, KeepsOrderAndDropsBlanks) {
  EXPECT_EQ(split_list("write, read ,send"), (std::vector<std::string>{"write", "read", "send"}));
  EXPECT_EQ(split_list("one"), (std::vector<std::string>{"one"}));
  EXPECT_TRUE(split_list("").empty());
  // An empty item is kept, so that whoever reads the items can refuse it.
  EXPECT_EQ(split_list("a,,b"), (std::vector<std::string>{"a", "", "b"}));
}

TEST(ParseSweep, GivesPowersOfTwoAndBothEnds) {
  using Sizes = std::vector<std::uint64_t>;
  EXPECT_EQ(*parse_sweep("64..256"), (Sizes{64, 128, 256}));
  EXPECT_EQ(*parse_sweep("3..20"), (Sizes{3, 4, 8, 16, 20}));
  EXPECT_EQ(*parse_sweep("1k..1k"), (Sizes{1024}));
  EXPECT_EQ(*parse_sweep("1..1"), (Sizes{1}));
  for (const char* text : {"64", "..", "0..4", "8..4", "a..b", "1..x"}) {
    EXPECT_FALSE(parse_sweep(text).has_value()) << text;
  }
}

TEST(ParseAssignment, SplitsAtTheFirstEqualsSign) {
  const auto pair = parse_assignment("pcap=/tmp/a=b");
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(pair->first, "pcap");
  EXPECT_EQ(pair->second, "/tmp/a=b");
  EXPECT_TRUE(parse_assignment("log_file=").has_value());
  EXPECT_FALSE(parse_assignment("crc").has_value());
  EXPECT_FALSE(parse_assignment("=on").has_value());
}

TEST(ParsePeer, FillsInTheDefaultPort) {
  const auto peer = parse_peer("127.0.0.1", 7471);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->text(), "127.0.0.1:7471");
  EXPECT_EQ(parse_peer("[::1]:99", 7471)->text(), "[::1]:99");
  EXPECT_FALSE(parse_peer("127.0.0.1:99999", 7471).has_value());
  EXPECT_FALSE(parse_peer("127.0.0.1:x", 7471).has_value());
}

TEST(ParseListen, TakesAPortAlone) {
  for (const char* text : {"7480", ":7480"}) {
    const auto where = parse_listen(text, 7471);
    ASSERT_TRUE(where.has_value()) << text;
    EXPECT_TRUE(where->is_any()) << text;
    EXPECT_EQ(where->port(), 7480) << text;
  }
  EXPECT_EQ(parse_listen("", 7471)->port(), 7471);
  EXPECT_EQ(parse_listen("127.0.0.1:0", 7471)->text(), "127.0.0.1:0");
  EXPECT_FALSE(parse_listen("65536", 7471).has_value());
  EXPECT_FALSE(parse_listen("127.0.0.1:-1", 7471).has_value());
}

TEST(FormatSize, IsShortAndExact) {
  EXPECT_EQ(format_size(64), "64 B");
  EXPECT_EQ(format_size(1000), "1000 B");
  EXPECT_EQ(format_size(4096), "4 KiB");
  EXPECT_EQ(format_size(50000), "50 KB");
  EXPECT_EQ(format_size(1400000), "1400 KB");
  EXPECT_EQ(format_size(1U << 20U), "1 MiB");
  EXPECT_EQ(format_size(1U << 30U), "1 GiB");
  EXPECT_EQ(format_size(1000001), "1000001 B");
}

TEST(FormatSi, KeepsThreeDigits) {
  EXPECT_EQ(format_si(0), "0.00 ");
  EXPECT_EQ(format_si(1), "1.00 ");
  EXPECT_EQ(format_si(353000), "353 k");
  EXPECT_EQ(format_si(9.421e9), "9.42 G");
  EXPECT_EQ(format_si(99.96), "100 ");
  EXPECT_EQ(format_si(999.6), "1.00 k");
}

}  // namespace
}  // namespace weft::cli
