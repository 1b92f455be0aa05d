// Endpoints in memory that the caller hands in, as on a board: what they say they need is enough,
// one octet less is refused, nothing outside is touched, and the heap is never asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "counted_heap.h"
#include "rddp/endpoint.h"

namespace weft::rddp {
namespace {

constexpr std::byte kGuard{0xa5};
constexpr std::size_t kGuardBytes = 64;
constexpr std::uint32_t kRegions = 2;
constexpr std::size_t kMessage = 60'000;

std::uint32_t random_bits() { return 0x1234567; }
Instant no_time() { return Instant{1}; }

// So many octets, at the alignment that is asked for and no better one, between guards.
class Area {
 public:
  explicit Area(std::size_t size)
      : room_(size + 2 * kGuardBytes + 2 * kArenaAlignment, kGuard), size_(size) {
    const auto at = reinterpret_cast<std::uintptr_t>(room_.data() + kGuardBytes);
    begin_ =
        kGuardBytes + (3 * kArenaAlignment - at % (2 * kArenaAlignment)) % (2 * kArenaAlignment);
  }
  std::span<std::byte> memory() { return std::span(room_).subspan(begin_, size_); }
  [[nodiscard]] bool guards_untouched() const {
    const auto end = room_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_);
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    return std::all_of(room_.begin(), room_.begin() + static_cast<std::ptrdiff_t>(begin_),
                       is_guard) &&
           std::all_of(end, room_.end(), is_guard);
  }

 private:
  std::vector<std::byte> room_;
  std::size_t size_;
  std::size_t begin_ = 0;
};

EndpointConfig small() {
  EndpointConfig config;
  config.send_depth = 4;
  config.recv_depth = 2;
  config.batches = 1;
  config.reads = 2;
  config.private_data_kept = 4;
  return config;
}

struct Side {
  Side()
      : domain_area(Domain::memory_needed(kRegions)),
        area(Endpoint::memory_needed(small())),
        octets(2 * kMessage) {}
  // Without the heap, from here on.
  void make() {
    domain.emplace(random_bits, kRegions, domain_area.memory());
    endpoint.emplace(small(), *domain, no_time, area.memory());
    stag = domain->add(octets.data(), octets.size(), 0, Access::kRemoteWrite | Access::kRemoteRead)
               .value_or(Stag{});
  }
  [[nodiscard]] bool post(SendOp op, Stag remote, std::uint64_t to) {
    const Sge sge{reinterpret_cast<std::uintptr_t>(octets.data()), kMessage, 0};
    SendWr wr;
    wr.op = op;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&sge, 1};
    wr.rkey = remote.value;
    wr.remote_addr = to;
    return endpoint->post(wr).has_value();
  }

  Area domain_area, area;
  std::vector<std::uint8_t> octets;
  std::optional<Domain> domain;
  std::optional<Endpoint> endpoint;
  Stag stag;
};

// A transport without memory of its own: what one end gives, the other gets at once.
bool pass_one(Endpoint& from, Endpoint& to) {
  static std::uint8_t wire[1U << 12U];
  const auto slices = from.next_slices();
  const std::size_t size = slices.empty() ? 0 : std::min(slices.front().size, sizeof wire);
  if (size != 0) std::copy_n(slices.front().data, size, wire);
  from.taken(size);
  if (size == 0) return false;
  from.released(size);
  to.received({wire, size});
  return true;
}
void pass_all(Side& a, Side& b) {
  while (pass_one(*a.endpoint, *b.endpoint) || pass_one(*b.endpoint, *a.endpoint)) {
  }
}

bool connect(Side& a, Side& b, std::span<const std::uint8_t> data, bool markers) {
  proto::StartupOffer offer;
  offer.markers = markers;
  offer.ird = offer.ord = 2;
  offer.private_data = data;
  if (!a.endpoint->initiate(offer)) return false;
  b.endpoint->respond();
  pass_all(a, b);
  if (!b.endpoint->accept(offer)) return false;
  pass_all(a, b);
  return a.endpoint->phase() == Endpoint::Phase::kUp && b.endpoint->phase() == Endpoint::Phase::kUp;
}

unsigned succeeded(Endpoint& endpoint) {
  unsigned count = 0;
  while (const auto done = endpoint.poll()) {
    if (done->status == WcStatus::kSuccess) ++count;
  }
  return count;
}

class HandedMemoryStreams : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(All, HandedMemoryStreams, ::testing::Bool(), [](const auto& markers) {
  return std::string(markers.param ? "WithMarkers" : "WithoutMarkers");
});

// Start-up with private data, a Write, a Send and a Read of many FPDUs, and the end.
TEST_P(HandedMemoryStreams, WhatIsNeededIsEnoughAndTheHeapIsNeverAsked) {
  Side a;
  Side b;
  for (std::size_t i = 0; i < kMessage; ++i)
    a.octets[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  const std::uint8_t data[6] = {1, 2, 3, 4, 5, 6};
  testing::begin_counting();
  a.make();
  b.make();
  const bool up = connect(a, b, data, GetParam());
  bool posted = b.endpoint->post_recv(1, b.octets.data() + kMessage, kMessage).has_value();
  posted = posted && a.post(SendOp::kWrite, b.stag, 0) && a.post(SendOp::kSend, {}, 0);
  pass_all(a, b);
  const bool read = b.post(SendOp::kRead, a.stag, 0);
  pass_all(a, b);
  const unsigned sent = succeeded(*a.endpoint);
  const unsigned received = succeeded(*b.endpoint);
  const auto kept = a.endpoint->private_data();
  a.endpoint->close();
  pass_all(a, b);
  EXPECT_EQ(testing::end_counting(), 0U);
  EXPECT_TRUE(up && posted && read);
  EXPECT_EQ(sent, 2U);
  EXPECT_EQ(received, 2U);  // the Send and the Read
  EXPECT_EQ((std::vector<std::uint8_t>(kept.begin(), kept.end())),
            (std::vector<std::uint8_t>{1, 2, 3, 4}));
  const auto half = static_cast<std::ptrdiff_t>(kMessage);
  EXPECT_TRUE(std::equal(a.octets.begin(), a.octets.begin() + half, b.octets.begin()));
  EXPECT_TRUE(std::equal(a.octets.begin(), a.octets.begin() + half, b.octets.begin() + half));
  for (const Side* side : {&a, &b}) {
    EXPECT_TRUE(side->area.guards_untouched());
    EXPECT_TRUE(side->domain_area.guards_untouched());
  }
}

// A transport may report what it took after it has said that the connection is lost.
TEST(HandedMemory, AConnectionThatWasLostBeforeItsReplyLeftStaysLost) {
  Side a;
  Side b;
  a.make();
  b.make();
  ASSERT_TRUE(a.endpoint->initiate({}).has_value());
  b.endpoint->respond();
  pass_all(a, b);
  ASSERT_TRUE(b.endpoint->accept({}).has_value());
  const auto reply = b.endpoint->next_slices();
  ASSERT_FALSE(reply.empty());
  const std::size_t size = reply.front().size;
  b.endpoint->lost(false);
  EXPECT_EQ(b.endpoint->phase(), Endpoint::Phase::kFailed);
  b.endpoint->taken(size);
  EXPECT_EQ(b.endpoint->phase(), Endpoint::Phase::kFailed);
  EXPECT_TRUE(b.endpoint->finished());
}

TEST(HandedMemory, OneOctetLessIsRefused) {
  Side side;
  side.make();
  ASSERT_TRUE(side.endpoint->good());
  Area area(Endpoint::memory_needed(small()) - 1);
  Endpoint endpoint(small(), *side.domain, no_time, area.memory());
  EXPECT_FALSE(endpoint.good());
  const Status begun = endpoint.initiate({});
  ASSERT_FALSE(begun.has_value());
  EXPECT_EQ(begun.error(), Error::kNoMemory);
  endpoint.respond();
  EXPECT_EQ(endpoint.phase(), Endpoint::Phase::kFailed);
  EXPECT_TRUE(area.guards_untouched());

  Area less(Domain::memory_needed(kRegions) - 1);
  Domain domain(random_bits, kRegions, less.memory());
  EXPECT_FALSE(domain.good());
  EXPECT_EQ(domain.add(area.memory().data(), 8, 0, Access::kRemoteWrite).error(), Error::kNoMemory);
  EXPECT_TRUE(less.guards_untouched());
}

TEST(HandedMemory, EveryRegionThatWasAskedForCanBeAdded) {
  Area area(Domain::memory_needed(kRegions));
  Domain domain(random_bits, kRegions, area.memory());
  std::uint8_t octets[8];
  for (std::uint32_t i = 0; i < kRegions; ++i) {
    EXPECT_TRUE(domain.add(octets, sizeof octets, 0, Access::kRemoteWrite).has_value());
  }
  EXPECT_EQ(domain.add(octets, sizeof octets, 0, Access::kRemoteWrite).error(),
            Error::kLimitExceeded);
  EXPECT_TRUE(area.guards_untouched());
}

TEST(HandedMemory, MoreReadsAtOnceThanThereIsMemoryForAreRefused) {
  Side side;
  side.make();
  proto::StartupOffer offer;
  offer.ird = 2;
  offer.ord = 3;
  const Status begun = side.endpoint->initiate(offer);
  ASSERT_FALSE(begun.has_value());
  EXPECT_EQ(begun.error(), Error::kLimitExceeded);
  offer.ord = 2;
  EXPECT_TRUE(side.endpoint->initiate(offer).has_value());
}

}  // namespace
}  // namespace weft::rddp
