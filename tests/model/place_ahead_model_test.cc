// Placement ahead of its turn against what the octets are known to be: any run of the stream, at
// any place, damaged or not, places right octets or none; and the pass in order ends with the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "rddp/endpoint.h"
#include "wire/fpdu.h"

namespace weft::rddp {
namespace {

constexpr std::uint8_t kFill = 0xee;

std::uint32_t random_bits() {
  static std::mt19937 source(5);
  return static_cast<std::uint32_t>(source());
}
Instant no_time() { return Instant{1}; }

// One endpoint with memory; the receiver's is filled with kFill.
struct Side {
  Side() {
    EndpointConfig config;
    config.send_depth = 1024;
    endpoint = Endpoint::create(config, domain, no_time);
    stag = domain.add(memory.data(), memory.size(), 0, Access::kRemoteWrite | Access::kRemoteRead)
               .value_or(Stag{});
  }
  Status post(SendOp op, std::size_t at, std::uint32_t size, Stag remote, std::uint64_t to) {
    const Sge sge{reinterpret_cast<std::uintptr_t>(memory.data() + at), size, 0};
    SendWr wr;
    wr.op = op;
    wr.sges = {&sge, 1};
    wr.rkey = remote.value;
    wr.remote_addr = to;
    return endpoint->post(wr);
  }
  // Everything there is to send.
  std::vector<std::uint8_t> take() {
    std::vector<std::uint8_t> out;
    while (true) {
      const std::size_t before = out.size();
      for (const Slice& slice : endpoint->next_slices()) {
        out.insert(out.end(), slice.data, slice.data + slice.size);
      }
      const std::size_t size = out.size() - before;
      endpoint->taken(size);
      if (size == 0) return out;
      endpoint->released(size);
    }
  }
  Domain domain{random_bits, 16};
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(200000, kFill);
  Stag stag;
  std::unique_ptr<Endpoint> endpoint;
};

struct Wish {
  bool crc = true;
  bool markers = true;
};

// Two endpoints in full operation, and the octets of the sender's stream.
class Ahead : public ::testing::Test {
 protected:
  void connect(const Wish& wish = {}) {
    proto::StartupOffer offer;
    offer.crc = wish.crc;
    offer.markers = wish.markers;
    offer.ird = offer.ord = 8;
    ASSERT_TRUE(sender.endpoint->initiate(offer));
    receiver.endpoint->respond();
    pass(sender, receiver);
    ASSERT_TRUE(receiver.endpoint->accept(offer));
    pass(receiver, sender);
    ASSERT_EQ(sender.endpoint->phase(), Endpoint::Phase::kUp);
    for (std::size_t i = 0; i < sender.memory.size(); ++i) {
      sender.memory[i] = static_cast<std::uint8_t>((i * 2654435761U) >> 13U) & 0x7fU;
    }
    // The receiver may speak once it has been spoken to.
    ASSERT_TRUE(sender.post(SendOp::kWrite, 0, 1, receiver.stag, receiver.memory.size() - 1));
    pass(sender, receiver);
  }

  static void pass(Side& from, Side& to) {
    std::vector<std::uint8_t> octets = from.take();
    to.endpoint->received(octets);
  }

  void write(std::size_t at, std::uint32_t size) {
    ASSERT_TRUE(sender.post(SendOp::kWrite, at, size, receiver.stag, at));
  }

  // Octets of the receiver's memory that are neither as they were nor as they should be.
  [[nodiscard]] std::size_t wrong_octets() const {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i + 1 < receiver.memory.size(); ++i) {
      if (receiver.memory[i] != kFill && receiver.memory[i] != sender.memory[i]) ++wrong;
    }
    return wrong;
  }
  [[nodiscard]] std::size_t placed_octets() const {
    return static_cast<std::size_t>(std::count_if(receiver.memory.begin(),
                                                  receiver.memory.end() - 1,
                                                  [](std::uint8_t o) { return o != kFill; }));
  }
  [[nodiscard]] proto::Ahead ahead(const std::vector<std::uint8_t>& stream, std::size_t from,
                                   std::size_t size) const {
    return receiver.endpoint->place_ahead(static_cast<std::uint32_t>(from),
                                          std::span(stream).subspan(from, size));
  }

  Side sender, receiver;
};

TEST_F(Ahead, TheWholeStreamButItsFirstFpduIsPlaced) {
  connect();
  write(0, 50000);
  std::vector<std::uint8_t> stream = sender.take();
  const proto::Ahead placed = ahead(stream, 1, stream.size() - 1);
  EXPECT_GE(placed.octets, 45000U);
  EXPECT_EQ(placed_octets(), placed.octets);
  EXPECT_EQ(wrong_octets(), 0U);
  receiver.endpoint->received(stream);
  EXPECT_TRUE(
      std::equal(sender.memory.begin(), sender.memory.begin() + 50000, receiver.memory.begin()));
}

TEST_F(Ahead, NothingIsPlacedWithoutMarkersOrWithoutCrc) {
  for (const Wish wish : {Wish{true, false}, Wish{false, true}}) {
    sender.endpoint = Endpoint::create({}, sender.domain, no_time);
    receiver.endpoint = Endpoint::create({}, receiver.domain, no_time);
    connect(wish);
    write(0, 5000);
    const std::vector<std::uint8_t> stream = sender.take();
    EXPECT_EQ(ahead(stream, 0, stream.size()).fpdus, 0U);
    EXPECT_EQ(placed_octets(), 0U);
  }
}

TEST_F(Ahead, OnlyWhatThePeerMayWriteIsPlaced) {
  connect();
  ASSERT_TRUE(sender.post(SendOp::kSend, 0, 3000, {}, 0));
  ASSERT_TRUE(sender.post(SendOp::kWrite, 0, 3000, Stag{receiver.stag.value ^ 0x100U}, 0));
  ASSERT_TRUE(sender.post(SendOp::kWrite, 0, 3000, receiver.stag, receiver.memory.size() - 1000));
  // Of one segment: the next ones would have wrapped to where they may be.
  ASSERT_TRUE(sender.post(SendOp::kWrite, 0, 200, receiver.stag, ~std::uint64_t{0} - 100));
  const std::vector<std::uint8_t> stream = sender.take();
  EXPECT_EQ(ahead(stream, 0, stream.size()).fpdus, 0U);
  EXPECT_EQ(placed_octets(), 0U);
}

// Regions may go while octets are on their way.
TEST_F(Ahead, ARevokedStagPlacesNothing) {
  connect();
  write(0, 5000);
  const std::vector<std::uint8_t> stream = sender.take();
  ASSERT_TRUE(receiver.domain.remove(receiver.stag));
  EXPECT_EQ(ahead(stream, 0, stream.size()).fpdus, 0U);
  EXPECT_EQ(placed_octets(), 0U);
}

TEST_F(Ahead, ReadResponsesArePlacedOnlyIntoASinkThatWaits) {
  connect();
  // The roles are turned: the receiver of the octets is the one who reads.
  ASSERT_TRUE(receiver.post(SendOp::kRead, 1000, 20000, sender.stag, 1000));
  pass(receiver, sender);
  const std::vector<std::uint8_t> stream = sender.take();
  EXPECT_GT(ahead(stream, 0, stream.size()).fpdus, 0U);
  EXPECT_EQ(wrong_octets(), 0U);
  EXPECT_GE(placed_octets(), 15000U);
  std::vector<std::uint8_t> in_order = stream;
  receiver.endpoint->received(in_order);
  // Now no Read waits: the same octets, said to come ahead again, are not placed.
  EXPECT_EQ(ahead(stream, 0, stream.size()).fpdus, 0U);
}

// The endpoint has one place for an FPDU that comes in pieces, and no second one to move it to.
TEST_F(Ahead, LengthFieldsThatComeInTwoPiecesAreTaken) {
  connect();
  constexpr std::size_t kMessage = 98;
  constexpr std::size_t kMessages = 40;
  for (std::size_t i = 0; i < kMessages; ++i) write(i * kMessage, kMessage);
  std::vector<std::uint8_t> stream = sender.take();
  // Each piece ends one octet into the next FPDU.
  std::size_t done = 0;
  for (std::size_t at = 0; at < stream.size(); at += fpdu_size(load_ulpdu_length(&stream[at]))) {
    receiver.endpoint->received(std::span(stream).subspan(done, at + 1 - done));
    done = at + 1;
  }
  receiver.endpoint->received(std::span(stream).subspan(done));
  EXPECT_EQ(receiver.endpoint->phase(), Endpoint::Phase::kUp);
  EXPECT_EQ(wrong_octets(), 0U);
  EXPECT_EQ(placed_octets(), kMessage * kMessages);
}

TEST_F(Ahead, AnyRunDamagedOrNotPlacesRightOctetsOrNone) {
  connect();
  const int seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
  std::mt19937 rng(seed + 99);
  for (std::size_t at = 0; at + 9000 < 190000;) {
    const auto size = static_cast<std::uint32_t>(1 + rng() % 9000);
    write(at, size);
    at += size;
    if (rng() % 4 == 0) at += rng() % 100;
    if (at > 20000 && sender.endpoint->tx_pending() && rng() % 40 == 0) break;
  }
  const std::vector<std::uint8_t> stream = sender.take();
  std::uint64_t placed = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::size_t from = 1 + rng() % (stream.size() - 1);
    const std::size_t size = 1 + rng() % std::min<std::size_t>(6000, stream.size() - from);
    std::vector<std::uint8_t> run(stream.begin() + static_cast<std::ptrdiff_t>(from),
                                  stream.begin() + static_cast<std::ptrdiff_t>(from + size));
    const auto kind = rng() % 3;
    if (kind == 1) run[rng() % size] ^= static_cast<std::uint8_t>(1U << rng() % 8);
    // A peer that lies about where its octets belong.
    const std::uint32_t shift = kind == 2 ? static_cast<std::uint32_t>(rng() % 2048) : 0;
    placed += receiver.endpoint->place_ahead(static_cast<std::uint32_t>(from) + shift, run).octets;
    if (i % 50 == 49) {
      ASSERT_EQ(wrong_octets(), 0U) << "in the runs up to " << i;
    }
  }
  EXPECT_GT(placed, 0U);
  // In order, in pieces of any size: the same result as without.
  std::vector<std::uint8_t> rest = stream;
  for (std::size_t at = 0; at < rest.size();) {
    const std::size_t piece = std::min<std::size_t>(1 + rng() % 3000, rest.size() - at);
    receiver.endpoint->received(std::span(rest).subspan(at, piece));
    at += piece;
  }
  EXPECT_EQ(receiver.endpoint->phase(), Endpoint::Phase::kUp);
  EXPECT_EQ(wrong_octets(), 0U);
}

}  // namespace
}  // namespace weft::rddp
