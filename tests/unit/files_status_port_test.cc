// The port at which a server is asked how it is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "files/server/status_port.h"

namespace weft::files {
namespace {

constexpr int kLimitMs = 30000;

bool is_readable(int fd, int limit_ms) {
  pollfd ready{fd, POLLIN, 0};
  return poll(&ready, 1, limit_ms) == 1;
}

// As long as it lives, this process gets no further descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    close(lowest);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(lowest);
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(StatusPort, LetsCallersWaitWhileThereIsNoDescriptor) {
  const auto number = static_cast<std::uint16_t>(getpid());
  auto port = StatusPort::open(number);
  ASSERT_TRUE(port);
  const StatusPort::Answers answers{[] { return std::string("fine"); },
                                    [](const std::string&) { return Outcome<void>(); }};
  Outcome<std::string> said;
  std::atomic<bool> done{false};
  std::thread caller([&] {
    said = ask_status(number);
    done = true;
  });
  ASSERT_TRUE(is_readable(port->fd(), kLimitMs));
  {
    const NoDescriptors none;
    port->answer(answers);
    EXPECT_FALSE(is_readable(port->fd(), 0)) << "a server that waits for it would find it at once";
    EXPECT_TRUE(port->has_deadline());
    port->tick(StatusPort::Clock::now() + std::chrono::hours(1));
    EXPECT_TRUE(is_readable(port->fd(), 0));
    port->answer(answers);
    EXPECT_FALSE(is_readable(port->fd(), 0));
  }
  port->tick(StatusPort::Clock::now() + std::chrono::hours(1));
  EXPECT_FALSE(port->has_deadline());
  // Behind the answer nothing is readable any more.
  for (int looks = 0; !done && looks < kLimitMs / 10; ++looks) {
    if (is_readable(port->fd(), 10)) port->answer(answers);
  }
  caller.join();
  EXPECT_EQ(said, "fine");
}

}  // namespace
}  // namespace weft::files
