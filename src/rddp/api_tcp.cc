// Devices over the kernel's TCP.
#include "rddp/api.h"
#include "rddp/tcp_network.h"

extern "C" int rddp_open(const rddp_options* options, rddp_device** device) {
  *device = weft::rddp::make_device(weft::rddp::make_tcp_network(), options);
  return *device != nullptr ? RDDP_OK : RDDP_INVALID;
}
