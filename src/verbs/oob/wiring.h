// How one wired queue pair comes to its connection, and what becomes of it when the connection
// ends.
//
// A queue pair that was told its peer (RTR) seeks it: by roce/rules.h one end connects, the other
// waits to be connected to, and hellos settle whether both mean each other. Then the socket goes to
// the queue pair's lane. When the peer goes, the queue pair stays as it is, as on an adapter. If
// nothing was outstanding, it looks for the peer again once there is work. What was outstanding may
// have been carried out, so nobody may get it a second time: it waits until the retries are used
// up, and ends as on an adapter whose peer does not answer.
//
// How far that has come is a WiringPhase.
//
// A connection with an end whose PSNs do not agree is not made, so nothing gets through, as on an
// adapter. PSNs are known at RTS; one that was made before is dropped then.
//
// Threads: calls from any thread; the network side runs on the engine's thread. mutex_ is never
// held while the queue pair is called; it may be taken with a lane held. Registrations are dropped
// with Engine::forget(), and a callback checks under mutex_ whether it is still wanted.
#pragma once

#include <weft/wiring.h>

#include <memory>

#include "io/engine.h"
#include "io/transport.h"
#include "os/fd.h"
#include "os/lock.h"
#include "proto/stream_params.h"
#include "roce/greeting.h"
#include "roce/rules.h"
#include "trace/pcap.h"
#include "verbs/device.h"
#include "verbs/oob/calling.h"
#include "verbs/oob/peer_directory.h"
#include "verbs/oob/retry_clock.h"
#include "verbs/oob/wiring_phases.h"

namespace weft::verbs {

// How a connection ended, for the queue pair.
enum class LinkEnd : std::uint8_t {
  kError,     // it is in the error state
  kIdle,      // it stays as it is, and may have another
  kStranded,  // it stays as it is, with work that no other connection can carry
};

// The queue pair as its wiring knows it. Called without mutex_, and without the lane.
class WiredHost {
 public:
  virtual ~WiredHost() = default;
  // Takes over a transport whose peer has been greeted.
  //   kBadState   not in RTR or RTS of this generation (a count of wire() calls), linked already,
  //               or the peer expects another PSN
  [[nodiscard]] virtual Status link(std::unique_ptr<io::Transport> transport,
                                    std::unique_ptr<trace::Trace> trace,
                                    const proto::StreamParams& params, std::uint32_t generation,
                                    std::uint32_t peer_psn) = 0;
  // Looks for work without a connection, which the wiring has not been told of.
  virtual void look_for_waiting_work() = 0;
  // No peer was found in time for what is queued. True: the QP is in the error state now. False: it
  // no longer waits, or what is queued is lost, and that was all.
  [[nodiscard]] virtual bool retries_exhausted(std::uint32_t generation) = 0;
};

class Wiring final : public HelloAnswerer,
                     public io::Handler,
                     public std::enable_shared_from_this<Wiring> {
 public:
  Wiring(std::shared_ptr<DeviceImpl> device, std::uint32_t number, roce::QpType type);
  ~Wiring() override;

  // Once, before the queue pair is seen by others.
  void belongs_to(std::weak_ptr<WiredHost> qp) { qp_ = std::move(qp); }

  // --- for the queue pair, without its lane ---

  // RTR: begins to seek.   kInvalidArgument: see QueuePair::wire()
  [[nodiscard]] Status begin(const WiringToReceive& attributes, std::uint32_t generation);
  // RTS.
  void begin_sending(const WiringToSend& attributes);
  // The queue pair has left RTR and RTS: no connection is made any more.
  void stop();
  // The connection of this generation is gone.
  void link_lost(std::uint32_t generation, LinkEnd how);

  // --- with its lane held, or without ---

  // Whether a peer that expects `peer_psn` first will hear what is sent. With its lane held.
  [[nodiscard]] bool agrees(std::uint32_t peer_psn);
  enum class Wait : std::uint8_t {
    kGoesOn,
    kLost,  // the queue pair is an unreliable one whose peer could not be found: so is its work
    kOver,  // nobody would find out that the retries are used up: they are
  };
  // Work waits, and there is no connection: seeks the peer, and the retries count from now.
  [[nodiscard]] Wait work_waits();

  // --- HelloAnswerer ---
  [[nodiscard]] roce::Verdict consider(const roce::Hello& hello, const roce::Gid& source,
                                       roce::Hello& mine) override;
  void adopt(os::Fd socket, const roce::Hello& peer) override;
  void not_adopted() override;

  // --- engine ---
  void on_io(std::uint32_t events) override;
  void on_timer(io::TimerId id) override;

 private:
  using Phase = WiringPhase;
  void moves_on(WiringStep what) noexcept WEFT_REQUIRES(mutex_);
  [[nodiscard]] roce::Hello hello() const WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool psn_agrees(std::uint32_t expected_by_peer) WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool seek(Duration first_pause) WEFT_REQUIRES(mutex_);
  template <class Work>
  void step(Work work) WEFT_REQUIRES(mutex_);
  void attempt() WEFT_REQUIRES(mutex_);
  void call() WEFT_REQUIRES(mutex_);
  void meet_itself() WEFT_REQUIRES(mutex_);
  void pump() WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool move_octets() WEFT_REQUIRES(mutex_);
  void attempt_failed(std::string_view why) WEFT_REQUIRES(mutex_);
  void try_later() WEFT_REQUIRES(mutex_);
  void declined() WEFT_REQUIRES(mutex_);
  // False: no timer is to be had.
  [[nodiscard]] bool set_timer(Duration pause) WEFT_REQUIRES(mutex_);
  void drop_attempt() WEFT_REQUIRES(mutex_);
  void unwire() WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool try_again(Duration pause) WEFT_REQUIRES(mutex_);
  [[nodiscard]] std::unique_ptr<trace::Trace> start_trace(const os::Fd& socket,
                                                          const roce::Hello& peer, bool connector,
                                                          bool crc) const WEFT_REQUIRES(mutex_);
  void hand_over(os::Fd socket, const roce::Hello& peer, bool connector) WEFT_REQUIRES(mutex_);
  void rest() WEFT_REQUIRES(mutex_);
  [[nodiscard]] Duration budget() const WEFT_REQUIRES(mutex_);
  [[nodiscard]] bool is_itself() const noexcept WEFT_REQUIRES(mutex_) { return mine_ == peer_; }

  const std::shared_ptr<DeviceImpl> device_;
  std::weak_ptr<WiredHost> qp_;

  mutable os::Mutex mutex_;
  Phase phase_ WEFT_GUARDED_BY(mutex_) = Phase::kUnwired;
  std::uint32_t generation_ WEFT_GUARDED_BY(mutex_) = 0;
  roce::End mine_ WEFT_GUARDED_BY(mutex_);
  roce::End peer_ WEFT_GUARDED_BY(mutex_);
  SocketAddress own_address_ WEFT_GUARDED_BY(mutex_);  // without a port
  SocketAddress peer_address_ WEFT_GUARDED_BY(mutex_);
  const roce::QpType type_;
  WiringToReceive receiver_ WEFT_GUARDED_BY(mutex_);
  WiringToSend sender_ WEFT_GUARDED_BY(mutex_);
  bool sending_ WEFT_GUARDED_BY(mutex_) = false;        // RTS
  bool psn_logged_ WEFT_GUARDED_BY(mutex_) = false;     // that they do not agree
  bool secret_logged_ WEFT_GUARDED_BY(mutex_) = false;  // likewise
  bool dormant_ WEFT_GUARDED_BY(mutex_) = false;        // seeking, and nothing waits for it
  // The connection went while it was handed over.
  bool lost_early_ WEFT_GUARDED_BY(mutex_) = false;
  // Unreliable: nobody came in time, though the peer is still sought.
  bool given_up_ WEFT_GUARDED_BY(mutex_) = false;
  // Seeking in name only: the retries run, and nobody is let in.
  bool stranded_ WEFT_GUARDED_BY(mutex_) = false;

  // To connect.
  struct Attempt {
    os::Fd socket;
    roce::Greeting greeting = roce::Greeting::listener();
    bool said_hello = false;
    bool watching = false;
    std::uint32_t count = 0;
    std::uint32_t unanswered = 0;  // calls beside the first
    io::TimerId timer = 0;         // the next attempt or call, or the end of this one
  };
  Attempt attempt_ WEFT_GUARDED_BY(mutex_);
  Calling calling_ WEFT_GUARDED_BY(mutex_);  // TCP's handshake is under way

  RetryClock retries_ WEFT_GUARDED_BY(mutex_);  // runs while work waits
};

}  // namespace weft::verbs
