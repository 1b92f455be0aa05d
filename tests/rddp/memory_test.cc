// Memory of the API of RFC 4296 over the kernel's TCP: every allocation may fail, and the calls say
// so; a connection that is up takes none.
#include "counted_heap.h"
#include "hosts.h"

namespace weft::testing {
namespace {

int register_for(rddp_kind kind, rddp_socket* socket, Octets& memory, rdma_mode mode,
                 ddp_bdesc_t& where) {
  const ddp_buffer_t buffer = memory_of(memory);
  return kind == RDDP_RDMA ? rdma_register(socket, &buffer, mode, &where)
                           : ddp_register(socket, &buffer, &where);
}

// A whole life on one device: both sides of it, as far as they get. The last status.
struct Life {
  rddp_device* device = nullptr;
  rddp_listener* listener = nullptr;
  rddp_socket* socket = nullptr;

  int live(rddp_kind kind) {
    if (const int status = rddp_open(nullptr, &device); status != RDDP_OK) return status;
    if (const int status = rddp_listen(device, kind, "127.0.0.1", 0, &listener);
        status != RDDP_OK) {
      return status;
    }
    if (const int status = rddp_create(device, kind, &socket); status != RDDP_OK) return status;
    static Octets memory(100);
    ddp_bdesc_t where;
    const int registered = register_for(kind, socket, memory, RDMA_WRITE, where);
    if (registered != RDDP_OK) return registered;
    // Nobody answers: the request comes to the listener of this very device.
    rddp_set_timeout(socket, 1);
    const int connected = rddp_connect(socket, "127.0.0.1", rddp_port(listener), nullptr, 0);
    if (connected != RDDP_TIMED_OUT) return connected;
    rddp_socket* accepted = nullptr;
    const int status = rddp_accept(listener, 0, &accepted);
    if (accepted != nullptr) rddp_abort(accepted);
    return status == RDDP_NO_MEMORY ? status : RDDP_OK;
  }
  ~Life() {
    if (socket != nullptr) rddp_abort(socket);
    if (listener != nullptr) rddp_close_listener(listener);
    if (device != nullptr) rddp_close_device(device);
  }
};

class Memory : public ::testing::TestWithParam<rddp_kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Memory, ::testing::Values(RDDP_RDMA, RDDP_DDP),
                         [](const auto& kind) {
                           return std::string(kind.param == RDDP_RDMA ? "Rdma" : "Ddp");
                         });

// Nothing is thrown across the calls, and none of them says that the caller is to blame. Of what a
// peer connects with, a lack of memory ends that connection only.
TEST_P(Memory, WhereverItIsMissingACallSaysSo) {
  unsigned total = 0;
  {
    Life life;
    begin_counting();
    EXPECT_EQ(life.live(GetParam()), RDDP_OK);
    total = end_counting();
  }
  EXPECT_GT(total, 10U);
  unsigned told = 0;
  for (unsigned n = 1; n <= total; ++n) {
    Life life;
    begin_counting(n);
    const int status = life.live(GetParam());
    (void)end_counting();
    EXPECT_TRUE(status == RDDP_NO_MEMORY || status == RDDP_OK || status == RDDP_DOWN)
        << rddp_describe(status) << " at allocation " << n << " of " << total;
    if (status == RDDP_NO_MEMORY) ++told;
  }
  EXPECT_GT(told, 10U);
}

// Sends, Writes and Reads in both directions, of every size: no memory is taken.
TEST_P(Memory, AConnectionThatIsUpTakesNone) {
  const rddp_kind kind = GetParam();
  constexpr std::size_t kBytes = 300'000;
  constexpr int kRounds = 20;
  const auto send = [kind](rddp_socket* s, const void* data, std::uint32_t size) {
    return kind == RDDP_RDMA ? rdma_send(s, {data, size}) : ddp_send(s, {data, size});
  };
  const auto post = [kind](rddp_socket* s, ddp_posted_t* buffer) {
    return kind == RDDP_RDMA ? rdma_post_recv(s, buffer) : ddp_post_recv(s, buffer);
  };
  const auto server = [&](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener);
    Octets memory(kBytes);
    ddp_bdesc_t where;
    ASSERT_EQ(register_for(kind, s, memory, RDMA_READ_WRITE, where), RDDP_OK);
    Posted posted(kBytes);
    begin_counting();
    int failed = post(s, &posted.buffer);
    failed |= send(s, &where, sizeof where);
    for (int i = 0; i < kRounds; ++i) {
      if (rdma_recv(s).kind != DDP_IND_MESSAGE) break;
      failed |= post(s, &posted.buffer);
      failed |= send(s, memory.data(), kBytes);
    }
    EXPECT_EQ(end_counting(), 0U);
    EXPECT_EQ(failed, RDDP_OK);
    EXPECT_EQ(end_of(s), DDP_ERROR_NONE);
    rddp_close(s);
  };
  const auto client = [&](const Client& c) {
    Posted posted(kBytes);
    rddp_socket* s = c.connect(kind, &posted.buffer);
    ASSERT_EQ(rdma_recv(s).kind, DDP_IND_MESSAGE);
    ddp_bdesc_t where{};
    std::copy_n(posted.octets.data(), sizeof where, reinterpret_cast<std::uint8_t*>(&where));
    Octets local(kBytes);
    ddp_bdesc_t sink{};
    if (kind == RDDP_RDMA) {
      ASSERT_EQ(register_for(kind, s, local, RDMA_WRITE, sink), RDDP_OK);
    }
    begin_counting();
    int failed = RDDP_OK;
    for (int i = 0; i < kRounds; ++i) {
      failed |= post(s, &posted.buffer);
      if (kind == RDDP_RDMA) {
        failed |= rdma_write(s, {local.data(), kBytes}, where.address, {0, 0});
        failed |= rdma_read(s, where.address, kBytes, sink.address);
      } else {
        failed |= ddp_send_ddp(s, {local.data(), kBytes}, where.address, {0, 0});
      }
      failed |= send(s, local.data(), kBytes);
      if (rdma_recv(s).kind != DDP_IND_MESSAGE) break;
    }
    EXPECT_EQ(end_counting(), 0U);
    EXPECT_EQ(failed, RDDP_OK);
    rddp_close(s);
  };
  run_hosts(kind, server, client);
}

}  // namespace
}  // namespace weft::testing
