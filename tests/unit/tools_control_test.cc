// The control connection against a peer that may be anyone.
#include "weft/perf/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace weft::cli {
namespace {

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    control = ControlConnection(UniqueFd(fds[0]));
    peer = UniqueFd(fds[1]);
  }
  void peer_says(const std::string& text) {
    ASSERT_EQ(write(peer.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  ControlConnection control;
  UniqueFd peer;
};

TEST(Control, TakesMessagesOneByOneHoweverTheyArrive) {
  Pair pair;
  pair.peer_says("{\"type\":\"a\"}\n{\"type\":");
  EXPECT_EQ(get_text(*pair.control.receive(1000), "type"), "a");
  EXPECT_FALSE(pair.control.receive_now()->has_value());
  pair.peer_says("\"b\"}\n");
  EXPECT_EQ(get_text(*pair.control.receive(1000), "type"), "b");
}

TEST(Control, RefusesWhatIsNoMessage) {
  for (const char* text :
       {"\n", "hello\n", "[1,2]\n", "{\"type\":7}\n", "{}\n", "{\"type\":\"\"}\n",
        "GET / HTTP/1.1\r\n", "{\"type\":\"a\"\n", "\xff\xfe\n"}) {
    Pair pair;
    pair.peer_says(text);
    EXPECT_FALSE(pair.control.receive(1000).has_value()) << text;
  }
}

TEST(Control, RefusesALineWithoutEnd) {
  Pair pair;
  const std::string chunk(4096, 'x');
  bool refused = false;
  for (std::size_t sent = 0; sent < 2 * kControlLineBytes && !refused; sent += chunk.size()) {
    pair.peer_says(chunk);
    refused = !pair.control.receive_now().has_value();
  }
  EXPECT_TRUE(refused);
}

TEST(Control, SurvivesDeepNesting) {
  Pair pair;
  pair.peer_says("{\"type\":" + std::string(20000, '[') + "\n");
  EXPECT_FALSE(pair.control.receive(1000).has_value());
}

TEST(Control, SaysThatThePeerHasClosed) {
  Pair pair;
  pair.peer.reset();
  const auto message = pair.control.receive(1000);
  ASSERT_FALSE(message.has_value());
  EXPECT_NE(message.error().message.find("closed"), std::string::npos);
}

TEST(Control, TurnsAFailureOfThePeerIntoOneOfOurs) {
  Pair pair;
  pair.peer_says("{\"type\":\"failed\",\"message\":\"no room\"}\n");
  const auto message = pair.control.expect("ready", 1000);
  ASSERT_FALSE(message.has_value());
  EXPECT_NE(message.error().message.find("no room"), std::string::npos);
}

TEST(Control, AccessorsGiveDefaultsForWhatIsMissingOrOfAnotherType) {
  const Json object = Json::parse(R"({"n":5,"neg":-5,"text":"x","real":1.5,"flag":true})");
  EXPECT_EQ(get_count(object, "n"), 5U);
  EXPECT_EQ(get_count(object, "neg", 3), 3U);
  EXPECT_EQ(get_count(object, "real", 3), 3U);
  EXPECT_EQ(get_count(object, "text", 3), 3U);
  EXPECT_EQ(get_count(object, "missing", 3), 3U);
  EXPECT_EQ(get_text(object, "n"), "");
  EXPECT_EQ(get_number(object, "neg"), -5);
  EXPECT_FALSE(get_bool(object, "n"));
  EXPECT_TRUE(get_bool(object, "flag"));
}

TEST(Watch, NoticesThatThePeerHasGone) {
  Pair pair;
  Watch watch(pair.control, 60);
  EXPECT_TRUE(watch.check().has_value());
  pair.peer.reset();
  usleep(40000);  // it looks every 20 ms
  EXPECT_FALSE(watch.check().has_value());
}

TEST(Watch, LeavesTheExpectedMessageToWhoeverReceivesNext) {
  Pair pair;
  pair.peer_says("{\"type\":\"report?\"}\n");
  Watch watch(pair.control, 60, "report?");
  EXPECT_TRUE(watch.check().has_value());
  EXPECT_EQ(get_text(*pair.control.receive(1000), "type"), "report?");
}

TEST(Watch, FailsWhenItsTimeIsUp) {
  Pair pair;
  Watch watch(pair.control, 0);
  EXPECT_FALSE(watch.check().has_value());
}

TEST(Watch, PrefersThePeersOwnExplanation) {
  Pair pair;
  pair.peer_says("{\"type\":\"failed\",\"message\":\"verification failed\"}\n");
  Watch watch(pair.control, 60);
  const Failure why = watch.explain({"connection lost"});
  EXPECT_NE(why.message.find("verification failed"), std::string::npos);
  EXPECT_NE(why.message.find("connection lost"), std::string::npos);
}

}  // namespace
}  // namespace weft::cli
