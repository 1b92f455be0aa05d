// Devices over the kernel's TCP.
#include "rddp/api.h"
#include "rddp/tcp_network.h"

extern "C" int rddp_open(const rddp_options* options, rddp_device** device) {
  const auto made = weft::rddp::make_device(weft::rddp::make_tcp_network(), options);
  *device = made.value_or(nullptr);
  return made ? RDDP_OK : weft::rddp::status_of(made.error());
}
