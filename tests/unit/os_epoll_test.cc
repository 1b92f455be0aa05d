// Sleeping in epoll, with the kernel's call for nanoseconds and without it.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

#include "os/epoll.h"
#include "os/fd.h"

namespace weft::os {
namespace {

class EpollSleep : public ::testing::TestWithParam<bool> {
 protected:
  EpollSleep() { epoll_pretend_old_kernel(GetParam()); }
  ~EpollSleep() override { epoll_pretend_old_kernel(false); }
};

TEST_P(EpollSleep, EndsByTimeOrByAnEvent) {
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  const Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  wanted.data.u64 = 7;
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &wanted), 0);
  std::array<epoll_event, 4> events{};
  EXPECT_EQ(epoll_sleep(epoll.get(), events, Duration{0}), 0);
  EXPECT_EQ(epoll_sleep(epoll.get(), events, Duration{300'000}), 0);
  const std::uint64_t one = 1;
  ASSERT_EQ(write(event.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  for (const Duration limit : {Duration{-1}, Duration{0}, Duration{5'000'000'000}}) {
    ASSERT_EQ(epoll_sleep(epoll.get(), events, limit), 1);
    EXPECT_EQ(events[0].data.u64, 7U);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, EpollSleep, ::testing::Values(false, true),
                         [](const auto& old) { return old.param ? "Old" : "New"; });

}  // namespace
}  // namespace weft::os
