#include "hosts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace weft::testing {

namespace {

constexpr unsigned kLimitSeconds = 60;  // a side that hangs is ended

rddp_options defaults() {
  rddp_options options;
  rddp_default_options(&options);
  return options;
}

[[noreturn]] void serve(Network& network, const rddp_options& options, rddp_kind kind, int tell,
                        const std::function<void(rddp_listener*)>& server) {
  alarm(kLimitSeconds);
  rddp_device* device = network.open(0, options);
  rddp_listener* listener = nullptr;
  const int status = rddp_listen(device, kind, network.server(), 0, &listener);
  const std::uint16_t port = status == RDDP_OK ? rddp_port(listener) : 0;
  if (write(tell, &port, sizeof port) != sizeof port) std::_Exit(2);
  server(listener);
  rddp_close_listener(listener);
  network.close(device);
  std::fflush(stdout);
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

Octets pattern(std::size_t size, std::uint8_t seed) {
  Octets octets(size);
  std::iota(octets.begin(), octets.end(), seed);
  for (std::size_t i = 0; i < size; ++i) octets[i] ^= static_cast<std::uint8_t>(i >> 8U);
  return octets;
}

ddp_buffer_t memory_of(Octets& octets, std::uint64_t offset) {
  ddp_buffer_t buffer{};
  buffer.kind = RDDP_MEMORY;
  buffer.memory = octets.data();
  buffer.length = octets.size();
  buffer.offset = offset;
  return buffer;
}

ddp_error end_of(rddp_socket* socket) {
  ddp_ind_t ind = rdma_recv(socket);
  while (ind.kind != DDP_IND_ERROR && ind.kind != DDP_IND_CLOSED) ind = rdma_recv(socket);
  return ind.error;
}

rddp_socket* accept_one(rddp_listener* listener, const std::string& data) {
  rddp_socket* socket = nullptr;
  EXPECT_EQ(rddp_accept(listener, -1, &socket), RDDP_OK);
  EXPECT_EQ(rddp_answer(socket, 1, data.data(), data.size()), RDDP_OK);
  return socket;
}

void run_hosts(rddp_kind kind, const std::function<void(rddp_listener*)>& server,
               const std::function<void(const Client&)>& client, const rddp_options* options) {
  const rddp_options chosen = options != nullptr ? *options : defaults();
  Network network;
  int tell[2];
  ASSERT_EQ(pipe(tell), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) serve(network, chosen, kind, tell[1], server);
  ::close(tell[1]);
  std::uint16_t port = 0;
  EXPECT_EQ(read(tell[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  ::close(tell[0]);
  alarm(kLimitSeconds);
  rddp_device* device = network.open(1, chosen);
  client({device, network.server(), port});
  network.close(device);
  alarm(0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the server failed, see above";
}

}  // namespace weft::testing
