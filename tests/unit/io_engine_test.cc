#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "io/engine.h"
#include "os/fd.h"

namespace weft::io {
namespace {

using namespace std::chrono_literals;

class Probe final : public Handler {
 public:
  std::function<void(std::uint32_t)> io = [](std::uint32_t) {};
  std::function<void(TimerId)> timer = [](TimerId) {};
  void on_io(std::uint32_t events) override { io(events); }
  void on_timer(TimerId id) override { timer(id); }
};

os::Fd readable_fd() { return os::Fd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }
os::Fd quiet_fd() { return os::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

class EngineTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> engine = std::move(*Engine::create());
  // Everything asked for before is done.
  void settle() {
    std::promise<void> done;
    ASSERT_TRUE(engine->post([&] { done.set_value(); }));
    done.get_future().get();
  }
};

TEST_F(EngineTest, ThreadStartsWithTheFirstUseOnly) {
  EXPECT_FALSE(engine->running());
  settle();
  EXPECT_TRUE(engine->running());
}

TEST_F(EngineTest, ThreadBlocksTheApplicationsSignalsAndHasAName) {
  std::promise<std::pair<std::string, bool>> seen;
  ASSERT_TRUE(engine->post([&] {
    char name[32] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    seen.set_value({name, sigismember(&mask, SIGUSR1) == 1 && sigismember(&mask, SIGTERM) == 1});
    for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
      EXPECT_EQ(sigismember(&mask, raised), 0) << raised;
    }
  }));
  const auto [name, blocked] = seen.get_future().get();
  EXPECT_TRUE(blocked);
  // The name is set by the thread that starts it, which may be later than the task.
  settle();
}

// Blocks `number` in all its threads, starts an engine, and takes the signal by sigwait(). Returns
// the exit status of the process that does this, or 128 and the signal that ended it.
int status_of_program_that_waits_for(int number) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, number);
    pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
    const auto engine = std::move(*Engine::create());
    std::promise<void> running;
    if (!engine->post([&] { running.set_value(); })) _exit(1);
    running.get_future().get();
    kill(getpid(), number);
    int taken = 0;
    _exit(sigwait(&awaited, &taken) == 0 && taken == number ? 0 : 2);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(EngineSignals, SignalThatTheProgramTakesBySigwaitIsLeftToIt) {
  EXPECT_EQ(status_of_program_that_waits_for(SIGTERM), 0);
  EXPECT_EQ(status_of_program_that_waits_for(SIGABRT), 0);
}

// A signal that the program has blocked may be pending already.
TEST(EngineSignals, StartOfTheThreadDeliversNoSignalThatItsCallerBlocks) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGBUS);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    pthread_kill(pthread_self(), SIGBUS);
    const auto engine = std::move(*Engine::create());
    _exit(engine->post([] {}) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(EngineTest, ADescriptorThatIsGivenAwayIsReportedToItsNewHandler) {
  const os::Fd fd = quiet_fd();
  const auto before = std::make_shared<Probe>();
  const auto after = std::make_shared<Probe>();
  std::atomic<bool> wrong{false};
  std::promise<void> told;
  before->io = [&](std::uint32_t) { wrong = true; };
  after->io = [&](std::uint32_t) {
    std::uint64_t count = 0;
    if (read(fd.get(), &count, sizeof count) == sizeof count) told.set_value();
  };
  EXPECT_EQ(engine->give(fd.get(), after).error(), Error::kNotFound);
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN, before));
  EXPECT_EQ(engine->give(fd.get(), std::shared_ptr<Probe>()).error(), Error::kBadState);
  ASSERT_TRUE(engine->give(fd.get(), after));
  const std::uint64_t one = 1;
  ASSERT_EQ(write(fd.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  told.get_future().get();
  EXPECT_FALSE(wrong);
  engine->remove(fd.get());
}

TEST_F(EngineTest, ReadableDescriptorIsReportedOnTheEnginesThread) {
  const os::Fd fd = readable_fd();
  const auto probe = std::make_shared<Probe>();
  std::promise<bool> on_thread;
  std::atomic<int> calls{0};
  probe->io = [&](std::uint32_t events) {
    EXPECT_NE(events & EPOLLIN, 0U);
    if (calls++ == 0) on_thread.set_value(engine->on_thread());
  };
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN | EPOLLET, probe));
  EXPECT_TRUE(on_thread.get_future().get());
  EXPECT_FALSE(engine->on_thread());
  engine->remove(fd.get());
  EXPECT_EQ(calls, 1);
}

TEST_F(EngineTest, EdgeIsReportedOnceAndAgainAfterModify) {
  const os::Fd fd = readable_fd();
  const auto probe = std::make_shared<Probe>();
  std::atomic<int> calls{0};
  std::promise<void> first;
  std::promise<void> second;
  probe->io = [&](std::uint32_t) {
    const int n = ++calls;
    if (n == 1) first.set_value();
    if (n == 2) second.set_value();
  };
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN | EPOLLET, probe));
  first.get_future().get();
  settle();
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(engine->modify(fd.get(), EPOLLIN | EPOLLET));
  second.get_future().get();
  engine->remove(fd.get());
}

TEST_F(EngineTest, SecondRegistrationOfADescriptorIsRefused) {
  const os::Fd fd = quiet_fd();
  const auto probe = std::make_shared<Probe>();
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN, probe));
  const auto again = engine->add(fd.get(), EPOLLIN, probe);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error(), Error::kBadState);
  engine->remove(fd.get());
  EXPECT_FALSE(engine->modify(fd.get(), EPOLLIN));
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN, probe));
  engine->remove(fd.get());
}

TEST_F(EngineTest, RemoveWaitsForTheCallbackThatRuns) {
  const os::Fd fd = readable_fd();
  const auto probe = std::make_shared<Probe>();
  std::promise<void> inside;
  std::promise<void> go_on;
  std::atomic<bool> finished{false};
  probe->io = [&](std::uint32_t) {
    if (finished) return;
    inside.set_value();
    go_on.get_future().get();
    finished = true;
  };
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN | EPOLLET, probe));
  inside.get_future().get();
  std::thread releaser([&] {
    std::this_thread::sleep_for(20ms);
    go_on.set_value();
  });
  engine->remove(fd.get());
  EXPECT_TRUE(finished);
  releaser.join();
}

TEST_F(EngineTest, ForgetDoesNotWait) {
  const os::Fd fd = readable_fd();
  const auto probe = std::make_shared<Probe>();
  std::promise<void> inside;
  std::promise<void> go_on;
  std::atomic<bool> finished{false};
  probe->io = [&](std::uint32_t) {
    inside.set_value();
    go_on.get_future().get();
    finished = true;
  };
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN | EPOLLET, probe));
  inside.get_future().get();
  engine->forget(fd.get());
  EXPECT_FALSE(finished);
  go_on.set_value();
  engine->wait_for(probe.get());
  EXPECT_TRUE(finished);
}

TEST_F(EngineTest, CallbackMayRemoveItselfAndOthers) {
  const os::Fd a = readable_fd();
  const os::Fd b = readable_fd();
  const auto first = std::make_shared<Probe>();
  const auto second = std::make_shared<Probe>();
  std::atomic<int> calls{0};
  const auto remove_both = [&](std::uint32_t) {
    ++calls;
    engine->remove(a.get());
    engine->remove(b.get());
  };
  first->io = remove_both;
  second->io = remove_both;
  // Both are found ready in one round.
  std::promise<void> added;
  ASSERT_TRUE(engine->post([&] {
    EXPECT_TRUE(engine->add(a.get(), EPOLLIN, first));
    EXPECT_TRUE(engine->add(b.get(), EPOLLIN, second));
    added.set_value();
  }));
  added.get_future().get();
  while (calls == 0) std::this_thread::sleep_for(1ms);
  settle();
  EXPECT_EQ(calls, 1);
}

TEST_F(EngineTest, NoCallbackRunsAfterRemoveReturned) {
  for (int round = 0; round < 200; ++round) {
    const os::Fd fd = readable_fd();
    auto probe = std::make_shared<Probe>();
    std::atomic<bool> removed{false};
    probe->io = [&](std::uint32_t) { EXPECT_FALSE(removed); };
    ASSERT_TRUE(engine->add(fd.get(), EPOLLIN, probe));
    if (round % 3 == 0) std::this_thread::yield();
    engine->remove(fd.get());
    removed = true;
    probe.reset();
  }
}

TEST_F(EngineTest, ReusedDescriptorNumberGetsNoEventsOfItsPredecessor) {
  for (int round = 0; round < 200; ++round) {
    const auto old_probe = std::make_shared<Probe>();
    const auto new_probe = std::make_shared<Probe>();
    std::atomic<int> wrong{0};
    new_probe->io = [&](std::uint32_t) { ++wrong; };
    os::Fd fd = readable_fd();
    ASSERT_TRUE(engine->add(fd.get(), EPOLLIN, old_probe));
    engine->remove(fd.get());
    fd.reset();
    const os::Fd reused = quiet_fd();
    ASSERT_TRUE(engine->add(reused.get(), EPOLLIN, new_probe));
    if (round % 10 == 0) settle();
    engine->remove(reused.get());
    EXPECT_EQ(wrong, 0);
  }
}

TEST_F(EngineTest, TimersRunInTheOrderOfTheirDeadlines) {
  const auto probe = std::make_shared<Probe>();
  std::vector<TimerId> order;
  std::promise<void> done;
  probe->timer = [&](TimerId id) {
    order.push_back(id);
    if (order.size() == 3) done.set_value();
  };
  std::vector<TimerId> ids(3);
  ASSERT_TRUE(engine->post([&] {
    const Instant start = os::now();
    ids[2] = engine->schedule(start + Duration(3ms), probe);
    ids[0] = engine->schedule(start + Duration(1ms), probe);
    ids[1] = engine->schedule(start + Duration(2ms), probe);
  }));
  done.get_future().get();
  EXPECT_EQ(order, ids);
}

TEST_F(EngineTest, TimerNeverRunsBeforeItsDeadline) {
  const auto probe = std::make_shared<Probe>();
  const Instant due = os::now() + Duration(15ms);
  std::promise<Instant> ran;
  probe->timer = [&](TimerId) { ran.set_value(os::now()); };
  EXPECT_NE(engine->schedule(due, probe), 0U);
  EXPECT_GE(ran.get_future().get(), due);
}

TEST_F(EngineTest, CancelledTimerDoesNotRun) {
  const auto probe = std::make_shared<Probe>();
  std::atomic<int> calls{0};
  probe->timer = [&](TimerId) { ++calls; };
  const TimerId id = engine->schedule(os::now() + Duration(5ms), probe);
  engine->cancel(id);
  engine->cancel(id);
  engine->cancel(0);
  const auto later = std::make_shared<Probe>();
  std::promise<void> done;
  later->timer = [&](TimerId) { done.set_value(); };
  EXPECT_NE(engine->schedule(os::now() + Duration(20ms), later), 0U);
  done.get_future().get();
  EXPECT_EQ(calls, 0);
}

TEST_F(EngineTest, ThousandsOfCancelledTimersLeaveTheOthersAlone) {
  const auto probe = std::make_shared<Probe>();
  std::atomic<int> calls{0};
  std::promise<void> done;
  probe->timer = [&](TimerId) {
    if (++calls == 10) done.set_value();
  };
  std::vector<TimerId> doomed;
  for (int i = 0; i < 5000; ++i) {
    doomed.push_back(engine->schedule(os::now() + Duration(1h), probe));
    if (i % 500 != 0) continue;
    EXPECT_NE(engine->schedule(os::now() + Duration(2ms), probe), 0U);
  }
  for (const TimerId id : doomed) engine->cancel(id);
  done.get_future().get();
  settle();
  EXPECT_EQ(calls, 10);
}

TEST_F(EngineTest, DeadlineThatNeverComesIsNotScheduled) {
  const auto probe = std::make_shared<Probe>();
  EXPECT_EQ(engine->schedule(Instant::never(), probe), 0U);
}

// An owner that has forgotten a timer, or noted the number of another one.
TEST_F(EngineTest, TimerThatOutlivesItsOwnerDoesNotRun) {
  std::atomic<int> calls{0};
  auto probe = std::make_shared<Probe>();
  probe->timer = [&](TimerId) { ++calls; };
  // The owner goes on the engine's thread, between the timer's deadline and its turn.
  ASSERT_TRUE(engine->post([&] {
    EXPECT_NE(engine->schedule(os::now(), probe), 0U);
    probe.reset();
  }));
  settle();
  settle();
  EXPECT_EQ(calls, 0);
}

TEST_F(EngineTest, DescriptorThatOutlivesItsHandlerIsServedNoMore) {
  const os::Fd fd = readable_fd();
  std::atomic<int> calls{0};
  auto probe = std::make_shared<Probe>();
  std::promise<void> inside;
  probe->io = [&](std::uint32_t) {
    if (calls++ == 0) inside.set_value();
  };
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN, probe));
  inside.get_future().get();
  engine->wait_for(probe.get());
  const std::weak_ptr<Probe> weak = probe;
  probe.reset();
  while (!weak.expired()) std::this_thread::yield();
  settle();
  const int before = calls;
  const std::uint64_t wakeups = engine->wakeups();
  settle();
  EXPECT_EQ(calls, before);
  EXPECT_LE(engine->wakeups(), wakeups + 2) << "its readiness keeps the engine awake";
}

TEST_F(EngineTest, HandlerLivesUntilItsCallbackHasReturned) {
  std::promise<void> inside;
  std::promise<void> go_on;
  std::promise<std::uint64_t> seen;
  auto probe = std::make_shared<Probe>();
  const auto value = std::make_shared<std::uint64_t>(42);
  probe->timer = [&inside, &go_on, &seen, value](TimerId) {
    inside.set_value();
    go_on.get_future().get();
    seen.set_value(*value);
  };
  EXPECT_NE(engine->schedule(os::now(), probe), 0U);
  inside.get_future().get();
  probe.reset();
  go_on.set_value();
  EXPECT_EQ(seen.get_future().get(), 42U);
  settle();
  EXPECT_EQ(value.use_count(), 1);
}

TEST_F(EngineTest, OwnersComeAndGoUnderTheirTimers) {
  std::atomic<std::uint64_t> calls{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        auto probe = std::make_shared<Probe>();
        const auto mine = std::make_shared<std::atomic<std::uint64_t>>(1);
        probe->timer = [&calls, mine](TimerId) { calls += mine->load(); };
        for (int n = 0; n < 3; ++n) {
          EXPECT_NE(engine->schedule(os::now() + Duration(20'000 * n), probe), 0U);
        }
        if (i % 7 != 0) continue;
        ASSERT_TRUE(engine->post([last = std::move(probe)]() mutable { last.reset(); }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  settle();
}

TEST_F(EngineTest, IdleEngineSleepsWithoutWakingUp) {
  const os::Fd fd = quiet_fd();
  const auto probe = std::make_shared<Probe>();
  ASSERT_TRUE(engine->add(fd.get(), EPOLLIN, probe));
  settle();
  std::this_thread::sleep_for(5ms);
  const std::uint64_t before = engine->wakeups();
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(engine->wakeups(), before);
  engine->remove(fd.get());
}

TEST_F(EngineTest, TasksRunInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(engine->post([&order, i] { order.push_back(i); }));
  }
  settle();
  ASSERT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(EngineTest, MayBeDestroyedOnItsOwnThread) {
  std::promise<void> gone;
  Engine* raw = engine.release();
  ASSERT_TRUE(raw->post([raw, &gone] {
    delete raw;
    gone.set_value();
  }));
  gone.get_future().get();
}

}  // namespace
}  // namespace weft::io
