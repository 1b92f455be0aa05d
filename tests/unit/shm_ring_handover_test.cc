#include "shm/ring_handover.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "shm_ring_testing.h"

namespace weft::shm {
namespace {

constexpr std::uint32_t kBytes = kRingBytesMin;
constexpr std::size_t kFileBytes = 4096 + 2 * std::size_t{kBytes};

os::Fd connect_to(const RingTicket& ticket) {
  os::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const std::string name = fmt::format("weft-ring-{:016x}", ticket.name);
  std::memcpy(at.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0) return {};
  return socket;
}

// What a peer that has the ticket says with its memory.
std::array<std::uint8_t, 20> hello_of(const RingTicket& ticket, std::uint32_t bytes) {
  std::array<std::uint8_t, 20> hello{'W', 'F', 'R', 'G', 0, 0, 0, 1};
  for (unsigned i = 0; i < 4; ++i) hello[8 + i] = static_cast<std::uint8_t>(bytes >> (24 - 8 * i));
  for (unsigned i = 0; i < 8; ++i) {
    hello[12 + i] = static_cast<std::uint8_t>(ticket.proof >> (56 - 8 * i));
  }
  return hello;
}

void send_with(int socket, std::span<const std::uint8_t> data, std::span<const int> fds) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  iovec part{const_cast<std::uint8_t*>(data.data()), data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ASSERT_EQ(sendmsg(socket, &message, 0), static_cast<ssize_t>(data.size()));
}

os::Fd sealed_memory(int seals, std::size_t size = kFileBytes) {
  os::Fd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return {};
  if (seals != 0 && fcntl(fd.get(), F_ADD_SEALS, seals) != 0) return {};
  return fd;
}

// The offer's answer to a peer that brings `memory` and says that it is of `bytes`.
Error answer_to(const os::Fd& memory, std::uint32_t bytes = kBytes) {
  auto offer = RingOffer::open();
  if (!offer) return Error::kSystem;
  const os::Fd socket = connect_to(offer->ticket());
  const int fd = memory.get();
  send_with(socket.get(), hello_of(offer->ticket(), bytes), {&fd, 1});
  const auto taken = offer->take();
  return taken ? Error::kBusy : taken.error();  // kBusy stands for: it was taken
}

// A child that answers an offer, says so over a pipe, and then runs `body` with its end.
class Answerer {
 public:
  Answerer(const RingTicket& ticket, const std::function<int(Result<Ring>&)>& body) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    said_ = os::Fd(ends[0]);
    os::Fd say(ends[1]);
    child_ = fork();
    if (child_ != 0) return;
    auto ring = answer_ring_offer(ticket, kBytes);
    if (write(say.get(), "", 1) != 1) _exit(99);
    _exit(body(ring));
  }
  ~Answerer() {
    if (child_ < 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  void wait_until_answered() const {
    char octet = 0;
    while (read(said_.get(), &octet, 1) < 0 && errno == EINTR) {
    }
  }
  [[nodiscard]] int exit_code() {
    int status = 0;
    waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  os::Fd said_;
  pid_t child_ = -1;
};

constexpr std::array<std::uint8_t, 3> kWord{1, 2, 3};

TEST(RingHandover, TwoProcessesShareTheMemory) {
  auto offer = RingOffer::open();
  ASSERT_TRUE(offer);
  Answerer child(offer->ticket(), [](Result<Ring>& ring) {
    if (!ring || send_bytes(*ring, kWord) != kWord.size()) return 1;
    while (receive_bytes(*ring, 1).empty()) sched_yield();
    return 0;
  });
  child.wait_until_answered();
  auto ring = offer->take();
  ASSERT_TRUE(ring);
  while (!ring->maybe_readable()) sched_yield();
  EXPECT_EQ(receive_bytes(*ring, 100), std::vector<std::uint8_t>(kWord.begin(), kWord.end()));
  EXPECT_EQ(send_bytes(*ring, kWord), kWord.size());
  EXPECT_EQ(child.exit_code(), 0);
}

TEST(RingHandover, MemoryStaysWhenThePeerIsKilled) {
  auto offer = RingOffer::open();
  ASSERT_TRUE(offer);
  auto child = std::make_unique<Answerer>(offer->ticket(), [](Result<Ring>& ring) {
    static_cast<void>(send_bytes(*ring, kWord));
    while (true) pause();
    return 0;
  });
  child->wait_until_answered();
  auto ring = offer->take();
  ASSERT_TRUE(ring);
  while (!ring->maybe_readable()) sched_yield();
  ASSERT_EQ(receive_bytes(*ring, 1).size(), 1U);
  ASSERT_TRUE(ring->prepare_sleep(false) || ring->maybe_readable());
  child.reset();  // SIGKILL
  EXPECT_FALSE(ring->cancel_sleep()) << "the bell says that the peer is gone";
  EXPECT_EQ(receive_bytes(*ring, 100).size(), 2U) << "what it sent before is there";
}

TEST(RingHandover, NobodyCameIsNotFound) {
  auto offer = RingOffer::open();
  ASSERT_TRUE(offer);
  const auto taken = offer->take();
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error(), Error::kNotFound);
}

TEST(RingHandover, NameThatNobodyHasIsNotFound) {
  RingTicket ticket;
  {
    auto offer = RingOffer::open();
    ASSERT_TRUE(offer);
    ticket = offer->ticket();
  }
  const auto answered = answer_ring_offer(ticket, kBytes);
  ASSERT_FALSE(answered);
  EXPECT_EQ(answered.error(), Error::kNotFound);
}

TEST(RingHandover, NoTwoOffersHaveTheSameTicket) {
  auto a = RingOffer::open();
  auto b = RingOffer::open();
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->ticket().name, b->ticket().name);
  EXPECT_NE(a->ticket().proof, b->ticket().proof);
}

TEST(RingHandover, AnotherNetworkNamespaceFindsNobody) {
  auto offer = RingOffer::open();
  ASSERT_TRUE(offer);
  Answerer child(offer->ticket(), [](Result<Ring>&) { return 0; });
  child.wait_until_answered();
  const RingTicket ticket = offer->ticket();
  const pid_t elsewhere = fork();
  if (elsewhere == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0) _exit(77);
    const auto answered = answer_ring_offer(ticket, kBytes);
    _exit(!answered && answered.error() == Error::kNotFound ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(elsewhere, &status, 0), elsewhere);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no right to make a network namespace";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(offer->take()) << "who shares our namespace is not disturbed";
}

TEST(RingHandover, AnotherUserIsRefusedOnBothSides) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr uid_t kSomebody = 12345;
  auto offer = RingOffer::open();
  ASSERT_TRUE(offer);
  const RingTicket ticket = offer->ticket();
  // As responder: sees that the name is of another user, and gives nothing away.
  Answerer child(ticket, [](Result<Ring>&) { return 0; });
  child.wait_until_answered();
  const auto as_somebody = [](const std::function<int()>& body) {
    const pid_t pid = fork();
    if (pid == 0) _exit(setresuid(kSomebody, kSomebody, kSomebody) == 0 ? body() : 77);
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(as_somebody([&] {
              const auto answered = answer_ring_offer(ticket, kBytes);
              return !answered && answered.error() == Error::kPermission ? 0 : 1;
            }),
            0);
  // As one who does not care: the initiator refuses what it brings.
  auto second = RingOffer::open();
  ASSERT_TRUE(second);
  const os::Fd memory = sealed_memory(F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_EQ(as_somebody([&] {
              const os::Fd socket = connect_to(second->ticket());
              const int fd = memory.get();
              send_with(socket.get(), hello_of(second->ticket(), kBytes), {&fd, 1});
              return 0;
            }),
            0);
  const auto taken = second->take();
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error(), Error::kPermission);
}

TEST(RingHandover, StrangersBeforeThePeerAreTurnedAway) {
  auto offer = RingOffer::open();
  ASSERT_TRUE(offer);
  const os::Fd silent = connect_to(offer->ticket());
  const os::Fd junk = connect_to(offer->ticket());
  ASSERT_EQ(write(junk.get(), "hello hello hello hello hello", 29), 29);
  RingTicket wrong = offer->ticket();
  ++wrong.proof;
  const auto guesser = answer_ring_offer(wrong, kBytes);
  ASSERT_TRUE(guesser);
  const auto peer = answer_ring_offer(offer->ticket(), kBytes);
  ASSERT_TRUE(peer);
  auto taken = offer->take();
  ASSERT_TRUE(taken);
  EXPECT_EQ(send_bytes(*taken, kWord), kWord.size());
}

TEST(RingHandover, OnlyMemoryThatCannotShrinkIsTaken) {
  EXPECT_EQ(answer_to(sealed_memory(F_SEAL_SHRINK | F_SEAL_GROW)), Error::kBusy) << "the good one";
  EXPECT_EQ(answer_to(sealed_memory(0)), Error::kProtocol);
  EXPECT_EQ(answer_to(sealed_memory(F_SEAL_GROW)), Error::kProtocol);
  EXPECT_EQ(answer_to(sealed_memory(F_SEAL_SHRINK)), Error::kProtocol);
}

TEST(RingHandover, OnlyMemoryOfTheSizeSaidIsTaken) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_EQ(answer_to(sealed_memory(kSeals, kFileBytes - 1)), Error::kProtocol);
  EXPECT_EQ(answer_to(sealed_memory(kSeals, kFileBytes + 1)), Error::kProtocol);
  EXPECT_EQ(answer_to(sealed_memory(kSeals), kBytes + 1), Error::kProtocol);
  EXPECT_EQ(answer_to(sealed_memory(kSeals), 0), Error::kProtocol);
  EXPECT_EQ(answer_to(sealed_memory(kSeals), 0xffffffffU), Error::kProtocol);
  const std::size_t half = 4096 + std::size_t{kBytes};
  EXPECT_EQ(answer_to(sealed_memory(kSeals, half), kBytes / 2), Error::kProtocol) << "too small";
}

TEST(RingHandover, DescriptorsThatAreNotMemoryAreRefused) {
  EXPECT_EQ(answer_to(os::Fd(::socket(AF_UNIX, SOCK_STREAM, 0))), Error::kProtocol);
  EXPECT_EQ(answer_to(os::Fd(open("/dev/zero", O_RDWR | O_CLOEXEC))), Error::kProtocol);
  const os::Fd read_only_seal = sealed_memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  const Error refused = answer_to(read_only_seal);
  EXPECT_TRUE(refused == Error::kSystem || refused == Error::kProtocol);
}

TEST(RingHandover, SealsThatKeepUsFromOursAreRefused) {
  // Then the peer could still punch holes.
  EXPECT_EQ(answer_to(sealed_memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)), Error::kProtocol);
}

TEST(RingHandover, SurplusDescriptorsAreClosed) {
  auto offer = RingOffer::open();
  ASSERT_TRUE(offer);
  const os::Fd socket = connect_to(offer->ticket());
  const os::Fd memory = sealed_memory(F_SEAL_SHRINK | F_SEAL_GROW);
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  const os::Fd reader(ends[0]);
  os::Fd writer(ends[1]);
  const std::array<int, 2> both{memory.get(), writer.get()};
  send_with(socket.get(), hello_of(offer->ticket(), kBytes), both);
  EXPECT_FALSE(offer->take());
  writer.reset();
  char octet = 0;
  EXPECT_EQ(read(reader.get(), &octet, 1), 0) << "nobody else holds the writing end";
}

TEST(RingHandover, NobodyCanPunchHolesOnceBothHaveTheMemory) {
  auto offer = RingOffer::open();
  ASSERT_TRUE(offer);
  const os::Fd socket = connect_to(offer->ticket());
  const os::Fd memory = sealed_memory(F_SEAL_SHRINK | F_SEAL_GROW);
  void* peers = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  ASSERT_NE(peers, MAP_FAILED);
  const int fd = memory.get();
  send_with(socket.get(), hello_of(offer->ticket(), kBytes), {&fd, 1});
  auto ring = offer->take();
  ASSERT_TRUE(ring);
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kFileBytes), 0);
  EXPECT_NE(madvise(peers, kFileBytes, MADV_REMOVE), 0);
  EXPECT_NE(ftruncate(fd, 0), 0);
  munmap(peers, kFileBytes);
}

}  // namespace
}  // namespace weft::shm
