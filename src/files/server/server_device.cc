#include "files/server/server_device.h"

#include <fcntl.h>

namespace weft::files {
namespace {

constexpr std::uint64_t kListAreaBytes = std::uint64_t{4} << 20U;

}  // namespace

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
  for (const auto& [area, bytes] :
       {std::pair{&port->staging_, staging_bytes}, std::pair{&port->lists_, kListAreaBytes}}) {
    auto memory = Registered::create(port->pd_, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!memory) return tl::unexpected(memory.error());
    area->memory = std::move(*memory);
    area->octets = {area->memory.data(), area->memory.size()};
    area->heap = std::make_unique<BlockHeap>(bytes);
  }
  return port;
}

Port::~Port() {
  staging_.memory = Registered();
  lists_.memory = Registered();
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
}

}  // namespace weft::files
