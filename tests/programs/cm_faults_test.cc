// Details of rdma_create_qp_ex and rdma_connect that programs rely on, and functions of releases of
// rdma-core whose headers this tree is not built with.

#include <dlfcn.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "abi_support.h"

namespace weft::abi {
namespace {

TEST(CmFaults, AQpWithTheDomainBitAndNoDomainTakesTheIds) {
  const Listening listening;
  const Calling calling(listening.port);
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {4, 4, 1, 1, 0};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = nullptr;
  ASSERT_EQ(rdma_create_qp_ex(calling.id, &attr), 0) << strerror(errno);
  EXPECT_EQ(calling.id->qp->pd, calling.id->pd);
}

// What an addrinfo of rdma_create_ep brings comes before the program's own private data.
TEST(CmFaults, ConnectDataOfTheAddrinfoComesFirst) {
  const Listening listening;
  auto peer = v4("127.0.0.1", listening.port);
  std::string first = "from addrinfo, ";
  rdma_addrinfo info{};
  info.ai_family = AF_INET;
  info.ai_qp_type = IBV_QPT_RC;
  info.ai_port_space = RDMA_PS_TCP;
  info.ai_dst_addr = generic(peer);
  info.ai_dst_len = sizeof peer;
  info.ai_connect = first.data();
  info.ai_connect_len = first.size();
  rdma_cm_id* id = nullptr;
  ibv_qp_init_attr attr = rc_attributes(nullptr, 4);
  ASSERT_EQ(rdma_create_ep(&id, &info, nullptr, &attr), 0) << strerror(errno);

  std::vector<char> long_data(250, 'x');
  rdma_conn_param params{};
  params.private_data = long_data.data();
  params.private_data_len = 250;
  EXPECT_EQ(rdma_connect(id, &params), -1) << "265 octets do not fit";
  EXPECT_EQ(errno, EINVAL);

  const std::string second = "then the call's";
  params.private_data = second.data();
  params.private_data_len = static_cast<std::uint8_t>(second.size());
  std::thread server([&] {
    const NextEvent request(listening.channel.get());
    EXPECT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request.data(), first + second);
    EXPECT_EQ(rdma_reject(request.id(), nullptr, 0), 0);
    EXPECT_EQ(rdma_destroy_id(request.id()), 0);
  });
  EXPECT_EQ(rdma_connect(id, &params), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  server.join();
  rdma_destroy_ep(id);
}

// An MPA initiator made of octets, which keeps its first FPDU back until it is told (RFC 6581 9.2).
class SlowInitiator {
 public:
  explicit SlowInitiator(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    auto peer = v4("127.0.0.1", port);
    EXPECT_EQ(::connect(socket_, generic(peer), sizeof peer), 0) << strerror(errno);
    // Revision 2, CRC; peer to peer, an empty Write as RTR; IRD 1, ORD 1.
    std::string request = "MPA ID Req Frame";
    request += {'\x50', '\x02', '\x00', '\x04', '\x80', '\x01', '\x80', '\x01'};
    say(request);
  }
  ~SlowInitiator() { ::close(socket_); }
  SlowInitiator(const SlowInitiator&) = delete;
  SlowInitiator& operator=(const SlowInitiator&) = delete;

  void take_reply() {
    std::array<char, 24> reply{};
    ASSERT_EQ(::recv(socket_, reply.data(), reply.size(), MSG_WAITALL), 24);
    EXPECT_EQ(std::string(reply.data(), 16), "MPA ID Rep Frame");
    EXPECT_EQ(reply[16] & 0x20, 0) << "rejected";
  }
  [[nodiscard]] bool reads_end() const {
    char octet = 0;
    return readable(socket_) && ::recv(socket_, &octet, 1, 0) == 0;
  }

 private:
  void say(const std::string& octets) const {
    EXPECT_EQ(::send(socket_, octets.data(), octets.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(octets.size()));
  }
  int socket_;
};

// While the peer's first FPDU is awaited, a disconnect gives the connection up.
TEST(CmFaults, ADisconnectBeforeTheFirstFpduIsTheEndOfTheConnection) {
  const Listening listening;
  SlowInitiator peer(listening.port);
  NextEvent request(listening.channel.get());
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const id = request.id();
  ibv_qp_init_attr attr = rc_attributes(nullptr, 4);
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attr), 0) << strerror(errno);
  rdma_conn_param params{};
  params.responder_resources = params.initiator_depth = 1;
  ASSERT_EQ(rdma_accept(id, &params), 0) << strerror(errno);
  request.ack();
  peer.take_reply();
  EXPECT_EQ(rdma_disconnect(id), 0) << strerror(errno);
  EXPECT_TRUE(peer.reads_end());
  EXPECT_EQ(NextEvent(listening.channel.get()).type(), RDMA_CM_EVENT_CONNECT_ERROR);
  EXPECT_EQ(rdma_disconnect(id), 0) << "it has ended";
  rdma_destroy_qp(id);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// Connects, asks with the private data "gone", and leaves. False: the listener's queue is full.
bool ask_and_leave(std::uint16_t port) {
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  auto peer = v4("127.0.0.1", port);
  static_cast<void>(::connect(client, generic(peer), sizeof peer));
  pollfd p{client, POLLOUT, 0};
  const bool connected = ::poll(&p, 1, 10) == 1 && (p.revents & POLLERR) == 0;
  if (connected) {
    std::string request = "MPA ID Req Frame";
    request += {'\x40', '\x01', '\x00', '\x04'};
    request += "gone";
    EXPECT_EQ(::send(client, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
  }
  ::close(client);
  return connected;
}

// Peers that ask and leave cost a program that does not read its channel no memory without end.
TEST(CmFaults, RequestsWhosePeersHaveLeftCountUntilTheProgramTakesThem) {
  constexpr std::size_t kBytesMax = 8U << 20U;
  const Listening listening(4);
  ASSERT_TRUE(ask_and_leave(listening.port));
  const std::size_t before = mallinfo2().uordblks;
  int in_vain = 0;
  for (int i = 0; i < 20000 && in_vain < 50; ++i) {
    in_vain = ask_and_leave(listening.port) ? 0 : in_vain + 1;
  }
  EXPECT_LT(mallinfo2().uordblks, before + kBytesMax);

  Calling calling(listening.port);
  calling.connect();
  bool gone = true;
  while (gone) {
    NextEvent event(listening.channel.get());
    ASSERT_EQ(event.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    gone = event.data() == "gone";
    static_cast<void>(rdma_reject(event.id(), nullptr, 0));
    rdma_cm_id* const id = event.id();
    event.ack();
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
  EXPECT_EQ(NextEvent(calling.channel.get()).type(), RDMA_CM_EVENT_REJECTED);
}

// --- functions of later releases, which the headers here do not have ---

template <class Function>
Function* later(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

TEST(CmFaults, AnEventOfTheProgramsOwnArrivesWithStatusAndArgument) {
  constexpr int kEventUser = 18;
  auto* write = later<int(rdma_cm_id*, int, int, std::uint64_t)>("rdma_write_cm_event");
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  EXPECT_EQ(write(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), -1) << "that is not the program's to say";
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(write(id, kEventUser, -7, 0x123456789abcdef0), 0);
  {
    const NextEvent event(channel.get());
    EXPECT_EQ(event.type(), kEventUser);
    EXPECT_EQ(event.status(), -7);
    EXPECT_EQ(event.id(), id);
    std::uint64_t argument = 0;
    std::memcpy(&argument, &event.parameters(), sizeof argument);
    EXPECT_EQ(argument, 0x123456789abcdef0U);
  }
  EXPECT_STREQ(later<const char*(int)>("rdma_event_str")(kEventUser), "RDMA_CM_EVENT_USER");
  EXPECT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(write(id, kEventUser, 0, 0), -1);
}

TEST(VerbsLater, ThePortHasTheSpeedThatItsAttributesSay) {
  auto* speed_of = later<int(ibv_context*, std::uint32_t, std::uint64_t*)>("ibv_query_port_speed");
  const Opened device;
  std::uint64_t speed = 0;
  ASSERT_EQ(speed_of(device.get(), 1, &speed), 0);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(device.get(), 1, &port), 0);
  EXPECT_EQ(port.active_width, 2) << "four lanes";
  EXPECT_EQ(port.active_speed, 32) << "25 Gbit/s each";
  EXPECT_EQ(speed, 1000U) << "in units of 100 Mbit/s";
  EXPECT_EQ(speed_of(device.get(), 2, &speed), EINVAL);
}

struct MrInitAttr {
  std::size_t length;
  int access;
  std::uint64_t comp_mask;
  std::uint64_t iova;
  void* addr;
  int fd;
  std::uint64_t fd_offset;
  void* dmah;
};

TEST(VerbsLater, MemoryIsRegisteredByAttributes) {
  constexpr std::uint64_t kIova = 1;
  constexpr std::uint64_t kAddr = 2;
  constexpr std::uint64_t kFd = 4;
  auto* register_memory = later<ibv_mr*(ibv_pd*, MrInitAttr*)>("ibv_reg_mr_ex");
  const Opened device;
  ibv_pd* pd = ibv_alloc_pd(device.get());
  std::array<char, 64> memory{};
  MrInitAttr attr{};
  attr.length = memory.size();
  attr.access = kLocalWrite;
  attr.addr = memory.data();
  attr.comp_mask = kAddr;
  ibv_mr* mr = register_memory(pd, &attr);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(mr->addr, memory.data());
  EXPECT_EQ(mr->length, memory.size());
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  attr.comp_mask = kAddr | kIova;
  attr.iova = 0x1000;
  mr = register_memory(pd, &attr);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  attr.comp_mask = kFd;
  EXPECT_EQ(register_memory(pd, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr.comp_mask = kIova;
  EXPECT_EQ(register_memory(pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(VerbsLater, CompletionCountersAreNotThere) {
  auto* create = later<void*(ibv_context*, void*)>("ibv_create_comp_cntr");
  auto* caps = later<int(ibv_context*, void*, std::size_t)>("_ibv_query_comp_cntr_caps");
  const Opened device;
  errno = 0;
  EXPECT_EQ(create(device.get(), nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(caps(device.get(), nullptr, 0), EOPNOTSUPP);
}

}  // namespace
}  // namespace weft::abi
