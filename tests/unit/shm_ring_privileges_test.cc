// Processes that may do less than others: the hand-over of a ring works without the missing right,
// or says that it failed and leaves nothing behind, so that the connection stays on TCP.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>

#include "../support/ring_mappings.h"
#include "shm/ring_handover.h"
#include "shm_ring_testing.h"

namespace weft::shm {
namespace {

constexpr std::uint32_t kBytes = kRingBytesMin;
constexpr int kNoRight = 77;

// The body's result, from a child that may lose rights.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// From now on the kernel answers this call with EPERM, as sandboxes have it.
bool forbid(unsigned call) {
  std::array<sock_filter, 4> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Both ends in one process; 0: a word has come through the ring.
int hand_over() {
  auto offer = RingOffer::open();
  if (!offer) return 1;
  auto theirs = answer_ring_offer(offer->ticket(), kBytes);
  if (!theirs) return 2;
  auto ours = offer->take();
  if (!ours || !theirs->secure()) return 3;
  const std::array<std::uint8_t, 3> word{1, 2, 3};
  return send_bytes(*theirs, word) == 3 && receive_bytes(*ours, 9).size() == 3 ? 0 : 4;
}

TEST(RingPrivileges, DroppedByBothDoNotMatter) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to drop it";
  constexpr unsigned kSomebody = 12345;
  EXPECT_EQ(in_child([] {
              if (setresgid(kSomebody, kSomebody, kSomebody) != 0) return kNoRight;
              if (setresuid(kSomebody, kSomebody, kSomebody) != 0) return kNoRight;
              if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return kNoRight;
              return hand_over();
            }),
            0);
}

TEST(RingPrivileges, DroppedByTheInitiatorWhileTheOfferIsOutAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to drop it";
  constexpr unsigned kSomebody = 12345;
  EXPECT_EQ(in_child([] {
              auto offer = RingOffer::open();
              if (!offer || setresuid(kSomebody, kSomebody, kSomebody) != 0) return kNoRight;
              // The name is still root's, who this is not any more.
              const auto answered = answer_ring_offer(offer->ticket(), kBytes);
              return !answered && answered.error() == Error::kPermission ? 0 : 1;
            }),
            0);
}

TEST(RingPrivileges, ForbiddenSystemCallIsNoRingAndLeavesNothing) {
  EXPECT_EQ(in_child(hand_over), 0);
  for (const unsigned call :
       {SYS_socket, SYS_bind, SYS_listen, SYS_connect, SYS_accept4, SYS_memfd_create, SYS_ftruncate,
        SYS_fallocate, SYS_sendmsg, SYS_recvmsg, SYS_madvise, SYS_getsockopt}) {
    SCOPED_TRACE(call);
    EXPECT_EQ(in_child([call] {
                const auto before = open_descriptors();
                if (!forbid(call)) return kNoRight;
                if (hand_over() == 0) return 1;
                if (test::ring_mappings() != 0) return 2;
                return open_descriptors() == before ? 0 : 3;
              }),
              0);
  }
}

TEST(RingPrivileges, NoDescriptorsIsNoRingAndLeavesNothing) {
  // Each number of descriptors that is too small ends the hand-over elsewhere.
  EXPECT_EQ(in_child([] {
              // The limit is on numbers: inherited ones would leave gaps below them.
              if (close_range(STDERR_FILENO + 1, ~0U, 0) != 0) return kNoRight;
              const auto before = open_descriptors();
              for (int spare = 0; spare < 16; ++spare) {
                rlimit old{};
                if (getrlimit(RLIMIT_NOFILE, &old) != 0) return kNoRight;
                const rlimit lower{static_cast<rlim_t>(before - 1 + spare), old.rlim_max};
                if (setrlimit(RLIMIT_NOFILE, &lower) != 0) return kNoRight;
                const bool worked = hand_over() == 0;
                if (setrlimit(RLIMIT_NOFILE, &old) != 0) return kNoRight;
                if (test::ring_mappings() != 0) return 2;
                if (open_descriptors() != before) return 3;
                if (worked) return spare > 2 ? 0 : 4;
              }
              return 5;
            }),
            0);
}

}  // namespace
}  // namespace weft::shm
