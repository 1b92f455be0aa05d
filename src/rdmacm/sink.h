// Where the engine delivers connection events: routed to the channel that the id is on now.
#pragma once

#include "rdmacm/cm.h"

namespace weft::rdmacm {

class Sink final : public EventChannel {
 public:
  // Programs wait on the descriptors of rdma_cm channels instead.
  [[nodiscard]] int fd() const override { return -1; }
  [[nodiscard]] Result<ConnectionEvent> next(
      std::optional<std::chrono::nanoseconds> timeout) override;
  void post(ConnectionEvent&& event) override;
};

}  // namespace weft::rdmacm
