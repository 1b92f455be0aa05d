#include "weft/common/where.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// "HOST PORT", "-" for what was not written.
std::string shown(const Outcome<HostPort>& found) {
  if (!found) return "refused: " + found.error().message;
  return (found->host.empty() ? "-" : found->host) + " " +
         (found->port ? std::to_string(*found->port) : "-");
}

std::string shown(const Outcome<std::optional<RemotePath>>& found) {
  if (!found) return "refused: " + found.error().message;
  if (!*found) return "local";
  return (*found)->host + " " + std::to_string((*found)->port) + " " + (*found)->path;
}

std::string remote(std::string_view text, std::optional<std::uint16_t> option = {}) {
  return shown(parse_remote_path(text, option, 7180));
}

std::string remote_hint(std::string_view text, std::optional<std::uint16_t> option = {}) {
  const auto found = parse_remote_path(text, option, 7180);
  return found && *found ? (*found)->hint : "no remote path";
}

TEST(ParseHostPort, TakesEveryForm) {
  EXPECT_EQ(shown(parse_host_port("host")), "host -");
  EXPECT_EQ(shown(parse_host_port("host:7200")), "host 7200");
  EXPECT_EQ(shown(parse_host_port("192.0.2.1")), "192.0.2.1 -");
  EXPECT_EQ(shown(parse_host_port("192.0.2.1:1")), "192.0.2.1 1");
  EXPECT_EQ(shown(parse_host_port("192.0.2.1:65535")), "192.0.2.1 65535");
  EXPECT_EQ(shown(parse_host_port("[::1]:7200")), "::1 7200");
  EXPECT_EQ(shown(parse_host_port("[::1]")), "::1 -");
  EXPECT_EQ(shown(parse_host_port("::1")), "::1 -");
  EXPECT_EQ(shown(parse_host_port("fe80::1%eth0")), "fe80::1%eth0 -");
  EXPECT_EQ(shown(parse_host_port("[fe80::1%eth0]:7200")), "fe80::1%eth0 7200");
  EXPECT_EQ(shown(parse_host_port(" host:7200 ")), "host 7200");
  EXPECT_THAT(parse_host_port("host:7200")->hint, IsEmpty());
}

TEST(ParseHostPort, RefusalsNameTheTextAndSayWhatToWrite) {
  const struct {
    const char* text;
    const char* wrong;
    const char* remedy;
  } kCases[] = {
      {"host:65536", "'65536' in 'host:65536'", "from 1 to 65535"},
      {"host:0", "'0' in 'host:0'", "from 1 to 65535"},
      {"host:", "'' in 'host:'", "from 1 to 65535"},
      {"host:http", "'http'", "from 1 to 65535"},
      {"host:-1", "'-1'", "from 1 to 65535"},
      {"[::1]:x", "'x' in '[::1]:x'", "from 1 to 65535"},
      {"[::1]7200", "'[::1]7200'", "[IPV6]:PORT"},
      {"[::1", "'[::1'", "[IPV6]:PORT"},
      {"[host]:1", "'[host]:1'", "HOST:PORT"},
      {"::1:72000", "'::1:72000'", "[IPV6]:PORT"},
      {"a:b:1", "'a:b:1'", "HOST:PORT"},
      {"", "''", "HOST"},
      {"7200", "'7200' is a port", "localhost:7200"},
  };
  for (const auto& one : kCases) {
    const auto found = parse_host_port(one.text);
    ASSERT_FALSE(found) << one.text;
    EXPECT_EQ(found.error().exit_code, kExitUsage) << one.text;
    EXPECT_THAT(found.error().message, HasSubstr(one.wrong));
    EXPECT_THAT(found.error().message, HasSubstr(one.remedy));
  }
}

TEST(ParseHostPort, HintsWhereAPortMayHaveBeenMeant) {
  EXPECT_EQ(shown(parse_host_port("::1:7200")), "::1:7200 -");
  EXPECT_THAT(parse_host_port("::1:7200")->hint, HasSubstr("[::1]:7200"));
  // Addresses that end like this are common.
  EXPECT_THAT(parse_host_port("2001:db8::5:1")->hint, IsEmpty());
  EXPECT_THAT(parse_host_port("fd77::1000")->hint, IsEmpty());
  // The system takes no host for this machine.
  EXPECT_EQ(shown(parse_host_port(":7200")), "127.0.0.1 7200");
  EXPECT_THAT(parse_host_port(":7200")->hint, HasSubstr("HOST:PORT"));
}

TEST(ParseListenPlace, TakesEveryForm) {
  EXPECT_EQ(shown(parse_listen_place("")), "- -");
  EXPECT_EQ(shown(parse_listen_place("7200")), "- 7200");
  EXPECT_EQ(shown(parse_listen_place("0")), "- 0");
  EXPECT_EQ(shown(parse_listen_place(":7200")), "- 7200");
  EXPECT_EQ(shown(parse_listen_place("127.0.0.1")), "127.0.0.1 -");
  EXPECT_EQ(shown(parse_listen_place("127.0.0.1:0")), "127.0.0.1 0");
  EXPECT_EQ(shown(parse_listen_place("localhost:7200")), "localhost 7200");
  EXPECT_EQ(shown(parse_listen_place("[::]:7200")), ":: 7200");
  EXPECT_EQ(shown(parse_listen_place("::1")), "::1 -");
  EXPECT_EQ(shown(parse_listen_place("[::1]")), "::1 -");
  EXPECT_THAT(parse_listen_place("::1:7200")->hint, HasSubstr("[::1]:7200"));
}

TEST(ParseListenPlace, RefusalsNameTheTextAndSayWhatToWrite) {
  for (const char* text : {"65536", "99999999999", "127.0.0.1:65536", "127.0.0.1:-1", "7200:7201",
                           "host:", ":", "[::1]:", "[::1", "::1:72000", "1:2:3"}) {
    const auto found = parse_listen_place(text);
    ASSERT_FALSE(found) << text;
    EXPECT_EQ(found.error().exit_code, kExitUsage) << text;
    EXPECT_THAT(found.error().message, HasSubstr(std::string("'") + text + "'"));
    EXPECT_THAT(found.error().message, HasSubstr("; write "));
  }
}

TEST(ParseRemotePath, TakesEveryForm) {
  EXPECT_EQ(remote("host:file"), "host 7180 file");
  EXPECT_EQ(remote("host:a/b:c"), "host 7180 a/b:c");
  EXPECT_EQ(remote("host:"), "host 7180 ");
  EXPECT_EQ(remote("host:/a"), "host 7180 /a");
  EXPECT_EQ(remote("host:7200:file"), "host 7200 file");
  EXPECT_EQ(remote("host:7200:"), "host 7200 ");
  EXPECT_EQ(remote("host:7200:a/b:c"), "host 7200 a/b:c");
  EXPECT_EQ(remote("[::1]:file"), "::1 7180 file");
  EXPECT_EQ(remote("[::1]:7200:file"), "::1 7200 file");
  EXPECT_EQ(remote("weft://host/file"), "host 7180 file");
  EXPECT_EQ(remote("weft://host"), "host 7180 ");
  EXPECT_EQ(remote("weft://host:7200/2024/file"), "host 7200 2024/file");
  EXPECT_EQ(remote("weft://[::1]:7200/file"), "::1 7200 file");
  for (const char* text : {"host:file", "host:7200:file", "host:7200:", "host:20a/b", "host:20a",
                           "host:70000/a", "host:./2024/a", "weft://host:7200/file"}) {
    EXPECT_THAT(remote_hint(text), IsEmpty()) << text;
  }
}

TEST(ParseRemotePath, LeavesPathsOfThisMachineAlone) {
  for (const char* text : {"file", "./a:b", "a/b:c", "/a:7200:b", ":b", "2024/file"}) {
    EXPECT_EQ(remote(text), "local");
  }
}

TEST(ParseRemotePath, OptionNamesThePortWhereThePathDoesNot) {
  EXPECT_EQ(remote("host:file", 7300), "host 7300 file");
  EXPECT_EQ(remote("host:7200:file", 7300), "host 7200 file");
  EXPECT_EQ(remote("weft://host:7200/file", 7300), "host 7200 file");
}

TEST(ParseRemotePath, NumberBeforeASlashIsAPortUnlessTheOptionNamesOne) {
  EXPECT_EQ(remote("127.0.0.1:7200/file"), "127.0.0.1 7200 file");
  EXPECT_EQ(remote("127.0.0.1:7200/"), "127.0.0.1 7200 ");
  const std::string hint = remote_hint("[::1]:7200/a/b");
  EXPECT_THAT(hint, HasSubstr("[::1]:7200:a/b"));
  EXPECT_THAT(hint, HasSubstr("[::1]:./7200/a/b"));
  EXPECT_EQ(remote("[::1]:7200:a/b"), remote("[::1]:7200/a/b"));
  EXPECT_EQ(remote("[::1]:./7200/a/b"), "::1 7180 7200/a/b");
  EXPECT_EQ(remote("127.0.0.1:2024/file", 7300), "127.0.0.1 7300 2024/file");
  EXPECT_THAT(remote_hint("127.0.0.1:2024/file", 7300), IsEmpty());
  // No port has this number, so it is the folder that it always was.
  EXPECT_EQ(remote("host:20240131/file"), "host 7180 20240131/file");
}

TEST(ParseRemotePath, NumberAloneIsAName) {
  EXPECT_EQ(remote("host:7200"), "host 7180 7200");
  EXPECT_THAT(remote_hint("host:7200"), HasSubstr("host:./7200"));
  EXPECT_THAT(remote_hint("host:7200"), HasSubstr("host:7200:"));
  EXPECT_EQ(remote("host:./7200"), "host 7180 7200");
  EXPECT_THAT(remote_hint("host:7200", 7300), IsEmpty());
}

TEST(ParseRemotePath, RefusalsNameTheTextAndSayWhatToWrite) {
  for (const char* text :
       {"host:70000:file", "host:0:file", "weft://host:x/file", "weft://host:/file",
        "weft://host:65536/", "weft:///file", "weft://", "weft://[::1]x/file"}) {
    const auto found = parse_remote_path(text, {}, 7180);
    ASSERT_FALSE(found) << text;
    EXPECT_EQ(found.error().exit_code, kExitUsage) << text;
    EXPECT_THAT(found.error().message, HasSubstr(std::string("'") + text + "'"));
    EXPECT_THAT(found.error().message, HasSubstr("; write "));
  }
}

}  // namespace
}  // namespace weft::cli
