// Finds peers whose host has gone without a word: one timer for all connections of a device.
#pragma once

#include <atomic>
#include <memory>

#include "io/engine.h"

namespace weft::verbs {

class DeviceImpl;

// Two limits of the configuration, which the kernel can't keep both (its TCP_USER_TIMEOUT overrides
// its count of keepalive probes):
//
//   keepalive      an idle connection whose peer's host answers no probe
//   user_timeout   octets were sent, and no more of them are acknowledged
//
// The timer runs while there are connections, eight times within the shorter limit.
//
// Owned by the device. Threads: start() any, the rest the device's background thread.
class PeerWatch final : public io::Handler {
 public:
  // REQUIRES: the device is in a shared_ptr.
  explicit PeerWatch(DeviceImpl& device);
  void start();  // a connection is up. Cheap when the timer runs

  void on_timer(io::TimerId id) override;

 private:
  [[nodiscard]] Duration period() const;

  DeviceImpl& device_;
  const std::weak_ptr<io::Handler> self_;  // keeps the device
  std::atomic<bool> running_{false};
};

}  // namespace weft::verbs
