// Many bytes, many sockets, and peers that die.
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "mover.h"

namespace weft::exs_test {
namespace {

class Stress : public testing::TestWithParam<Way> {};

TEST_P(Stress, RandomPiecesArriveAsTheyWereSent) {
  const std::uint64_t number = seed();
  SCOPED_TRACE("WEFT_SEED=" + std::to_string(number));
  std::mt19937_64 random(number);
  Pair pair(GetParam());
  Mover mover(pair, random, bytes_to_move(24));
  mover.run();
}

// The other end of the tests below, in a process of its own: sends and receives until it is killed.
TEST(StressChild, DISABLED_TalksUntilItIsKilled) {
  const char* port = std::getenv("EXS_TEST_PORT");
  ASSERT_NE(port, nullptr) << "a part of other tests";
  const char* type = std::getenv("EXS_TEST_TYPE");
  const char* provider = std::getenv("EXS_TEST_PROVIDER");
  const Way way{std::atoi(type), std::atoi(provider), AF_INET};
  const int fd = new_socket(way);
  Endpoint to = loopback(AF_INET, static_cast<std::uint16_t>(std::atoi(port)));
  ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), 0);
  const exs_qhandle_t q = exs_qcreate(64);
  Buffer out(200'000, 1);
  Buffer in(200'000, 2);
  for (int i = 0; i < 4; ++i) {
    exs_send(fd, out.data(), i % 2 == 0 ? 100 : out.size(), 0, q, tag(0), out.mh);
    exs_recv(fd, in.data(), in.size(), 0, q, tag(1), in.mh);
  }
  std::size_t size = 0;
  for (;;) {
    exs_event_t event;
    if (exs_qdequeue(q, &event, 1, nullptr) != 1 || event.error != 0) _exit(0);
    size = (size + 77'777) % out.size();
    if (event.type == EXS_EVT_SEND) exs_send(fd, out.data(), size + 1, 0, q, tag(0), out.mh);
    if (event.type == EXS_EVT_RECV) exs_recv(fd, in.data(), in.size(), 0, q, tag(1), in.mh);
  }
}

pid_t start_child(const Way& way, std::uint16_t port) {
  const std::string port_text = "EXS_TEST_PORT=" + std::to_string(port);
  const std::string type = "EXS_TEST_TYPE=" + std::to_string(way.type);
  const std::string provider = "EXS_TEST_PROVIDER=" + std::to_string(way.provider);
  std::vector<char*> environment;
  for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
  for (const std::string* one : {&port_text, &type, &provider}) {
    environment.push_back(const_cast<char*>(one->c_str()));
  }
  environment.push_back(nullptr);
  char name[] = "child";
  char filter[] = "--gtest_filter=StressChild.*";
  char disabled[] = "--gtest_also_run_disabled_tests";
  char* argv[] = {name, filter, disabled, nullptr};
  const pid_t child = vfork();
  if (child == 0) {
    execve("/proc/self/exe", argv, environment.data());
    _exit(127);
  }
  return child;
}

// Operations of the parent under way when the child dies, after `messages` events.
void kill_after(const Way& way, int messages) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  const exs_qhandle_t q = exs_qcreate(64);
  const Listener listener(way);
  const pid_t child = start_child(way, listener.port);
  ASSERT_GT(child, 0);
  const int fd = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(fd, 0);
  Buffer out(150'000, 1);
  Buffer in(200'000, 2);
  std::vector<int> ended(4096);
  int posted = 0;
  const auto post = [&](int type) {
    const auto ah = tag(posted);
    const ssize_t done =
        type == EXS_EVT_SEND
            ? exs_send(fd, out.data(), posted % 3 == 0 ? 50 : out.size(), 0, q, ah, out.mh)
            : exs_recv(fd, in.data(), in.size(), 0, q, ah, in.mh);
    if (done == 0) ++posted;
    return done == 0;
  };
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(post(i % 2 == 0 ? EXS_EVT_SEND : EXS_EVT_RECV));
  bool killed = false;
  int finished = 0;
  while (finished < posted) {
    if (!killed && finished >= messages) {
      kill(child, SIGKILL);
      killed = true;
    }
    const exs_event_t event = next_event(q);
    ASSERT_NE(event.type, 0) << "an operation without an end, after " << finished;
    ASSERT_EQ(++ended[static_cast<std::size_t>(event.ahandle)], 1);
    ++finished;
    if (!killed && posted < 4000) post(event.type);
  }
  waitpid(child, nullptr, 0);
  // And no event comes twice.
  exs_event_t extra;
  const timeval now{0, 0};
  EXPECT_EQ(exs_qdequeue(q, &extra, 1, &now), 0);
  close_now(fd);
  EXPECT_EQ(exs_qdelete(q), 0);
}

TEST_P(Stress, APeerThatIsKilledEndsEveryOperationOnce) {
  for (const int messages : {0, 3, 40}) kill_after(GetParam(), messages);
}

INSTANTIATE_TEST_SUITE_P(Every, Stress, testing::ValuesIn(kWays),
                         [](const auto& one) { return name_of(one.param); });

TEST(StressMany, AThousandSocketsOnOneQueue) {
  constexpr std::size_t kSockets = 1000;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  ASSERT_GE(files.rlim_cur, 8 * kSockets) << "the test needs that many descriptors";
  const Way way{SOCK_STREAM, EXS_PROVIDER_RDMA, AF_INET};
  const std::vector<Setting> small{
      {EXS_F_SETIMMEDIATE, 512}, {EXS_F_SETCREDITS, 8}, {EXS_F_SETRING, 4096}};
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  const exs_qhandle_t q = exs_qcreate(64);
  std::vector<int> left;
  std::vector<int> right;
  {
    const Listener listener(way, small);
    for (std::size_t i = 0; i < kSockets; ++i) {
      const int fd = new_socket(way);
      for (const Setting& one : small) ASSERT_EQ(exs_fcntl(fd, one.command, one.value), 0);
      Endpoint to = loopback(AF_INET, listener.port);
      ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, q, 0), 0);
      ASSERT_EQ(exs_accept(listener.fd, nullptr, 0, 0, q, 0), 0);
      left.push_back(fd);
      for (int events = 0; events < 2; ++events) {
        const exs_event_t event = next_event(q);
        ASSERT_EQ(event.error, 0) << std::strerror(event.error) << ", socket " << i;
        if (event.type == EXS_EVT_ACCEPT) right.push_back(exs_evt_accepted(&event));
      }
    }
  }
  ASSERT_EQ(right.size(), kSockets);
  std::vector<char> in(kSockets);
  for (std::size_t i = 0; i < kSockets; ++i) {
    ASSERT_EQ(exs_recv(right[i], &in[i], 1, 0, q, 0, kPlain), 0);
    const char byte = static_cast<char>(i);
    ASSERT_EQ(exs_send(left[i], &byte, 1, 0, q, 0, kPlain), 0);
  }
  std::vector<exs_event_t> events(EXS_EVTVEC_MAX);
  std::size_t seen = 0;
  const timeval limit{kWaitSeconds, 0};
  while (seen < 2 * kSockets) {
    const int got = exs_qdequeue(q, events.data(), -500, &limit);
    ASSERT_GT(got, 0);
    for (int i = 0; i < got; ++i) ASSERT_EQ(events[static_cast<std::size_t>(i)].error, 0);
    seen += static_cast<std::size_t>(got);
  }
  EXPECT_EQ(seen, 2 * kSockets);
  std::array<int, 256> counts{};
  for (const char byte : in) ++counts[static_cast<std::uint8_t>(byte)];
  EXPECT_EQ(counts[0], 4);
  EXPECT_EQ(counts[255], 3);
  for (const int fd : left) close_now(fd);
  for (const int fd : right) close_now(fd);
  EXPECT_EQ(exs_qdelete(q), 0);
}

}  // namespace
}  // namespace weft::exs_test
