// Lanes of the granted way, both ends in this process, at moments that programs meet by chance.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "os/clock.h"
#include "sockets/granted/holders.h"
#include "sockets/granted/watched.h"
#include "sockets_lanes_testing.h"

namespace {
int g_masked = 0;
}  // namespace

// In place of the C library's, to count.
extern "C" int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  ++g_masked;
  return sigprocmask(how, set, before) == 0 ? 0 : errno;
}

namespace weft::sockets::granted {
namespace {

TEST_F(Lanes, NumberThatIsCopiedWhileItsLaneIsMadeHasNone) {
  leave_to_kernel(a_, Why::kShared);
  join::begin(a_, *numbers::find(a_));
  EXPECT_EQ(lane_of(a_), nullptr);
}

TEST_F(Lanes, LaneOfANumberThatIsTheKernelsGoesWhenTheNumberCloses) {
  leave_to_kernel(a_, Why::kShared);
  const NewLane made = lanes::make(a_, *numbers::find(a_));
  ASSERT_NE(made.lane, nullptr);
  const Use use(made);
  leave_to_close(a_);
  EXPECT_EQ(lane_of(a_), nullptr);
}

TEST_F(Lanes, LaneIsNobodyElsesBeforeItsMakerHasWrittenToIt) {
  const NewLane made = lanes::make(a_, *numbers::find(a_));
  ASSERT_NE(made.lane, nullptr);
  leave_to_close(a_);  // another thread, before the maker goes on
  const NewLane other = lanes::make(b_, *numbers::find(b_));
  EXPECT_NE(other.lane, made.lane);
  const Use use(made);
  const Use use_of_other(other);
}

TEST_F(Lanes, WhatLiesInTheRingIsNotOvertakenByASecondThreadThatLeavesTheNumber) {
  join_both();
  put_in_ring("before ");
  lane_of(a_)->live = false;  // by the first one, which has not come to the ring yet
  leave_to_kernel(a_, Why::kShared);
  ASSERT_EQ(::send(a_, "behind", 6, 0), 6);
  std::string text = get(b_);
  if (text == "before ") text += get(b_);
  EXPECT_EQ(text, "before behind");
  numbers::find(a_)->lane = nullptr;  // as the first one does in the end
}

TEST_F(Lanes, FewOctetsOfAFileGoByTheRing) {
  const std::string text(20000, 'f');
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
  ASSERT_EQ(std::fflush(file), 0);
  join_both();
  lane_of(b_)->rings.in().store(GrantWord::kWindow, kWindowOpen);
  off64_t offset = 1000;
  const auto sendfile = [&](std::size_t count) {
    const auto plain = [&] { return ::sendfile64(a_, ::fileno(file), &offset, count); };
    return serve(a_, Call::kSends, plain, [&](Lane& lane) {
      return transmit_file(lane, a_, ::fileno(file), &offset, count, plain);
    });
  };
  EXPECT_EQ(sendfile(30000), 19000);  // as many as there are
  EXPECT_EQ(offset, 20000);
  EXPECT_EQ(unread(*lane_of(b_)), 19000U);
  EXPECT_EQ(sendfile(1), 0);
  offset = -1;
  EXPECT_EQ(sendfile(1), -1);
  EXPECT_EQ(errno, EINVAL);
  std::fclose(file);
}

TEST_F(Lanes, NumberThatAChildMayHaveIsTheKernels) {
  const std::uint32_t forks = numbers::forks();
  numbers::note_fork();  // by another thread, while the kernel makes the number
  numbers::note_fresh(a_, forks);
  EXPECT_EQ(numbers::find(a_)->calls.load(), kKernels);
  numbers::note_fresh(a_, numbers::forks());
  EXPECT_NE(numbers::find(a_)->calls.load(), kKernels);
}

TEST_F(Lanes, NumberIsTheKernelsInAChild) {
  join_both();
  numbers::in_child();
  for (const int fd : {a_, b_}) {
    EXPECT_EQ(numbers::find(fd)->calls.load(), kKernels);
    EXPECT_EQ(lane_of(fd), nullptr);
  }
}

TEST_F(Lanes, NumberThatAForkSharesHasALaneWhenTheOthersHaveClosedIt) {
  Number& mine = *numbers::find(a_);
  ASSERT_TRUE(holders::share(mine));
  ASSERT_TRUE(holders::share(mine));
  Number of_a_child{};
  of_a_child.holders = mine.holders.load();
  Number of_another{};
  of_another.holders = mine.holders.load();
  const auto send_some = [this] {
    for (int i = 0; i < 8; ++i) ASSERT_EQ(put(a_, "x"), 1);
  };
  send_some();
  EXPECT_EQ(lane_of(a_), nullptr);
  holders::drop(of_a_child);
  send_some();
  EXPECT_EQ(lane_of(a_), nullptr);
  holders::drop(of_another);
  EXPECT_TRUE(holders::sole(mine));
  send_some();
  EXPECT_NE(lane_of(a_), nullptr);
}

TEST_F(Lanes, NumberThatSomebodyUnknownMayHaveHasNoLane) {
  Number& mine = *numbers::find(a_);
  ASSERT_TRUE(holders::share(mine));
  ASSERT_TRUE(holders::share(mine));
  Number of_a_child{};
  of_a_child.holders = mine.holders.load();
  holders::add_unknown(of_a_child);  // it makes a copy, or passes it on
  EXPECT_FALSE(holders::sole(mine));
  of_a_child.holders = mine.holders.load();
  of_a_child.running = 1;  // a call under way keeps the socket when its number closes
  holders::drop(of_a_child);
  EXPECT_FALSE(holders::sole(mine));
}

TEST_F(Lanes, CountsOfUnknownHoldersAreFreeWhenTheKnownOnesHaveGone) {
  for (int i = 0; i < 10'000; ++i) {
    Number mine{};
    ASSERT_TRUE(holders::share(mine)) << i;
    Number of_a_child{};
    of_a_child.holders = mine.holders.load();
    holders::add_unknown(of_a_child);
    holders::drop(mine);
  }
}

TEST_F(Lanes, NumberThatWasBeingClosedDuringAForkIsUnknownToTheChild) {
  Number& mine = *numbers::find(a_);
  ASSERT_TRUE(holders::share(mine));
  Number of_another{};
  of_another.holders = mine.holders.load();
  mine.calls = kKernels;  // by a thread of the parent, which has not come to the count yet
  numbers::in_child();
  holders::in_child();
  EXPECT_FALSE(holders::counted(mine));
  EXPECT_FALSE(holders::sole(of_another));
  numbers::note_fresh(a_, numbers::forks());
  EXPECT_FALSE(holders::counted(mine));
}

TEST_F(Lanes, CallThatASignalHandlerForksInGoesOnInTheChild) {
  Number& mine = *numbers::find(a_);
  ASSERT_TRUE(holders::share(mine));
  {
    const Use use(mine, Call::kReceives);
    numbers::in_child();
    holders::in_child();
    EXPECT_EQ(mine.calls.load(), kKernels);
  }
  EXPECT_EQ(mine.running.load(), 0U);
}

TEST_F(Lanes, LockThatAThreadOfTheParentHadIsFreeInAChild) {
  const auto lock = [&]() WEFT_NOT_ANALYZED { numbers::find(a_)->watch_lock.lock(); };
  lock();
  numbers::in_child();
  numbers::note_instance(1'000'000);  // takes it
}

TEST_F(Lanes, CopyToANumberThatFailsClosesNothing) {
  Number& mine = *numbers::find(a_);
  ASSERT_TRUE(holders::share(mine));
  Number of_a_child{};
  of_a_child.holders = mine.holders.load();
  leave_to_copy(a_);  // as dup3 with flags that it does not know
  EXPECT_FALSE(holders::sole(of_a_child));
}

TEST_F(Lanes, LaneIsGivenUpWhereAForkHasSharedItsNumberMeanwhile) {
  Number& mine = *numbers::find(a_);
  mine.calls = busy_calls() + 1;
  ASSERT_TRUE(holders::share(mine));
  join::begin(a_, mine);
  EXPECT_EQ(lane_of(a_), nullptr);
  EXPECT_EQ(mine.calls.load(), 1U);  // it is asked again
}

TEST_F(Lanes, ThereIsALimitOfCountsAndTheyAreUsedAgain) {
  std::array<Number, 5000> many{};
  std::size_t shared = 0;
  while (shared < many.size() && holders::share(many[shared])) ++shared;
  EXPECT_LT(shared, many.size());
  for (std::size_t i = 0; i < shared; ++i) {
    Number of_a_child{};
    of_a_child.holders = many[i].holders.load();
    holders::drop(of_a_child);
    holders::drop(many[i]);
  }
  ASSERT_TRUE(holders::share(many[0]));
  holders::drop(many[0]);
}

TEST_F(Lanes, WindowThatIsNeverToOpenStaysSo) {
  join_both();
  std::string text;
  const ssize_t got = get(b_, 0, text, [this](char*, std::size_t) -> ssize_t {
    // As another thread's call of an unknown option does, while this one sleeps.
    lane_of(b_)->rings.in().store(GrantWord::kWindow, kWindowNever);
    errno = EAGAIN;
    return -1;
  });
  EXPECT_EQ(got, -1);
  EXPECT_EQ(lane_of(b_)->rings.in().load(GrantWord::kWindow), kWindowNever);
}

TEST_F(Lanes, ResetBehindOctetsOfTheRingIsTold) {
  join_both();
  std::string text;
  ssize_t got = get(b_, MSG_DONTWAIT, text, [this](char*, std::size_t) -> ssize_t {
    put_in_ring("late");
    errno = ECONNRESET;
    return -1;
  });
  ASSERT_EQ(got, 4);
  EXPECT_EQ(text, "late");
  const auto end = [](char*, std::size_t) -> ssize_t { return 0; };
  got = get(b_, MSG_DONTWAIT, text, end);
  EXPECT_EQ(got, -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(get(b_, MSG_DONTWAIT, text, end), 0);
}

TEST_F(Lanes, ResetThatATakeBackHearsOfIsTold) {
  join_both();
  put_in_ring("unread");
  reset_b();
  spill(*lane_of(a_), os::monotonic_ns());
  std::string text;
  const auto asked = [this](char* to, std::size_t room) { return ::recv(a_, to, room, 0); };
  EXPECT_EQ(get(a_, 0, text, asked), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(get(a_, 0, text, asked), 0);
}

TEST_F(Lanes, ResetThatTheTakeBackOfASendHearsOfIsTold) {
  join_both();
  put_in_ring("unread");
  reset_b();
  EXPECT_EQ(put(a_, "more"), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(put(a_, "more"), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(Lanes, ReadOfWhatAWaitToldOfGetsItFromTheMiddleOfATakeBack) {
  join_both();
  put_in_ring("told");
  Lane& reader = *lane_of(b_);
  reader.nonblocking = true;
  // A wait of another thread has told of them.
  reader.reading.note_named(this_thread() + 1, reader.rings.in().load(GrantWord::kWritten));
  begin_to_take_back();
  std::string text;
  bool sent = false;
  const ssize_t got = get(b_, MSG_DONTWAIT, text, [&](char* to, std::size_t room) {
    const ssize_t n = ::recv(b_, to, room, MSG_DONTWAIT);
    const int error = errno;
    // They are sent just behind the first look.
    if (!std::exchange(sent, true)) {
      EXPECT_EQ(::send(a_, "told", 4, 0), 4);
    }
    errno = error;
    return n;
  });
  EXPECT_EQ(got, 4) << std::strerror(errno);
  EXPECT_EQ(text, "told");
}

TEST_F(Lanes, OctetsInTheMiddleOfATakeBackAreCounted) {
  join_both();
  put_in_ring("told");
  begin_to_take_back();
  std::thread writer([this] { EXPECT_EQ(::send(a_, "told", 4, 0), 4); });
  std::uint64_t bytes = 0;
  // It waits some milliseconds for a writer that does not run.
  for (int i = 0; i < 1000 && bytes == 0; ++i) bytes = await_taken_back(*lane_of(b_), b_);
  writer.join();
  EXPECT_EQ(bytes, 4U);
}

TEST_F(Lanes, LockOfAThreadThatHasEndedIsTakenOverThoughAProcessHasItsNumber) {
  join_both();
  ASSERT_TRUE(lane_of(a_)->rings.lock().try_lock(static_cast<std::uint32_t>(getppid())));
  EXPECT_EQ(put(a_, "ping"), 4);
  EXPECT_EQ(get(b_), "ping");
}

TEST_F(Lanes, SendBesideOneThatLeavesTheNumberToTheKernelLeavesNothingInTheRing) {
  join_both();
  put_in_ring("x");
  ASSERT_EQ(get(b_), "x");
  lane_of(b_)->rings.in().store(GrantWord::kWindow, kWindowOpen);
  // As another thread does, which has found the ring empty.
  ASSERT_TRUE(lane_of(a_)->out.on(JoinEvent::kForbidden));
  ASSERT_EQ(put(a_, "more"), 4);
  EXPECT_EQ(unread(*lane_of(b_)), 0U);
  int bytes = 0;
  ASSERT_EQ(ioctl(b_, FIONREAD, &bytes), 0);
  EXPECT_EQ(bytes, 4);
}

TEST_F(Lanes, SegmentOfANumberThatWasLeftMeanwhileIsNotUsed) {
  ASSERT_EQ(put(a_, "x"), 1);
  Lane* lane = lane_of(a_);
  ASSERT_NE(lane, nullptr);
  const Use use(*lane, Call::kVisits);
  leave_to_kernel(a_, Why::kShared);
  rendezvous::Made made;
  Segment* segment = segments::make(lane->connection.key, made);
  ASSERT_NE(segment, nullptr);
  lane->rings.attach(*segment, lane->connection.end);
  join::go_on(*lane, a_, *numbers::find(a_), Call::kVisits);
  EXPECT_FALSE(lane->in.joined());
  EXPECT_FALSE(lane->out.joined());
  EXPECT_EQ(lane->rings.in().load(GrantWord::kWindow), kWindowNever);
}

TEST_F(Lanes, WhatIsOwedWhenANumberIsLeftIsSentThoughSignalsCome) {
  join_both();
  put_in_ring("owed");
  const std::string filler(65536, 'f');
  std::size_t filled = 0;
  for (ssize_t n = 0; (n = ::send(a_, filler.data(), filler.size(), MSG_DONTWAIT)) > 0;) {
    filled += static_cast<std::size_t>(n);
  }
  struct sigaction act {};
  act.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &act, nullptr), 0);
  const pthread_t leaver = pthread_self();
  std::thread reader([this, leaver, filled, text = std::string(65536, ' ')]() mutable {
    for (int i = 0; i < 20; ++i) {
      pthread_kill(leaver, SIGUSR1);
      usleep(2000);
    }
    std::size_t got = 0;
    for (ssize_t n = 0; got < filled + 4 && (n = ::recv(b_, text.data(), text.size(), 0)) > 0;) {
      got += static_cast<std::size_t>(n);
    }
    EXPECT_EQ(got, filled + 4);
  });
  leave_to_kernel(a_, Why::kShared);
  shutdown(a_, SHUT_WR);
  reader.join();
}

TEST_F(Lanes, CallsFitASmallStack) {
  join_both();
  put_in_ring("ring");
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 20 * 1024), 0);
  pthread_t thread;
  const auto run = [](void* number) -> void* {
    const int fd = *static_cast<int*>(number);
    std::array<char, 8> room{};
    std::array<iovec, 2> parts{{{room.data(), 2}, {room.data() + 2, 6}}};
    const auto none = [] { return ssize_t{-1}; };
    Lane& lane = *lane_of(fd);
    static_cast<void>(receive(lane, fd, parts.data(), 2, MSG_WAITALL, none));
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &b_), 0);
  ASSERT_EQ(::send(a_, "kern", 4, 0), 4);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST_F(Lanes, ReadsThatNobodySeesEndNoRing) {
  join_both();
  ASSERT_EQ(::send(a_, "", 0, 0), 0);
  lane_of(b_)->rings.in().store(GrantWord::kWindow, kWindowClosed);
  ASSERT_EQ(put(a_, "unseen"), 6);
  std::array<char, 8> room{};
  ASSERT_EQ(::recv(b_, room.data(), room.size(), 0), 6);
  // Its writer has used no ring for long, and runs elsewhere, perhaps.
  while (!lane_of(b_)->reading.waits().often() || !lane_of(b_)->reading.waits().worth_it()) {
    lane_of(b_)->reading.note_wait(true, true, false);
  }
  lane_of(b_)->rings.segment().cores[lane_of(a_)->connection.end] = 0;
  ASSERT_EQ(::send(a_, "next", 4, 0), 4);
  lane_of(a_)->rings.out().add(GrantWord::kSent, 4);
  ASSERT_EQ(get(b_), "next");
  const GrantMemory m = lane_of(a_)->rings.out();
  EXPECT_EQ(m.load(GrantWord::kTcpRead), m.load(GrantWord::kSent));
}

TEST_F(Lanes, ReaderOnItsWritersCoreDoesNotLookBeforeItSleeps) {
  join_both();
  Lane& lane = *lane_of(b_);
  lane.reading.note_unwatched();
  lane.rings.in().store(GrantWord::kWindow, kWindowClosed);
  const auto& cores = lane.rings.segment().cores;
  run_on_core(0);
  ASSERT_EQ(put(a_, "ping"), 4);
  std::string text;
  std::uint64_t window = kWindowNever;
  int asked = 0;
  const ssize_t got = get(b_, 0, text, [&](char* to, std::size_t room) {
    ++asked;
    window = lane.rings.in().load(GrantWord::kWindow);
    return ::recv(b_, to, room, 0);
  });
  sched_setaffinity(0, sizeof all_cores_, &all_cores_);
  EXPECT_EQ(cores.at(0).load(), cores.at(1).load());
  EXPECT_EQ(got, 4);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(window, kWindowClosed);
}

TEST_F(Lanes, PeerThatEndedIsSentNothingByTheRing) {
  join_both();
  std::string text;
  ASSERT_EQ(get(b_, 0, text, [](char*, std::size_t) { return ssize_t{0}; }), 0);
  // As before it has joined.
  lane_of(b_)->out.begin_again();
  lane_of(b_)->meeting.settled = false;
  ASSERT_EQ(put(b_, "x"), 1);
  EXPECT_TRUE(lane_of(b_)->out.counted());
  EXPECT_FALSE(lane_of(b_)->out.joined());
}

TEST_F(Lanes, PeerThatNeverComesCostsNoSignalMask) {
  ASSERT_EQ(put(a_, "x"), 1);
  ASSERT_NE(lane_of(a_), nullptr);
  ASSERT_FALSE(lane_of(a_)->meeting.settled.load());
  const int before = g_masked;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(put(a_, "x"), 1);
  EXPECT_EQ(g_masked, before);
}

TEST_F(Lanes, WaitForMoreThanItLooksAtClosesTheirWindows) {
  join_both();
  Lane& lane = *lane_of(b_);
  lane.rings.in().store(GrantWord::kWindow, kWindowOpen);
  const auto reads = [&lane] { static_cast<void>(lane.reading.note_read(1, 1, 1, true)); };
  for (std::uint32_t i = 0; i < ReadingHabits::kStreak; ++i) reads();
  Watched watched;
  for (std::size_t i = 0; i < Watched::kMost; ++i) watched.add(lane, i);
  EXPECT_TRUE(lane.reading.keeps_window());
  EXPECT_EQ(lane.rings.in().load(GrantWord::kWindow), kWindowOpen);
  watched.add(lane, Watched::kMost);
  EXPECT_FALSE(lane.reading.keeps_window());
  EXPECT_EQ(lane.rings.in().load(GrantWord::kWindow), kWindowClosed);
}

}  // namespace
}  // namespace weft::sockets::granted
