// Threads that are cancelled in calls on synchronous ids of rdma_cm.
#include "cancel_steps.h"

namespace weft::abi {
namespace {

class Addrinfo {
 public:
  Addrinfo(int flags, const char* port) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = flags;
    EXPECT_EQ(rdma_getaddrinfo("127.0.0.1", port, &hints, &info_), 0);
  }
  ~Addrinfo() { rdma_freeaddrinfo(info_); }
  Addrinfo(const Addrinfo&) = delete;
  Addrinfo& operator=(const Addrinfo&) = delete;
  [[nodiscard]] rdma_addrinfo* get() const { return info_; }

 private:
  rdma_addrinfo* info_ = nullptr;
};

// A listener whose ids wait for their events.
struct Serving {
  rdma_cm_id* id = nullptr;
  std::string port;
  Serving() {
    const Addrinfo any(RAI_PASSIVE, nullptr);
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_ep(&id, any.get(), nullptr, &attr), 0);
    EXPECT_EQ(rdma_listen(id, 4), 0);
    port = std::to_string(ntohs(rdma_get_src_port(id)));
  }
  ~Serving() { rdma_destroy_ep(id); }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
};

TEST(CancelSteps, WhereEndpointsAreMade) {
  const Serving serving;
  const Addrinfo there(0, serving.port.c_str());
  const Addrinfo any(RAI_PASSIVE, nullptr);
  rdma_cm_id* id = nullptr;
  Around around;
  around.before = [&] { id = nullptr; };
  around.behind = [&](bool back) {
    if (back) rdma_destroy_ep(id);
  };
  const auto make = [&](const Addrinfo& what) {
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_ep(&id, what.get(), nullptr, &attr), 0);
  };
  cancelled_at_each_step(
      "a passive endpoint", [&] { make(any); }, around);
  // It asks for two events, which are there.
  cancelled_at_each_step(
      "an active endpoint", [&] { make(there); }, around);
}

TEST(CancelSteps, InTheSleepForARequest) {
  const Serving serving;
  const Addrinfo there(0, serving.port.c_str());
  std::unique_ptr<Calling> calling;
  rdma_cm_id* child = nullptr;
  int result = -1;
  Around around;
  const auto port = static_cast<std::uint16_t>(std::stoi(serving.port));
  around.before = [&] {
    result = -1;
    calling = std::make_unique<Calling>(port);
  };
  around.meanwhile = [&] { calling->connect(); };
  around.behind = [&](bool back) {
    if (!back) result = rdma_get_request(serving.id, &child);
    ASSERT_EQ(result, 0);
    rdma_destroy_ep(child);
    EXPECT_EQ(NextEvent(calling->channel.get()).type(), RDMA_CM_EVENT_REJECTED);
    calling.reset();
  };
  cancelled_at_each_step(
      "get_request", [&] { result = rdma_get_request(serving.id, &child); }, around);
}

// Ids whose call ended in its sleep are destroyed like any others.
TEST(CancelSteps, InTheSleepOfASynchronousConnect) {
  const Serving serving;
  const Addrinfo there(0, serving.port.c_str());
  rdma_cm_id* active = nullptr;
  Around around;
  around.before = [&] {
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    ASSERT_EQ(rdma_create_ep(&active, there.get(), nullptr, &attr), 0);
  };
  around.meanwhile = [&] {
    rdma_cm_id* request = nullptr;
    ASSERT_EQ(rdma_get_request(serving.id, &request), 0);
    EXPECT_EQ(rdma_reject(request, nullptr, 0), 0);
    rdma_destroy_ep(request);
  };
  around.behind = [&](bool) { rdma_destroy_ep(active); };
  cancelled_at_each_step(
      "connect",
      [&] {
        EXPECT_EQ(rdma_connect(active, nullptr), -1);
        EXPECT_EQ(errno, ECONNREFUSED);
      },
      around);
}

TEST(CancelSteps, InTheSleepOfASynchronousAccept) {
  const Serving serving;
  const auto port = static_cast<std::uint16_t>(std::stoi(serving.port));
  std::unique_ptr<Calling> calling;
  rdma_cm_id* request = nullptr;
  Around around;
  around.before = [&] {
    calling = std::make_unique<Calling>(port);
    calling->connect();
    ASSERT_EQ(rdma_get_request(serving.id, &request), 0);
  };
  around.always_sleeps = false;  // the other end may have been quick
  around.meanwhile = [&] {
    EXPECT_EQ(NextEvent(calling->channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  };
  around.behind = [&](bool) {
    rdma_destroy_ep(request);
    calling.reset();
  };
  cancelled_at_each_step(
      "accept", [&] { EXPECT_EQ(rdma_accept(request, nullptr), 0) << strerror(errno); }, around);
}

}  // namespace
}  // namespace weft::abi
