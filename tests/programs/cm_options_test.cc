// Options of ids, and what they do to the sockets below.
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>

#include "abi_support.h"

namespace weft::abi {
namespace {

constexpr int kDscp = 0xfc;  // the other two bits are TCP's own, for ECN

struct LoopbackAddress {
  explicit LoopbackAddress(int family) {
    if (family == AF_INET6) {
      v6.sin6_family = AF_INET6;
      v6.sin6_addr = in6addr_loopback;
    } else {
      v4 = abi::v4("127.0.0.1", 0);
    }
  }
  void set_port(std::uint16_t port) { v4.sin_port = htons(port); }  // at the same place in both
  [[nodiscard]] sockaddr* get() { return &any; }

  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6{};
  };
};

std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

enum class Side { kActive, kPassive };

// The traffic class of this process's connected socket at that side of the server's port.
std::optional<int> traffic_class(Side side, std::uint16_t server_port, int family) {
  constexpr int kDescriptors = 256;
  for (int fd = 0; fd < kDescriptors; ++fd) {
    sockaddr_storage peer{}, local{};
    socklen_t peer_size = sizeof peer, local_size = sizeof local;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) != 0 ||
        peer.ss_family != family || port_of(side == Side::kActive ? peer : local) != server_port) {
      continue;
    }
    const bool v6 = family == AF_INET6;
    int value = 0;
    socklen_t size = sizeof value;
    EXPECT_EQ(
        getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, &value, &size),
        0);
    return value & kDscp;
  }
  return std::nullopt;
}

void set_tos(rdma_cm_id* id, std::uint8_t value) {
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, sizeof value), 0);
}

// One connection, each side's option set before it connects or listens; none where it is empty.
class TypeOfService {
 public:
  TypeOfService(int family, std::optional<std::uint8_t> active,
                std::optional<std::uint8_t> listener, std::optional<std::uint8_t> request = {})
      : family_(family), address_(family) {
    listen(listener);
    begin_connect(active);
    accept(request);
  }
  ~TypeOfService() {
    for (rdma_cm_id* id : {client_, child_, server_}) {
      if (id == nullptr) continue;
      if (id->qp != nullptr) rdma_destroy_qp(id);
      rdma_destroy_id(id);
    }
  }
  TypeOfService(const TypeOfService&) = delete;
  TypeOfService& operator=(const TypeOfService&) = delete;

  [[nodiscard]] std::optional<int> of(Side side) const {
    return traffic_class(side, port_, family_);
  }

 private:
  void listen(std::optional<std::uint8_t> tos) {
    EXPECT_EQ(rdma_create_id(server_channel_.get(), &server_, nullptr, RDMA_PS_TCP), 0);
    if (tos) set_tos(server_, *tos);
    EXPECT_EQ(rdma_bind_addr(server_, address_.get()), 0);
    EXPECT_EQ(rdma_listen(server_, 1), 0);
    port_ = ntohs(rdma_get_src_port(server_));
    address_.set_port(port_);
  }
  void begin_connect(std::optional<std::uint8_t> tos) {
    EXPECT_EQ(rdma_create_id(client_channel_.get(), &client_, nullptr, RDMA_PS_TCP), 0);
    EXPECT_EQ(rdma_resolve_addr(client_, nullptr, address_.get(), kWaitMs), 0);
    EXPECT_EQ(NextEvent(client_channel_.get()).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(client_, kWaitMs), 0);
    EXPECT_EQ(NextEvent(client_channel_.get()).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (tos) set_tos(client_, *tos);
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(client_, nullptr, &attr), 0);
    rdma_conn_param params{};
    EXPECT_EQ(rdma_connect(client_, &params), 0);
  }
  void accept(std::optional<std::uint8_t> tos) {
    NextEvent request(server_channel_.get());
    ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    child_ = request.id();
    if (tos) set_tos(child_, *tos);
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(child_, nullptr, &attr), 0);
    rdma_conn_param params{};
    EXPECT_EQ(rdma_accept(child_, &params), 0);
    EXPECT_EQ(NextEvent(client_channel_.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  }

  int family_;
  LoopbackAddress address_;
  std::uint16_t port_ = 0;
  ChannelPtr server_channel_ = make_channel(), client_channel_ = make_channel();
  rdma_cm_id *server_ = nullptr, *client_ = nullptr, *child_ = nullptr;
};

TEST(CmOptions, TypeOfServiceIsThatOfTheSocketsOfBothSides) {
  for (const int family : {AF_INET, AF_INET6}) {
    SCOPED_TRACE(family);
    const TypeOfService connection(family, 0x68, 0x28);
    EXPECT_EQ(connection.of(Side::kActive), 0x68);
    EXPECT_EQ(connection.of(Side::kPassive), 0x28);
  }
}

TEST(CmOptions, TypeOfServiceOfARequestBeatsThatOfItsListener) {
  const TypeOfService connection(AF_INET, std::nullopt, 0x28, 0x48);
  EXPECT_EQ(connection.of(Side::kPassive), 0x48);
}

TEST(CmOptions, TypeOfServiceIsTheSystemsWhereNobodySetsIt) {
  for (const int family : {AF_INET, AF_INET6}) {
    SCOPED_TRACE(family);
    const TypeOfService connection(family, std::nullopt, std::nullopt);
    EXPECT_EQ(connection.of(Side::kActive), 0);
    EXPECT_EQ(connection.of(Side::kPassive), 0);
  }
}

TEST(CmOptions, AreTakenOrRefusedByLevelNameAndSize) {
  const ChannelPtr channel = make_channel();
  rdma_cm_id* id = make_id(channel.get());
  std::uint8_t octet = 8;
  int number = 1;
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &octet, sizeof octet), 0);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &octet, sizeof octet),
            0);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &number, sizeof number),
            0);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof number), 0);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &number, sizeof number), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &number, sizeof number), -1);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, 99, &number, sizeof number), -1);
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

}  // namespace
}  // namespace weft::abi
