// Where wired queue pairs are found: the ports of this process, the numbers behind them, and who
// knocks there.
//
// One per device with Config::personality kRoce. A number contains the port (roce/qp_number.h);
// each port has a TCP listener, and 510 numbers. Ports are opened when numbers are needed; one
// without a queue pair is closed, unless it is the only one. A number that was given back is used
// again as late as possible. The listener is on all
// addresses, since any of them may be a queue pair's GID, and a port has to be free on all; with
// Config::gid it is on that one.
//
// Threads: any; the sockets are served on the engine's thread. mutex_ is not held while a queue
// pair's wiring is asked.
#pragma once

#include <weft/wiring.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "io/engine.h"
#include "os/fd.h"
#include "os/lock.h"
#include "roce/hello.h"
#include "verbs/device.h"
#include "verbs/half_open.h"
#include "verbs/oob/hello_secret.h"

namespace weft::verbs {

// Answers hellos for one number. On the engine's thread.
class HelloAnswerer {
 public:
  virtual ~HelloAnswerer() = default;
  // The answer to `hello` from `source`. kAccept: `mine` is what to say, and adopt() or
  // not_adopted() has to follow.
  [[nodiscard]] virtual roce::Verdict consider(const roce::Hello& hello, const roce::Gid& source,
                                               roce::Hello& mine) = 0;
  virtual void adopt(os::Fd socket, const roce::Hello& peer) = 0;
  virtual void not_adopted() = 0;
};

class PeerDirectory {
 public:
  //   kNotFound   Config::gid names no address of this machine; or a secret is set, and what it
  //               takes to prove it is not there (HelloSecret)
  [[nodiscard]] static Result<std::unique_ptr<PeerDirectory>> create(DeviceImpl& device);
  // REQUIRES: no queue pair is left.
  ~PeerDirectory();
  PeerDirectory(const PeerDirectory&) = delete;
  PeerDirectory& operator=(const PeerDirectory&) = delete;

  // The GID of queue pairs that are not told theirs.
  [[nodiscard]] const roce::Gid& gid() const noexcept { return own_.gid; }
  // `own` itself, or that one where it is zeros.
  [[nodiscard]] const OwnGid& choose(const OwnGid& own) const noexcept {
    return own.gid == Gid{} ? own_ : own;
  }
  // The secret that proves hellos; null: there is no secret.
  [[nodiscard]] const roce::Sealer* sealer() const noexcept { return secret_.get(); }

  // A number for a queue pair; opens a port if need be.
  //   kAddressInUse    all ports of Config::roce_port_min to _max are taken
  //   kLimitExceeded   all of them are this process's, and full
  //   kSystem          no descriptors
  [[nodiscard]] Result<std::uint32_t> take_number();
  // The same for a queue pair of datagrams, which gets the UDP socket of its number's port for
  // itself. Non-blocking, bound as the listener is.
  struct DatagramNumber {
    std::uint32_t number = 0;
    os::Fd socket;
  };
  [[nodiscard]] Result<DatagramNumber> take_datagram_number();
  void free_number(std::uint32_t number);
  // From now on hellos for this number go to `answerer`. Until free_number().
  void publish(std::uint32_t number, std::weak_ptr<HelloAnswerer> answerer);

 private:
  struct Port;
  struct Arrival;

  PeerDirectory(DeviceImpl& device, const SocketAddress& first, const SocketAddress& place,
                std::unique_ptr<HelloSecret> secret);
  [[nodiscard]] Status open_port() WEFT_REQUIRES(mutex_);
  [[nodiscard]] Result<os::Fd> open_listener(std::uint16_t port);
  [[nodiscard]] Result<os::Fd> open_datagrams(const Port& port) const;
  void close_port(std::vector<std::shared_ptr<Port>>::iterator port) WEFT_REQUIRES(mutex_);
  void on_timer_of(Port& port);
  [[nodiscard]] bool accept_one(Port& port);
  enum class Accepted : std::uint8_t { kOne, kNone, kGone, kNoDescriptor, kNoMemory };
  [[nodiscard]] Accepted accept(Port& port, os::Fd& socket, SocketAddress& source);
  // No descriptors: true if a silent one has given its own up, so that the newcomer gets it.
  [[nodiscard]] bool make_room();
  void give_way(Arrival& arrival);
  [[nodiscard]] bool is_wanted(const Arrival& arrival);
  void settle(Arrival& arrival);
  [[nodiscard]] bool say(Arrival& arrival);
  void refuse(Arrival& arrival, std::string_view why);
  void answer(Arrival& arrival);
  void forget(const Arrival& arrival);
  [[nodiscard]] std::shared_ptr<HelloAnswerer> find(std::uint32_t number);
  // To be held in a callback: who is answered may be the last that holds the device, and let go of
  // it then, which destroys this. Null: it is being destroyed.
  [[nodiscard]] std::shared_ptr<Device> device() const;

  DeviceImpl& device_;
  const OwnGid own_;
  const SocketAddress place_;  // of listeners, without the port
  const std::unique_ptr<HelloSecret> secret_;

  os::Mutex mutex_;
  std::vector<std::shared_ptr<Port>> ports_ WEFT_GUARDED_BY(mutex_);
  // Until no callback of theirs runs any more. With room for all.
  std::vector<std::shared_ptr<Port>> closed_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<std::uint32_t, std::weak_ptr<HelloAnswerer>> answerers_
      WEFT_GUARDED_BY(mutex_);
  HalfOpen<Arrival> arrivals_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::verbs
