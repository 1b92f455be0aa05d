// ddp_* without RDMAP, and xpt_* without DDP.
#include <algorithm>
#include <vector>

#include "hosts.h"

namespace weft::testing {
namespace {

// Two descriptions of the same memory from the server to the client.
struct Aliases {
  ddp_bdesc_t one, two;
};

rddp_socket* connect_and_learn(const Client& c, Aliases& aliases) {
  ddp_posted_t posted{&aliases, sizeof aliases, nullptr, 0};
  rddp_socket* s = c.connect(RDDP_DDP, &posted);
  EXPECT_EQ(ddp_recv(s).kind, DDP_IND_MESSAGE);
  return s;
}

class DdpMarkers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OffAndOn, DdpMarkers, ::testing::Values(0, 1));

TEST_P(DdpMarkers, UntaggedMessagesArriveInTheBuffersInOrder) {
  rddp_options options;
  rddp_default_options(&options);
  options.markers = GetParam();
  constexpr std::size_t kCount = 8, kBytes = 20'000;
  const auto server = [](rddp_listener* listener) {
    rddp_socket* s = nullptr;
    ASSERT_EQ(rddp_accept(listener, -1, &s), RDDP_OK);
    std::vector<Posted> posted(kCount, Posted(0));
    for (Posted& p : posted) {
      p.octets.resize(kBytes);
      p.buffer = {p.octets.data(), kBytes, nullptr, 0};
      ASSERT_EQ(ddp_post_recv(s, &p.buffer), RDDP_OK);
    }
    ASSERT_EQ(rddp_answer(s, 1, nullptr, 0), RDDP_OK);
    for (std::size_t i = 0; i < kCount; ++i) {
      const ddp_ind_t ind = ddp_recv(s);
      ASSERT_EQ(ind.kind, DDP_IND_MESSAGE);
      EXPECT_EQ(ind.buffer, &posted[i].buffer);
      const std::size_t size = kBytes - i * 2'000;
      EXPECT_EQ(ind.length, size);
      posted[i].octets.resize(size);
      EXPECT_EQ(posted[i].octets, pattern(size, static_cast<std::uint8_t>(i)));
    }
    EXPECT_EQ(ddp_recv(s).kind, DDP_IND_CLOSED);
    rddp_close(s);
  };
  const auto client = [](const Client& c) {
    rddp_socket* s = c.connect(RDDP_DDP);
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::size_t size = kBytes - i * 2'000;
      const Octets message = pattern(size, static_cast<std::uint8_t>(i));
      ASSERT_EQ(ddp_send(s, {message.data(), static_cast<std::uint32_t>(size)}), RDDP_OK);
    }
    const ddp_msizes_t sizes = ddp_max_msizes(s);
    EXPECT_GT(sizes.tagged, sizes.untagged);
    EXPECT_GE(sizes.untagged, 110U);
    rddp_close(s);
  };
  run_hosts(RDDP_DDP, server, client, &options);
}

// A responder speaks first; the same memory under two STags with different offsets.
TEST(Ddp, TaggedMessagesLandByEitherAliasAndNotify) {
  const auto server = [](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener);
    Octets memory(50'000);
    const ddp_buffer_t whole = memory_of(memory);
    ddp_buffer_t part = memory_of(memory, 700);
    part.memory = memory.data() + 40'000;
    part.length = 10'000;
    Aliases aliases;
    ASSERT_EQ(ddp_register(s, &whole, &aliases.one), RDDP_OK);
    ASSERT_EQ(ddp_register(s, &part, &aliases.two), RDDP_OK);
    ASSERT_EQ(ddp_send(s, {&aliases, sizeof aliases}), RDDP_OK);
    EXPECT_EQ(ddp_recv(s).id, 5U);
    const ddp_ind_t ind = ddp_recv(s);
    EXPECT_EQ(ind.kind, DDP_IND_WRITTEN);
    EXPECT_EQ(ind.id, 127U);
    Octets expected = pattern(50'000, 1);
    const Octets end = pattern(10'000, 2);
    std::copy(end.begin(), end.end(), expected.begin() + 40'000);
    EXPECT_EQ(memory, expected);
    EXPECT_EQ(ddp_recv(s).kind, DDP_IND_CLOSED);
    rddp_close(s);
  };
  const auto client = [](const Client& c) {
    Aliases aliases;
    rddp_socket* s = connect_and_learn(c, aliases);
    const Octets whole = pattern(50'000, 1), end = pattern(10'000, 2);
    ASSERT_EQ(ddp_send_ddp(s, {whole.data(), 50'000}, aliases.one.address, {1, 5}), RDDP_OK);
    ASSERT_EQ(ddp_send_ddp(s, {end.data(), 5'000}, aliases.two.address, {0, 0}), RDDP_OK);
    const ddp_addr_t half{aliases.two.address.stag, 5'700};
    ASSERT_EQ(ddp_send_ddp(s, {end.data() + 5'000, 5'000}, half, {1, 127}), RDDP_OK);
    EXPECT_EQ(ddp_send_ddp(s, {end.data(), 1}, half, {1, RDDP_DDP_IDS}), RDDP_INVALID);
    EXPECT_EQ(rdma_send(s, {end.data(), 1}), RDDP_BAD_STATE);
    rddp_close(s);
  };
  run_hosts(RDDP_DDP, server, client);
}

struct Fault {
  std::string name;
  std::function<void(rddp_socket*, const Aliases&)> act;
  ddp_error error;
};
class DdpFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(DdpFaults, AreIndicatedAndNothingIsPlaced) {
  const Fault& fault = GetParam();
  const auto server = [&](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener);
    Octets memory(1'000);
    const ddp_buffer_t buffer = memory_of(memory);
    Aliases aliases;
    ASSERT_EQ(ddp_register(s, &buffer, &aliases.one), RDDP_OK);
    ASSERT_EQ(ddp_register(s, &buffer, &aliases.two), RDDP_OK);
    ASSERT_EQ(ddp_deregister(s, aliases.two.handle), RDDP_OK);
    Posted small(4);
    ASSERT_EQ(ddp_post_recv(s, &small.buffer), RDDP_OK);
    ASSERT_EQ(ddp_send(s, {&aliases, sizeof aliases}), RDDP_OK);
    EXPECT_EQ(end_of(s), fault.error) << ddp_describe_error(fault.error);
    EXPECT_EQ(small.buffer.posted, 0U) << "the buffer is the program's again";
    EXPECT_EQ(memory, Octets(1'000));
    EXPECT_EQ(ddp_send(s, {"x", 1}), RDDP_DOWN);
    rddp_close(s);
  };
  const auto client = [&](const Client& c) {
    Aliases aliases;
    rddp_socket* s = connect_and_learn(c, aliases);
    fault.act(s, aliases);
    EXPECT_EQ(ddp_recv(s).error, DDP_ERROR_LOST);
    rddp_close(s);
  };
  run_hosts(RDDP_DDP, server, client);
}

const Octets kZeros(1'000, 0x55);
INSTANTIATE_TEST_SUITE_P(
    All, DdpFaults,
    ::testing::Values(
        Fault{"Bounds",
              [](rddp_socket* s, const Aliases& a) {
                (void)ddp_send_ddp(s, {kZeros.data(), 1'000}, {a.one.address.stag, 1}, {0, 0});
              },
              DDP_ERROR_BOUNDS},
        Fault{"DeregisteredStag",
              [](rddp_socket* s, const Aliases& a) {
                (void)ddp_send_ddp(s, {kZeros.data(), 10}, a.two.address, {0, 0});
              },
              DDP_ERROR_STAG},
        Fault{"TooLong",
              [](rddp_socket* s, const Aliases&) {
                (void)ddp_send(s, {kZeros.data(), 5});
              },
              DDP_ERROR_TOO_LONG},
        Fault{"NoBuffer",
              [](rddp_socket* s, const Aliases&) {
                (void)ddp_send(s, {kZeros.data(), 4});
                (void)ddp_send(s, {kZeros.data(), 4});
              },
              DDP_ERROR_NO_BUFFER}),
    [](const auto& fault) { return fault.param.name; });

// An STag is good on the connection that it was registered for, and on no other.
TEST(Ddp, AnotherConnectionsStagIsRefused) {
  const auto server = [](rddp_listener* listener) {
    rddp_socket* first = accept_one(listener);
    rddp_socket* second = accept_one(listener);
    Octets memory(1'000);
    const ddp_buffer_t buffer = memory_of(memory);
    Aliases aliases{};
    ASSERT_EQ(ddp_register(first, &buffer, &aliases.one), RDDP_OK);
    ASSERT_EQ(ddp_send(second, {&aliases, sizeof aliases}), RDDP_OK);
    EXPECT_EQ(ddp_recv(second).error, DDP_ERROR_STAG);
    rddp_close(second);
    EXPECT_EQ(ddp_recv(first).kind, DDP_IND_CLOSED);
    rddp_close(first);
  };
  const auto client = [](const Client& c) {
    rddp_socket* first = c.connect(RDDP_DDP);
    Aliases aliases;
    rddp_socket* second = connect_and_learn(c, aliases);
    (void)ddp_send_ddp(second, {"x", 1}, aliases.one.address, {0, 0});
    EXPECT_EQ(ddp_recv(second).error, DDP_ERROR_LOST);
    rddp_close(second);
    rddp_close(first);
  };
  run_hosts(RDDP_DDP, server, client);
}

TEST(Xpt, CarriesFpdusOfAnySizeUpToTheLargest) {
  const auto server = [](rddp_listener* listener) {
    rddp_socket* s = nullptr;
    ASSERT_EQ(rddp_accept(listener, -1, &s), RDDP_OK);
    Posted one(70'000), two(70'000);
    ASSERT_EQ(xpt_post_recv(s, &one.buffer), RDDP_OK);
    ASSERT_EQ(xpt_post_recv(s, &two.buffer), RDDP_OK);
    ASSERT_EQ(rddp_answer(s, 1, nullptr, 0), RDDP_OK);
    EXPECT_EQ(xpt_recv(s).length, 1U);
    const ddp_ind_t ind = xpt_recv(s);
    EXPECT_GE(ind.length, 1'000U);
    two.octets.resize(ind.length);
    EXPECT_EQ(two.octets, pattern(ind.length, 8));
    EXPECT_EQ(xpt_recv(s).kind, DDP_IND_CLOSED);
    rddp_close(s);
  };
  const auto client = [](const Client& c) {
    rddp_socket* s = c.connect(RDDP_XPT);
    const std::uint32_t max = xpt_max_msize(s);
    const Octets message = pattern(max + 1, 8);
    EXPECT_EQ(xpt_send(s, {message.data(), max + 1}), RDDP_INVALID);
    EXPECT_EQ(xpt_send(s, {message.data(), 1}), RDDP_OK);
    EXPECT_EQ(xpt_send(s, {message.data(), max}), RDDP_OK);
    rddp_close(s);
  };
  run_hosts(RDDP_XPT, server, client);
}

}  // namespace
}  // namespace weft::testing
