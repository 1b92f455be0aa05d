// What is shared among calls and connections: buffers posted on several sockets, and memory of
// messages that outlive the call.
#include <unistd.h>

#include <algorithm>

#include "hosts.h"

namespace weft::testing {
namespace {

int post(rddp_kind kind, rddp_socket* socket, ddp_posted_t* buffer) {
  return (kind == RDDP_RDMA ? rdma_post_recv : ddp_post_recv)(socket, buffer);
}
int send(rddp_kind kind, rddp_socket* socket, const char* text) {
  const ddp_message_t message{text, static_cast<std::uint32_t>(std::string(text).size())};
  return (kind == RDDP_RDMA ? rdma_send : ddp_send)(socket, message);
}

class Shared : public ::testing::TestWithParam<rddp_kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Shared, ::testing::Values(RDDP_RDMA, RDDP_DDP),
                         [](const auto& kind) {
                           return std::string(kind.param == RDDP_RDMA ? "Rdma" : "Ddp");
                         });

// The first connection ends, and nobody asks it for indications before the second has taken the
// buffer that was posted on both.
TEST_P(Shared, ABufferIsNotTouchedByAConnectionThatEndedBeforeAnotherTookIt) {
  const rddp_kind kind = GetParam();
  const auto server = [kind](rddp_listener* listener) {
    rddp_socket* first = accept_one(listener);
    rddp_socket* second = accept_one(listener);
    Posted posted;
    ASSERT_EQ(post(kind, first, &posted.buffer), RDDP_OK);
    ASSERT_EQ(post(kind, first, &posted.buffer), RDDP_OK);
    ASSERT_EQ(post(kind, second, &posted.buffer), RDDP_OK);
    EXPECT_EQ(posted.buffer.posted, 3U);
    ASSERT_EQ(send(kind, second, "go"), RDDP_OK);
    const ddp_ind_t ind = rdma_recv(second);
    ASSERT_EQ(ind.kind, DDP_IND_MESSAGE);
    EXPECT_EQ(ind.buffer, &posted.buffer);
    EXPECT_EQ(posted.buffer.posted, 0U);
    EXPECT_EQ(end_of(first), DDP_ERROR_LOST);
    EXPECT_EQ(posted.buffer.posted, 0U);
    rddp_close(first);
    EXPECT_EQ(posted.buffer.posted, 0U);
    rddp_close(second);
    EXPECT_EQ(posted.buffer.posted, 0U);
  };
  const auto client = [kind](const Client& c) {
    Posted posted;
    rddp_socket* first = c.connect(kind);
    rddp_socket* second = c.connect(kind, &posted.buffer);
    EXPECT_EQ(rdma_recv(second).kind, DDP_IND_MESSAGE);
    rddp_abort(first);
    EXPECT_EQ(send(kind, second, "taken"), RDDP_OK);
    EXPECT_EQ(end_of(second), DDP_ERROR_NONE);
    rddp_close(second);
  };
  run_hosts(kind, server, client);
}

// A peer that does not read for a while: the call returns, and says that the memory is in use.
TEST(SharedMemory, AWriteThatOutlivesItsCallArrivesWhole) {
  constexpr std::size_t kBytes = 24U << 20U;  // more than TCP takes by itself
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const auto server = [&](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener);
    Octets memory(kBytes);
    ddp_bdesc_t where;
    const ddp_buffer_t buffer = memory_of(memory);
    ASSERT_EQ(rdma_register(s, &buffer, RDMA_READ_WRITE, &where), RDDP_OK);
    Posted posted;
    ASSERT_EQ(rdma_post_recv(s, &posted.buffer), RDDP_OK);
    ASSERT_EQ(rdma_send(s, {&where, sizeof where}), RDDP_OK);
    char c = 0;
    EXPECT_EQ(read(go[0], &c, 1), 1);
    EXPECT_EQ(rdma_recv(s).kind, DDP_IND_WRITTEN);
    EXPECT_TRUE(memory == pattern(kBytes, 3));
    EXPECT_EQ(end_of(s), DDP_ERROR_NONE);
    rddp_close(s);
  };
  const auto client = [&](const Client& c) {
    ddp_bdesc_t where{};
    ddp_posted_t first{&where, sizeof where, nullptr, 0};
    rddp_socket* s = c.connect(RDDP_RDMA, &first);
    ASSERT_EQ(rdma_recv(s).kind, DDP_IND_MESSAGE);
    Octets source = pattern(kBytes, 3);
    rddp_set_timeout(s, 50);
    EXPECT_EQ(rdma_write(s, {source.data(), kBytes}, where.address, {1, 1}), RDDP_PENDING);
    EXPECT_EQ(rddp_pending(s), 1U);
    Octets back(1000);
    const ddp_buffer_t buffer = memory_of(back);
    ddp_bdesc_t sink;
    ASSERT_EQ(rdma_register(s, &buffer, RDMA_WRITE, &sink), RDDP_OK);
    EXPECT_EQ(rdma_read(s, where.address, 1000, sink.address), RDDP_PENDING);
    EXPECT_EQ(write(go[1], "g", 1), 1);
    rddp_set_timeout(s, -1);
    EXPECT_EQ(rddp_flush(s), RDDP_OK);
    std::fill(source.begin(), source.end(), 0xff);  // it is ours again
    const ddp_ind_t ind = rdma_recv(s);
    EXPECT_EQ(ind.kind, DDP_IND_READ) << "the call that began it did not see its end";
    EXPECT_EQ(back, pattern(1000, 3));
    rddp_close(s);
  };
  run_hosts(RDDP_RDMA, server, client);
  close(go[0]);
  close(go[1]);
}

}  // namespace
}  // namespace weft::testing
