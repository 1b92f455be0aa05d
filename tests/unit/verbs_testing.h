// Objects of the verbs layer and a peer that is nothing but a socket.
#pragma once

#include <gtest/gtest.h>
#include <weft/weft.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/fd.h"
#include "verbs/device.h"
#include "verbs/pd.h"
#include "wire/mpa_startup.h"

namespace weft::verbs::test {

using namespace std::chrono_literals;
using Bytes = std::vector<std::uint8_t>;
using EventType = ConnectionEvent::Type;

inline constexpr auto kPatience = 10s;
inline constexpr auto kGlance = 50ms;

// Defaults that depend on nothing outside.
[[nodiscard]] Config quiet_config();
[[nodiscard]] Config patient_config();  // and no silent client is closed by a clock

struct Host {
  explicit Host(const Config& config = quiet_config());
  std::shared_ptr<DeviceImpl> device;
  std::shared_ptr<ProtectionDomainImpl> pd;
};

struct QpSet {
  explicit QpSet(Host& host, QpType type = QpType::kRc,
                 std::function<bool(const Gid&)> has_gid = nullptr);
  // How often it was told of each LateReceive.
  [[nodiscard]] unsigned late(LateReceive what) const {
    return (*lates)[static_cast<std::size_t>(what)].load();
  }
  using Lates = std::array<std::atomic<unsigned>, 5>;
  std::shared_ptr<Lates> lates = std::make_shared<Lates>();
  std::shared_ptr<CompletionQueue> cq;
  std::shared_ptr<QueuePair> qp;
};

[[nodiscard]] std::shared_ptr<EventChannel> new_channel();
// The next event; fails the test, and gives one without a connection, if none comes.
ConnectionEvent next_event(EventChannel& channel);
ConnectionEvent expect_event(EventChannel& channel, EventType type);
[[nodiscard]] bool no_event(EventChannel& channel);

// A listener on 127.0.0.1 with its own channel.
struct Passive {
  explicit Passive(Host& host, int backlog = 0);
  std::shared_ptr<EventChannel> channel;
  std::shared_ptr<Listener> listener;
  [[nodiscard]] SocketAddress address() const { return listener->local_address(); }
};

// A blocking socket with a time limit on each read.
class RawSocket {
 public:
  [[nodiscard]] static RawSocket connect(const SocketAddress& peer);
  explicit RawSocket(os::Fd fd);
  void send(const Bytes& bytes) const;
  [[nodiscard]] Bytes receive(std::size_t count) const;  // fewer: the peer has closed
  [[nodiscard]] bool closed() const;   // FIN or reset comes, and nothing before it
  [[nodiscard]] bool is_open() const;  // nothing has come yet
  [[nodiscard]] int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

 private:
  os::Fd fd_;
};

// A socket that waits for one connection.
class RawListener {
 public:
  RawListener();
  [[nodiscard]] SocketAddress address() const;
  [[nodiscard]] RawSocket accept() const;

 private:
  os::Fd fd_;
};

[[nodiscard]] Bytes request(std::uint8_t revision = 1, const Bytes& private_data = {});
[[nodiscard]] Bytes reply(bool reject = false, const Bytes& private_data = {});

// Parameters of a plain revision 1 set-up, so that raw peers need no enhanced words.
[[nodiscard]] ConnectionParams plain_params();

// False: this process may not open so many descriptors.
[[nodiscard]] bool raise_descriptor_limit(std::uint64_t wanted);

template <class Predicate>
bool eventually(Predicate holds) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    const timespec pause{0, 500'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

}  // namespace weft::verbs::test
