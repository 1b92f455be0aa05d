// rdma_*: Sends, Writes and Reads between two hosts; what is refused, and how it is told.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "hosts.h"

namespace weft::testing {
namespace {

// The server tells the client where it may write, by a Send.
void tell(rddp_socket* socket, const ddp_bdesc_t& where) {
  EXPECT_EQ(rdma_send(socket, {&where, sizeof where}), RDDP_OK);
}

// Waits for a Send with a description.
ddp_bdesc_t learn(rddp_socket* socket, Posted& posted) {
  const ddp_ind_t ind = rdma_recv(socket);
  EXPECT_EQ(ind.kind, DDP_IND_MESSAGE);
  ddp_bdesc_t where{};
  EXPECT_EQ(ind.length, sizeof where);
  std::copy_n(posted.octets.data(), sizeof where, reinterpret_cast<std::uint8_t*>(&where));
  return where;
}

TEST(Rdma, WriteNotifiesAndReadBringsItBack) {
  constexpr std::size_t kBytes = 200'000;
  const auto server = [](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener, "yes");
    Octets memory(kBytes);
    ddp_bdesc_t where;
    const ddp_buffer_t buffer = memory_of(memory, 1'000'000);
    ASSERT_EQ(rdma_register(s, &buffer, RDMA_READ_WRITE, &where), RDDP_OK);
    Posted posted;
    ASSERT_EQ(rdma_post_recv(s, &posted.buffer), RDDP_OK);
    tell(s, where);
    const ddp_ind_t ind = rdma_recv(s);
    EXPECT_EQ(ind.kind, DDP_IND_WRITTEN);
    EXPECT_EQ(ind.id, 70'000U);
    EXPECT_EQ(ind.buffer, &posted.buffer);
    EXPECT_EQ(memory, pattern(kBytes, 3));
    EXPECT_EQ(rdma_recv(s).kind, DDP_IND_CLOSED);
    rddp_close(s);
  };
  const auto client = [](const Client& c) {
    Posted first;
    rddp_socket* s = c.connect(RDDP_RDMA, &first.buffer, "please");
    std::size_t length = 0;
    const void* data = rddp_private_data(s, &length);
    EXPECT_EQ(std::string(static_cast<const char*>(data), length), "yes");
    const ddp_bdesc_t where = learn(s, first);
    EXPECT_EQ(where.address.offset, 1'000'000U);
    const Octets source = pattern(kBytes, 3);
    ASSERT_EQ(rdma_write(s, {source.data(), kBytes}, where.address, {1, 70'000}), RDDP_OK);
    Octets back(kBytes);
    ddp_bdesc_t sink;
    const ddp_buffer_t buffer = memory_of(back);
    ASSERT_EQ(rdma_register(s, &buffer, RDMA_WRITE, &sink), RDDP_OK);
    ASSERT_EQ(rdma_read(s, where.address, kBytes, sink.address), RDDP_OK);
    EXPECT_EQ(back, source);
    EXPECT_EQ(rdma_deregister(s, sink.handle), RDDP_OK);
    EXPECT_EQ(rdma_deregister(s, sink.handle), RDDP_NOT_FOUND);
    EXPECT_EQ(rdma_read(s, where.address, 1, sink.address), RDDP_INVALID);
    rddp_close(s);
  };
  run_hosts(RDDP_RDMA, server, client);
}

TEST(Rdma, RefusalCarriesPrivateData) {
  const auto server = [](rddp_listener* listener) {
    rddp_socket* s = nullptr;
    ASSERT_EQ(rddp_accept(listener, -1, &s), RDDP_OK);
    EXPECT_EQ(rddp_answer(s, 0, "no", 2), RDDP_OK);
    rddp_close(s);
  };
  const auto client = [](const Client& c) {
    rddp_socket* s = nullptr;
    ASSERT_EQ(rddp_create(c.device, RDDP_RDMA, &s), RDDP_OK);
    ASSERT_EQ(rddp_connect(s, c.host, c.port, nullptr, 0), RDDP_REFUSED);
    std::size_t length = 0;
    const void* data = rddp_private_data(s, &length);
    EXPECT_EQ(std::string(static_cast<const char*>(data), length), "no");
    EXPECT_EQ(rdma_send(s, {"x", 1}), RDDP_BAD_STATE);
    rddp_close(s);
  };
  run_hosts(RDDP_RDMA, server, client);
}

struct Stored {
  Octets octets;
  std::uint64_t base;
  std::uint64_t limit;
};
int store(void* context, std::uint64_t address, const std::uint8_t* octets, std::size_t count) {
  auto& stored = *static_cast<Stored*>(context);
  if (address + count > stored.limit) return -1;
  std::copy_n(octets, count,
              stored.octets.begin() + static_cast<std::ptrdiff_t>(address - stored.base));
  return 0;
}

class RdmaMethod : public ::testing::TestWithParam<int> {};

// CRC off: large FPDUs come in parts, for which a method has no address. With markers (2) they are
// among the payload.
TEST_P(RdmaMethod, TakesEveryOctetAndMayRefuse) {
  rddp_options options;
  rddp_default_options(&options);
  options.crc = GetParam() & 1;
  options.markers = GetParam() >> 1;
  constexpr std::size_t kBytes = 300'000;
  const auto server = [](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener);
    Stored stored{Octets(kBytes), 500, 500 + kBytes - 10};
    ddp_buffer_t buffer{};
    buffer.kind = RDDP_METHOD;
    buffer.length = kBytes;
    buffer.offset = 500;
    buffer.set = store;
    buffer.context = &stored;
    ddp_bdesc_t where;
    EXPECT_EQ(rdma_register(s, &buffer, RDMA_READ, &where), RDDP_INVALID);
    ASSERT_EQ(rdma_register(s, &buffer, RDMA_WRITE, &where), RDDP_OK);
    Posted posted;
    ASSERT_EQ(rdma_post_recv(s, &posted.buffer), RDDP_OK);
    tell(s, where);
    EXPECT_EQ(rdma_recv(s).kind, DDP_IND_WRITTEN);
    Octets expected = pattern(kBytes, 9);
    std::fill(expected.end() - 10, expected.end(), 0);
    EXPECT_EQ(stored.octets, expected);
    EXPECT_EQ(end_of(s), DDP_ERROR_BOUNDS);
    rddp_close(s);
  };
  const auto client = [](const Client& c) {
    Posted first;
    rddp_socket* s = c.connect(RDDP_RDMA, &first.buffer);
    const ddp_bdesc_t where = learn(s, first);
    const Octets source = pattern(kBytes, 9);
    ASSERT_EQ(rdma_write(s, {source.data(), kBytes - 10}, where.address, {1, 0}), RDDP_OK);
    (void)rdma_write(s, {source.data(), kBytes}, where.address, {0, 0});
    EXPECT_EQ(end_of(s), DDP_ERROR_BOUNDS);
    rddp_close(s);
  };
  run_hosts(RDDP_RDMA, server, client, &options);
}
INSTANTIATE_TEST_SUITE_P(CrcAndMarkers, RdmaMethod, ::testing::Values(0, 1, 2, 3));

TEST(Rdma, AFileIsABuffer) {
  constexpr std::size_t kBytes = 50'000, kAt = 5'000;
  const int fd = memfd_create("weft-rddp", 0);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, kAt + kBytes), 0);
  const auto server = [fd](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener);
    ddp_buffer_t buffer{};
    buffer.kind = RDDP_FILE;
    buffer.fd = fd;
    buffer.file_offset = kAt;
    buffer.length = kBytes;
    ddp_bdesc_t where{};
    if (Network::has_files()) {
      ASSERT_EQ(rdma_register(s, &buffer, RDMA_WRITE, &where), RDDP_OK);
      buffer.length = kBytes + 1;
      ddp_bdesc_t beyond;
      EXPECT_EQ(rdma_register(s, &buffer, RDMA_WRITE, &beyond), RDDP_INVALID);
    } else {
      EXPECT_EQ(rdma_register(s, &buffer, RDMA_WRITE, &where), RDDP_UNSUPPORTED);
    }
    Posted posted;
    ASSERT_EQ(rdma_post_recv(s, &posted.buffer), RDDP_OK);
    tell(s, where);
    if (Network::has_files()) {
      EXPECT_EQ(rdma_recv(s).kind, DDP_IND_WRITTEN);
    }
    EXPECT_EQ(rdma_recv(s).kind, DDP_IND_CLOSED);
    rddp_close(s);
  };
  const auto client = [](const Client& c) {
    Posted first;
    rddp_socket* s = c.connect(RDDP_RDMA, &first.buffer);
    const ddp_bdesc_t where = learn(s, first);
    const Octets source = pattern(kBytes, 5);
    if (Network::has_files()) {
      EXPECT_EQ(rdma_write(s, {source.data(), kBytes}, where.address, {1, 1}), RDDP_OK);
    }
    rddp_close(s);
  };
  run_hosts(RDDP_RDMA, server, client);
  Octets content(kBytes);
  ASSERT_EQ(pread(fd, content.data(), kBytes, kAt), static_cast<ssize_t>(kBytes));
  EXPECT_EQ(content == pattern(kBytes, 5), Network::has_files());
  close(fd);
}

// The buffer is posted on both connections; the message that comes first takes it off the other.
TEST(Rdma, ABufferPostedTwiceIsUsedOnce) {
  const auto server = [](rddp_listener* listener) {
    rddp_socket* first = accept_one(listener);
    rddp_socket* second = accept_one(listener);
    Posted posted;
    ASSERT_EQ(rdma_post_recv(first, &posted.buffer), RDDP_OK);
    ASSERT_EQ(rdma_post_recv(second, &posted.buffer), RDDP_OK);
    EXPECT_EQ(posted.buffer.posted, 2U);
    ASSERT_EQ(rdma_send(first, {"go", 2}), RDDP_OK);
    ASSERT_EQ(rdma_send(second, {"go", 2}), RDDP_OK);
    const ddp_ind_t ind = rdma_recv(second);
    EXPECT_EQ(ind.kind, DDP_IND_MESSAGE);
    EXPECT_EQ(ind.buffer, &posted.buffer);
    EXPECT_EQ(posted.buffer.posted, 0U);
    ASSERT_EQ(rdma_send(second, {"next", 4}), RDDP_OK);
    EXPECT_EQ(end_of(first), DDP_ERROR_NO_BUFFER);
    rddp_close(first);
    rddp_close(second);
  };
  const auto client = [](const Client& c) {
    Posted posted[3];
    rddp_socket* first = c.connect(RDDP_RDMA, &posted[0].buffer);
    rddp_socket* second = c.connect(RDDP_RDMA, &posted[1].buffer);
    ASSERT_EQ(rdma_post_recv(second, &posted[2].buffer), RDDP_OK);
    EXPECT_EQ(rdma_recv(first).kind, DDP_IND_MESSAGE);
    EXPECT_EQ(rdma_recv(second).kind, DDP_IND_MESSAGE);
    ASSERT_EQ(rdma_send(second, {"second", 6}), RDDP_OK);
    EXPECT_EQ(rdma_recv(second).kind, DDP_IND_MESSAGE);
    (void)rdma_send(first, {"first", 5});
    EXPECT_EQ(end_of(first), DDP_ERROR_NO_BUFFER);
    rddp_close(first);
    rddp_close(second);
  };
  run_hosts(RDDP_RDMA, server, client);
}

struct Fault {
  std::string name;
  rdma_mode mode;
  std::uint64_t offset;
  bool read, other_stag, too_long;
  ddp_error error;
};
class RdmaFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(RdmaFaults, EndsTheConnectionAndBothSidesKnowWhy) {
  const Fault& fault = GetParam();
  const auto server = [&](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener);
    Octets memory(1000);
    ddp_bdesc_t where;
    const ddp_buffer_t buffer = memory_of(memory);
    ASSERT_EQ(rdma_register(s, &buffer, fault.mode, &where), RDDP_OK);
    Posted posted(4);
    ASSERT_EQ(rdma_post_recv(s, &posted.buffer), RDDP_OK);
    tell(s, where);
    EXPECT_EQ(end_of(s), fault.error);
    EXPECT_EQ(memory, Octets(1000));
    EXPECT_EQ(posted.buffer.posted, 0U);
    EXPECT_EQ(rdma_send(s, {"x", 1}), RDDP_DOWN);
    rddp_close(s);
  };
  const auto client = [&](const Client& c) {
    Posted first;
    rddp_socket* s = c.connect(RDDP_RDMA, &first.buffer);
    const ddp_bdesc_t where = learn(s, first);
    Octets local(200);
    ddp_bdesc_t sink;
    const ddp_buffer_t buffer = memory_of(local);
    ASSERT_EQ(rdma_register(s, &buffer, RDMA_WRITE, &sink), RDDP_OK);
    const std::uint32_t stag = fault.other_stag ? sink.address.stag ^ 0x5500U : where.address.stag;
    const ddp_addr_t to{stag, fault.offset};
    if (fault.read) {
      (void)rdma_read(s, to, 200, sink.address);
    } else if (fault.too_long) {
      (void)rdma_send(s, {local.data(), 200});
    } else {
      (void)rdma_write(s, {local.data(), 200}, to, {0, 0});
    }
    EXPECT_EQ(end_of(s), fault.error);
    EXPECT_EQ(rdma_recv(s).by_peer, 1);
    rddp_close(s);
  };
  run_hosts(RDDP_RDMA, server, client);
}

INSTANTIATE_TEST_SUITE_P(
    All, RdmaFaults,
    ::testing::Values(
        Fault{"UnknownStag", RDMA_WRITE, 0, false, true, false, DDP_ERROR_STAG},
        Fault{"WriteBehindTheEnd", RDMA_WRITE, 801, false, false, false, DDP_ERROR_BOUNDS},
        Fault{"ReadBehindTheEnd", RDMA_READ, 801, true, false, false, DDP_ERROR_BOUNDS},
        Fault{"WriteWithoutRight", RDMA_READ, 0, false, false, false, DDP_ERROR_STAG},
        Fault{"ReadWithoutRight", RDMA_WRITE, 0, true, false, false, DDP_ERROR_RIGHT},
        Fault{"MessageTooLong", RDMA_WRITE, 0, false, false, true, DDP_ERROR_TOO_LONG}),
    [](const auto& fault) { return fault.param.name; });

// With a time limit of 0 nothing waits; indications and rddp_pending() tell what is done.
TEST(Rdma, WorksWithoutWaiting) {
  constexpr std::size_t kBytes = 100'000;
  const auto server = [](rddp_listener* listener) {
    rddp_socket* s = accept_one(listener);
    Octets memory = pattern(kBytes, 77);
    ddp_bdesc_t where;
    const ddp_buffer_t buffer = memory_of(memory);
    ASSERT_EQ(rdma_register(s, &buffer, RDMA_READ, &where), RDDP_OK);
    tell(s, where);
    EXPECT_EQ(rdma_recv(s).kind, DDP_IND_CLOSED);
    rddp_close(s);
  };
  const auto client = [](const Client& c) {
    Posted first;
    rddp_socket* s = c.connect(RDDP_RDMA, &first.buffer);
    const ddp_bdesc_t where = learn(s, first);
    rddp_set_timeout(s, 0);
    EXPECT_EQ(rdma_recv(s).kind, DDP_IND_NONE);
    Octets back(kBytes);
    ddp_bdesc_t sink;
    const ddp_buffer_t buffer = memory_of(back);
    ASSERT_EQ(rdma_register(s, &buffer, RDMA_WRITE, &sink), RDDP_OK);
    ASSERT_EQ(rdma_read(s, where.address, kBytes, sink.address), RDDP_OK);
    EXPECT_EQ(rddp_pending(s), 1U);
    ddp_ind_t ind = rdma_recv(s);
    while (ind.kind == DDP_IND_NONE) {
      rddp_poll(c.device, 1000);
      ind = rdma_recv(s);
    }
    EXPECT_EQ(ind.kind, DDP_IND_READ);
    EXPECT_EQ(ind.length, back.size());
    EXPECT_EQ(rddp_pending(s), 0U);
    EXPECT_EQ(back, pattern(kBytes, 77));
    rddp_close(s);
  };
  run_hosts(RDDP_RDMA, server, client);
}

}  // namespace
}  // namespace weft::testing
