// Two hosts that talk by <weft/rddp.h>: the server in a child process, the client here. The same
// tests run over the kernel's TCP (hosts_tcp.cc) and over lwIP (hosts_lwip.cc).
#pragma once

#include <gtest/gtest.h>
#include <weft/rddp.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft::testing {

using Octets = std::vector<std::uint8_t>;
// Octets of which no two neighboring runs are alike.
[[nodiscard]] Octets pattern(std::size_t size, std::uint8_t seed);
// As a buffer to register, its first octet at tagged offset `offset`.
[[nodiscard]] ddp_buffer_t memory_of(Octets& octets, std::uint64_t offset = 0);

// A buffer to post, with its memory.
struct Posted {
  explicit Posted(std::size_t size = 256)
      : octets(size), buffer{octets.data(), static_cast<std::uint32_t>(size), nullptr, 0} {}
  Octets octets;
  ddp_posted_t buffer;
};

// Opens the device of one host. `side` 0: the server, 1: the client.
class Network {
 public:
  Network();
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // In the process of that host.
  rddp_device* open(int side, const rddp_options& options);
  void close(rddp_device* device);
  // Where the server listens.
  [[nodiscard]] const char* server() const;
  [[nodiscard]] static bool has_files();

 private:
  int link_[2];
};

struct Client {
  rddp_device* device;
  const char* host;
  std::uint16_t port;

  // `first`: a buffer for what the server sends first.
  [[nodiscard]] rddp_socket* connect(rddp_kind kind, ddp_posted_t* first = nullptr,
                                     const std::string& data = {}) const {
    rddp_socket* socket = nullptr;
    EXPECT_EQ(rddp_create(device, kind, &socket), RDDP_OK);
    if (first != nullptr) {
      EXPECT_EQ((kind == RDDP_RDMA ? rdma_post_recv : ddp_post_recv)(socket, first), RDDP_OK);
    }
    EXPECT_EQ(rddp_connect(socket, host, port, data.data(), data.size()), RDDP_OK);
    return socket;
  }
};

// Runs both to their ends; what the server finds wrong fails the test here.
void run_hosts(rddp_kind kind, const std::function<void(rddp_listener*)>& server,
               const std::function<void(const Client&)>& client, const rddp_options* options = {});

// How the connection ended; what came before is passed over.
[[nodiscard]] ddp_error end_of(rddp_socket* socket);

// A connection, accepted.
[[nodiscard]] rddp_socket* accept_one(rddp_listener* listener, const std::string& data = {});

}  // namespace weft::testing
