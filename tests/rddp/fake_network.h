// A network for the API of <weft/rddp.h> that a test holds in its hands: a clock that moves only
// when a call waits, connections whose peer is the test, and a count of the waits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "rddp/api.h"

namespace weft::testing {

struct FakeWorld {
  Instant now{1};
  int waits = 0;
  bool stuck = false;  // connections take nothing
  std::optional<rddp::Link::Failure> refuse_with;
  rddp::Acceptor* acceptor = nullptr;
};

// Takes what there is to send, and throws it away.
class FakeLink final : public rddp::Link {
 public:
  FakeLink(FakeWorld& world, rddp::Channel& channel) : world_(world), channel_(channel) {
    failure_ = world.refuse_with;
    if (failure_) channel_.lost(false);
  }
  ~FakeLink() override {
    if (closed_) return;
    channel_.lost(false);
    channel_.transport_closed();
  }
  void progress() override {
    while (!world_.stuck && !closed_) {
      const std::size_t size = channel_.next_fpdu().size;
      channel_.taken(size);
      if (size == 0) break;
      channel_.released(size);
    }
    if (channel_.take_fin()) fin_ = true;
    if (closed_ || !channel_.finished()) return;
    closed_ = true;
    channel_.transport_closed();
  }
  [[nodiscard]] bool closed() const noexcept override { return closed_; }
  [[nodiscard]] std::optional<Failure> failure() const noexcept override { return failure_; }

 private:
  FakeWorld& world_;
  rddp::Channel& channel_;
  std::optional<Failure> failure_;
  bool closed_ = false;
  bool fin_ = false;
};

class FakeNetwork final : public rddp::Network {
 public:
  explicit FakeNetwork(FakeWorld& world) : world_(world) { clock_world() = &world; }

  Result<std::unique_ptr<rddp::Link>> connect(rddp::Channel& channel, const char* /*host*/,
                                              std::uint16_t /*port*/,
                                              const proto::StartupOffer& offer) override {
    if (const Status begun = channel.initiate(offer); !begun) return fail(begun.error());
    return std::unique_ptr<rddp::Link>(new FakeLink(world_, channel));
  }
  Result<std::unique_ptr<rddp::Port>> listen(rddp::Acceptor& acceptor, const char* /*host*/,
                                             std::uint16_t /*port*/) override {
    struct FakePort final : rddp::Port {
      [[nodiscard]] std::uint16_t number() const noexcept override { return 1; }
    };
    world_.acceptor = &acceptor;
    return std::unique_ptr<rddp::Port>(new FakePort);
  }
  void wait(Instant until) override {
    ++world_.waits;
    ASSERT_FALSE(until.is_never()) << "a call waits for ever";
    world_.now = std::max(world_.now, until);
  }
  [[nodiscard]] Clock clock() const noexcept override {
    return [] { return clock_world()->now; };
  }
  [[nodiscard]] Random random() const noexcept override {
    return [] { return std::uint32_t{0x12345678}; };
  }
  Result<Mapping> map(int /*fd*/, std::uint64_t /*offset*/, std::uint64_t /*length*/,
                      bool /*writable*/) override {
    return fail(Error::kUnsupported);
  }
  void unmap(const Mapping& /*mapping*/) override {}

 private:
  static FakeWorld*& clock_world() {
    static FakeWorld* world = nullptr;
    return world;
  }
  FakeWorld& world_;
};

// A device in such a world, and peers that connect to it.
class FakeDevice : public ::testing::Test {
 protected:
  FakeDevice() { rddp_default_options(&options); }
  ~FakeDevice() override {
    if (device != nullptr) rddp_close_device(device);
  }
  void open() {
    device = rddp::make_device(std::make_unique<FakeNetwork>(world), &options).value_or(nullptr);
    ASSERT_NE(device, nullptr);
  }
  // A peer connects, and says nothing yet. Null: it was turned away.
  rddp::Channel* knock() const {
    rddp::Channel* channel = world_acceptor().next_channel();
    if (channel == nullptr) return nullptr;
    std::unique_ptr<rddp::Link> link(new FakeLink(const_cast<FakeWorld&>(world), *channel));
    channel->respond();
    world_acceptor().connected(*channel, std::move(link));
    return channel;
  }
  // ... and asks for a connection of kind RDDP_RDMA.
  static void ask(rddp::Channel& channel) {
    proto::StartupOffer offer;
    offer.ird = offer.ord = 4;
    const auto peer = proto::Startup::initiator(offer);
    ASSERT_TRUE(peer);
    const std::span<const std::uint8_t> frame = peer->to_send();
    std::vector<std::uint8_t> octets(frame.begin(), frame.end());
    channel.received(octets);
  }
  [[nodiscard]] rddp::Acceptor& world_acceptor() const { return *world.acceptor; }
  // A connection in full operation.
  rddp_socket* established(rddp_listener* listener) const {
    ask(*knock());
    rddp_socket* socket = nullptr;
    EXPECT_EQ(rddp_accept(listener, 0, &socket), RDDP_OK);
    EXPECT_EQ(rddp_answer(socket, 1, nullptr, 0), RDDP_OK);
    return socket;
  }
  rddp_listener* listen() const {
    rddp_listener* listener = nullptr;
    EXPECT_EQ(rddp_listen(device, RDDP_RDMA, nullptr, 0, &listener), RDDP_OK);
    return listener;
  }

  FakeWorld world;
  rddp_options options{};
  rddp_device* device = nullptr;
};

}  // namespace weft::testing
