// Memory of a ring that serves once more: between the same two processes only, and only while they
// run as the same users. Here both ends are in one process.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "shm/ring_handover.h"
#include "shm_ring_testing.h"

namespace weft::shm {
namespace {

constexpr std::uint32_t kBytes = kRingBytesMin;
constexpr std::array<std::uint8_t, 3> kWord{1, 2, 3};

struct Ends {
  Ring initiator, responder;
};
struct Spares {
  std::optional<SpareRing> initiator, responder;
};

std::optional<Ends> hand_over(Spares spares = {}, std::uint32_t bytes = kBytes) {
  auto offer = RingOffer::open();
  if (!offer) return {};
  auto responder = answer_ring_offer(offer->ticket(), bytes, std::move(spares.responder));
  if (!responder) return {};
  auto initiator = offer->take(std::move(spares.initiator));
  if (!initiator || !responder->secure()) return {};
  return Ends{std::move(*initiator), std::move(*responder)};
}

Spares spares_of(Ends&& ends) {
  return {std::move(ends.initiator).spare(), std::move(ends.responder).spare()};
}

bool carries(Ends& ends) {
  const auto word = std::vector<std::uint8_t>(kWord.begin(), kWord.end());
  return send_bytes(ends.initiator, kWord) == 3 && receive_bytes(ends.responder, 9) == word &&
         send_bytes(ends.responder, kWord) == 3 && receive_bytes(ends.initiator, 9) == word;
}

// Where the responder has its memory: the same, if it served again.
const void* place_of(const Spares& spares) { return spares.responder->memory.buffer(0); }

TEST(SpareRing, ServesAgainFromTheBeginning) {
  std::optional<Spares> kept(std::in_place);
  const void* place = nullptr;
  for (int turn = 0; turn < 4; ++turn) {
    auto ends = hand_over(std::move(*kept));
    ASSERT_TRUE(ends);
    EXPECT_FALSE(ends->responder.maybe_readable());
    EXPECT_FALSE(ends->responder.peer_closed_hint());
    EXPECT_EQ(ends->initiator.unread_by_peer(), 0U);
    EXPECT_TRUE(carries(*ends));
    ASSERT_EQ(send_bytes(ends->initiator, kWord), 3U) << "octets that nobody reads";
    ends->initiator.close_sending();
    static_cast<void>(ends->responder.prepare_sleep(true));
    kept.emplace(spares_of(std::move(*ends)));
    ASSERT_TRUE(kept->initiator && kept->responder);
    EXPECT_TRUE(turn == 0 || place_of(*kept) == place);
    place = place_of(*kept);
  }
}

// What the responder has kept, with something changed. The hand-over works, by other memory.
void expect_not_used(const std::function<void(Spares&)>& change) {
  auto ends = hand_over();
  ASSERT_TRUE(ends);
  Spares spares = spares_of(std::move(*ends));
  ASSERT_TRUE(spares.initiator && spares.responder);
  const RingMemory& kept = spares.responder->memory;
  kept.buffer(0)[100] = 77;
  change(spares);
  auto again = hand_over(std::move(spares));
  ASSERT_TRUE(again && carries(*again));
  const Spares fresh = spares_of(std::move(*again));
  EXPECT_EQ(fresh.responder->memory.buffer(0)[100], 0) << "this is the memory that was kept";
}

TEST(SpareRing, OfAnotherProcessOrUserOrGroupIsNotUsed) {
  expect_not_used([](Spares& s) { ++s.responder->parties.peer_pid; });
  expect_not_used([](Spares& s) { ++s.responder->parties.peer_user; });
  expect_not_used([](Spares& s) { ++s.responder->parties.peer_group; });
  expect_not_used([](Spares& s) { ++s.responder->parties.user; });
  expect_not_used([](Spares& s) { ++s.responder->parties.group; });
}

TEST(SpareRing, OfAnotherSizeIsNotUsed) {
  auto ends = hand_over();
  ASSERT_TRUE(ends);
  auto again = hand_over(spares_of(std::move(*ends)), 2 * kBytes);
  ASSERT_TRUE(again && carries(*again));
  EXPECT_EQ(again->initiator.buffer_bytes(), 2 * kBytes);
}

TEST(SpareRing, InitiatorRefusesOneThatItHasNotOrHasOfSomebodyElse) {
  const auto taken = [](const std::function<void(Spares&)>& change) {
    auto ends = hand_over();
    if (!ends) return Error::kBusy;
    Spares spares = spares_of(std::move(*ends));
    change(spares);
    auto offer = RingOffer::open();
    if (!offer) return Error::kBusy;
    const auto answered = answer_ring_offer(offer->ticket(), kBytes, std::move(spares.responder));
    const auto ring = offer->take(std::move(spares.initiator));
    return answered && !ring ? ring.error() : Error::kBusy;
  };
  EXPECT_EQ(taken([](Spares& s) { s.initiator.reset(); }), Error::kProtocol);
  EXPECT_EQ(taken([](Spares& s) { ++s.initiator->parties.peer_pid; }), Error::kProtocol);
  EXPECT_EQ(taken([](Spares& s) { ++s.initiator->parties.user; }), Error::kProtocol);
}

TEST(SpareRing, BrokenOneIsGivenBack) {
  auto ends = hand_over();
  ASSERT_TRUE(ends);
  ASSERT_EQ(send_bytes(ends->initiator, std::vector<std::uint8_t>(kBytes)), kBytes);
  const auto spare = std::move(ends->responder).spare();
  ASSERT_TRUE(spare);
  spare->memory.side(0).tail = 0x7fffffff;  // more was read than was sent
  EXPECT_EQ(send_bytes(ends->initiator, kWord), 0U);
  EXPECT_FALSE(std::move(ends->initiator).spare());
}

TEST(SpareRing, PeerThatCannotBeToldFromOthersIsNotServedAgain) {
  auto memory = RingMemory::create(kBytes);
  ASSERT_TRUE(memory);
  Ring ring(std::move(*memory), os::Fd(), 0, {.peer_pid = 0, .peer_user = geteuid()});
  EXPECT_FALSE(std::move(ring).spare());
}

// A process that gives up its rights shares nothing afterwards that it shared before.
TEST(SpareRing, IsNotUsedByAProcessThatHasChangedItsUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  constexpr unsigned kSomebody = 12345;
  const pid_t child = fork();
  if (child == 0) {
    auto ends = hand_over();
    if (!ends) _exit(1);
    Spares spares = spares_of(std::move(*ends));
    if (!spares.responder) _exit(2);
    spares.responder->memory.buffer(0)[100] = 77;
    if (setresuid(kSomebody, kSomebody, kSomebody) != 0) _exit(77);
    auto again = hand_over(std::move(spares));
    if (!again || !carries(*again)) _exit(3);
    const Spares fresh = spares_of(std::move(*again));
    _exit(fresh.responder && fresh.responder->memory.buffer(0)[100] == 0 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no right to change the user";
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

}  // namespace
}  // namespace weft::shm
