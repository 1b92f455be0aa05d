#include "store/port.h"

#include <fcntl.h>

namespace weft::store {

Outcome<std::unique_ptr<Port>> Port::create(ibv_context* verbs, std::uint64_t staging_bytes) {
  std::unique_ptr<Port> port(new Port(verbs));
  port->pd_ = ibv_alloc_pd(verbs);
  port->channel_ = ibv_create_comp_channel(verbs);
  if (port->pd_ == nullptr || port->channel_ == nullptr) {
    return failed(errno,
                  "cannot use RDMA device " + std::string(ibv_get_device_name(verbs->device)));
  }
  const int fd = port->channel_->fd;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  auto staging = Registered::create(port->pd_, staging_bytes, IBV_ACCESS_LOCAL_WRITE);
  if (!staging) return tl::unexpected(staging.error());
  port->staging_ = std::move(*staging);
  port->heap_ = std::make_unique<BlockHeap>(staging_bytes);
  return port;
}

Port::~Port() {
  staging_ = Registered();
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
}

}  // namespace weft::store
