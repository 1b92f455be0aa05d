// Two sessions over an in-memory byte pipe with a virtual clock, start-up included.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "endpoint.h"
#include "proto/session.h"
#include "rng.h"

namespace weft::testing {

// One side: a session, the host it reports to, and the endpoint its stream belongs to.
class SessionSide final : public proto::SessionHost {
 public:
  SessionSide(const proto::SessionLimits& limits, std::uint64_t secret);

  Endpoint endpoint;
  proto::StartupOffer offer;    // of start() and accept()
  bool accepts_at_once = true;  // inside request_arrived()
  bool rejects_at_once = false;
  std::string private_data;
  proto::Session session;

  [[nodiscard]] Status start() { return session.start(offer_now(), owner()); }
  [[nodiscard]] Status accept() { return session.accept(offer_now(), owner()); }
  [[nodiscard]] proto::StreamOwner owner() {
    return {endpoint, endpoint.table(), endpoint.sq(), Endpoint::kId};
  }

  // --- what happened, in order: "request", "starting", "established", "rejected", "failed",
  // "ended"
  std::vector<std::string> events;
  std::string peer_data;  // of the event that carried it last
  std::optional<proto::SessionFailure> failure;
  std::optional<proto::StreamEnd> end;
  [[nodiscard]] std::string story() const;

  void request_arrived(const proto::StartupPeer& peer) override;
  void stream_starting(const proto::Negotiated& agreed, proto::StreamParams& params) override;
  void established(const proto::Negotiated& agreed, const proto::StartupPeer& peer) override;
  void rejected(const proto::StartupPeer& peer) override;
  void failed(const proto::SessionFailure& what) override;
  void ended(proto::StreamEnd how, TerminateCode code, bool by_peer) override;
  Instant now() override { return endpoint.clock; }

 private:
  [[nodiscard]] proto::StartupOffer offer_now();
};

class SessionPair {
 public:
  explicit SessionPair(std::uint64_t seed, const proto::SessionLimits& limits = {});

  SessionSide client;
  SessionSide server;
  std::size_t chunk_max = 4096;
  bool late_release = false;  // octets are released some time after they were taken
  bool pushes = false;        // the transport has the octets already: feed()

  [[nodiscard]] SessionSide& side(int i) { return i == 0 ? client : server; }
  // Moves octets until nothing moves; the clock stands still.
  void run();
  // On to the next deadline of either side, then run(). False: none is armed.
  bool wait();
  // Octets of its own making, in place of those of side i.
  void inject(int i, std::span<const std::uint8_t> octets);
  void cut(int i);  // FIN from side i
  void reset();     // both sides lose the transport
  [[nodiscard]] bool closed(int i) const { return pipes_[i].closed; }
  [[nodiscard]] bool was_reset(int i) const { return pipes_[i].was_reset; }

 private:
  struct Pipe {
    std::deque<std::uint8_t> octets;  // written by side i
    bool fin = false, fin_seen = false;
    std::size_t unreleased = 0;
    bool closed = false, was_reset = false;
  };
  [[nodiscard]] bool transmit(int i);
  [[nodiscard]] bool receive(int i);
  void close_finished(int i);

  Rng rng_;
  Pipe pipes_[2];
  std::vector<std::uint8_t> scratch_;
};

}  // namespace weft::testing
