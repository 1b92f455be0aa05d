// The kernel's TCP on one machine.
#include "hosts.h"

namespace weft::testing {

Network::Network() : link_{-1, -1} {}
Network::~Network() = default;

rddp_device* Network::open(int /*side*/, const rddp_options& options) {
  rddp_device* device = nullptr;
  EXPECT_EQ(rddp_open(&options, &device), RDDP_OK);
  return device;
}
void Network::close(rddp_device* device) { rddp_close_device(device); }
const char* Network::server() const { return "127.0.0.1"; }
bool Network::has_files() { return true; }

}  // namespace weft::testing
