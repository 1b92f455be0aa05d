#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "io/engine.h"
#include "io/socket.h"
#include "os/fd.h"
#include "os/signal_queue.h"

namespace weft::io {
namespace {

// Runs `body` in a child of fork(); true if it returned true there.
bool in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

class NoHandler final : public Handler {};

TEST(Fork, GuardTellsTheChildFromItsParent) {
  const os::ForkGuard guard;
  EXPECT_TRUE(in_child([&] { return guard.forked() && !os::ForkGuard().forked(); }));
  EXPECT_FALSE(guard.forked());
}

TEST(Fork, ConnectionsAreClosedInTheChildAndOthersAreNot) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const os::Fd connection = os::Fd::closed_in_child(pair[0]);
  const os::Fd other(pair[1]);
  EXPECT_TRUE(in_child([&] { return !is_open(pair[0]) && is_open(pair[1]); }));
  EXPECT_TRUE(is_open(pair[0]));
}

TEST(Fork, ChildsCopyOfAConnectionDoesNotCloseANumberThatIsReused) {
  os::Fd connection = os::Fd::closed_in_child(eventfd(0, 0));
  EXPECT_TRUE(in_child([&] {
    const int reused = eventfd(0, 0);
    if (reused != connection.get()) return false;
    connection.reset();
    return is_open(reused);
  }));
}

TEST(Fork, ClosedConnectionsAreForgotten) {
  int number = -1;
  {
    const os::Fd connection = os::Fd::closed_in_child(eventfd(0, 0));
    number = connection.get();
  }
  const os::Fd reused(eventfd(0, 0));
  ASSERT_EQ(reused.get(), number);
  EXPECT_TRUE(in_child([&] { return is_open(number); }));
}

TEST(Fork, EngineRefusesInTheChildAndGoesOnInTheParent) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads in a child";
#endif
  auto engine = std::move(*Engine::create());
  const os::Fd fd(eventfd(1, EFD_NONBLOCK));
  const auto handler = std::make_shared<NoHandler>();
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN | EPOLLET, handler));
  EXPECT_TRUE(in_child([&] {
    const auto added = engine->add(fd.get(), EPOLLIN, handler);
    const auto posted = engine->post([] {});
    engine->remove(fd.get());
    const bool refused = !added && added.error() == Error::kBadState && !posted &&
                         engine->schedule(os::now(), handler) == 0;
    engine.reset();
    auto mine = Engine::create();
    return refused && mine && (*mine)->post([] {}).has_value();
  }));
  // Still registered: the child has taken nothing away.
  EXPECT_FALSE(engine->add(fd.get(), EPOLLIN, handler));
  EXPECT_TRUE(engine->modify(fd.get(), EPOLLIN | EPOLLET));
  engine->remove(fd.get());
}

TEST(Fork, SignalOfTheParentIsNotReadByTheChild) {
  auto signal = std::move(*os::SignalQueue<int>::create());
  signal->push(1);
  EXPECT_TRUE(in_child([&] {
    const auto taken = signal->next(std::chrono::nanoseconds(0));
    signal->push(2);
    return !taken && taken.error() == Error::kBadState;
  }));
  EXPECT_EQ(signal->next(std::chrono::nanoseconds(0)).value_or(0), 1);
  EXPECT_FALSE(signal->next(std::chrono::nanoseconds(0)));
}

}  // namespace
}  // namespace weft::io
