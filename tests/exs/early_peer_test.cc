// A peer whose messages are here before rdma_cm has told of the connection.
#include <dlfcn.h>

#include <atomic>
#include <thread>

#include "liar.h"

namespace {

std::atomic<bool> events_wait{false};
const std::thread::id program = std::this_thread::get_id();

}  // namespace

// In place of librdmacm's, for this program and libexs. Its progress thread finds no event while
// they wait.
extern "C" __attribute__((visibility("default"))) int rdma_get_cm_event(rdma_event_channel* channel,
                                                                        rdma_cm_event** event) {
  if (events_wait && std::this_thread::get_id() != program) {
    errno = EAGAIN;
    return -1;
  }
  using Get = int (*)(rdma_event_channel*, rdma_cm_event**);
  static const auto real = reinterpret_cast<Get>(dlsym(RTLD_NEXT, "rdma_get_cm_event"));
  return real(channel, event);
}

namespace weft::exs_test {
namespace {

class EarlyPeer : public testing::TestWithParam<Way> {};

// The end that connects speaks first: until then its peer has no counters that could be right.
TEST_P(EarlyPeer, WhoSpeaksBeforeItIsSpokenToLosesItsConnection) {
  LyingListener liar;
  const int fd = new_socket(GetParam());
  const exs_qhandle_t q = exs_qcreate(4);
  Endpoint to = loopback(AF_INET, liar.port());
  ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, q, tag(1)), 0) << std::strerror(errno);
  liar.hear_request();
  events_wait = true;
  ASSERT_TRUE(liar.accept(bytes_of(hello_of(GetParam()))));
  EXPECT_TRUE(liar.say(header_of(Type::kCredit)));
  exs_event_t event{};
  const timeval now{0, 0};
  int got = 0;
  while (got == 0 && stats_of(fd).messages_received == 0) got = exs_qdequeue(q, &event, 1, &now);
  events_wait = false;
  if (got == 0) event = next_event(q);
  EXPECT_EQ(event.type, EXS_EVT_CONNECT);
  EXPECT_EQ(event.error, ECONNRESET);
  close_now(fd);
  EXPECT_EQ(exs_qdelete(q), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, EarlyPeer, testing::Values(kStream, kPacket),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace weft::exs_test
