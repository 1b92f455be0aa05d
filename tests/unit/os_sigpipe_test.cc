// SIGPIPE of a call is taken away, and no other.
#include "os/sigpipe.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::os {
namespace {

volatile std::sig_atomic_t g_signals = 0;

// Counts what reaches the program.
class WithoutSigpipe : public testing::Test {
 protected:
  WithoutSigpipe() {
    g_signals = 0;
    struct sigaction counting {};
    counting.sa_handler = [](int) { g_signals = g_signals + 1; };
    EXPECT_EQ(sigaction(SIGPIPE, &counting, &before_), 0);
  }
  ~WithoutSigpipe() override { EXPECT_EQ(sigaction(SIGPIPE, &before_, nullptr), 0); }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  struct sigaction before_ {};
};

// As the kernel does it: thread by thread.
void raise_sigpipe() { EXPECT_EQ(raise(SIGPIPE), 0); }

TEST_F(WithoutSigpipe, AFailedCallRaisesNone) {
  const int result = without_sigpipe([] {
    raise_sigpipe();
    errno = EPIPE;
    return -1;
  });
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(result, -1);
  EXPECT_EQ(g_signals, 0);
}

// sendfile(2) returns what it sent before the peer's reset, and has raised the signal.
TEST_F(WithoutSigpipe, ACallThatDidAPartRaisesNone) {
  const int result = without_sigpipe([] {
    raise_sigpipe();
    return 7;
  });
  EXPECT_EQ(result, 7);
  EXPECT_EQ(g_signals, 0);
}

TEST_F(WithoutSigpipe, OneThatWaitedBeforeStays) {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &pipe, nullptr), 0);
  raise_sigpipe();
  EXPECT_EQ(without_sigpipe([] { return 7; }), 7);
  EXPECT_EQ(g_signals, 0);
  ASSERT_EQ(pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr), 0);
  EXPECT_EQ(g_signals, 1);
}

TEST_F(WithoutSigpipe, OneOfAnotherProcessArrives) {
  EXPECT_EQ(without_sigpipe([] {
              const pid_t child = fork();
              if (child == 0) _exit(kill(getppid(), SIGPIPE) == 0 ? 0 : 1);
              int status = -1;
              EXPECT_EQ(waitpid(child, &status, 0), child);
              EXPECT_EQ(status, 0);
              return 7;
            }),
            7);
  EXPECT_EQ(g_signals, 1);
}

}  // namespace
}  // namespace weft::os
