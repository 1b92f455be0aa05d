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

// One side: a session, the endpoint that its stream belongs to, and what the application is told.
class SessionSide {
 public:
  SessionSide(const proto::SessionLimits& limits, std::uint64_t secret);

  Endpoint endpoint;
  proto::StartupOffer offer;    // of start() and accept()
  bool accepts_at_once = true;  // as soon as it is asked
  bool rejects_at_once = false;
  // What the stream says comes before the session knows that it runs.
  bool runs_late = false;
  std::string private_data;
  proto::Session session;
  std::optional<proto::Stream> stream;

  [[nodiscard]] Status start();
  void await_request() { session.begin(endpoint.clock); }
  [[nodiscard]] Status accept();

  // --- as a transport's owner ---

  void follow();  // takes the session's notices
  [[nodiscard]] std::vector<std::uint8_t> gather(std::size_t most);
  [[nodiscard]] bool take_fin() { return stream && stream->take_fin(); }
  [[nodiscard]] std::size_t wanted(std::size_t there);
  void arrived(std::span<const std::uint8_t> octets);
  void peer_closed();
  void transport_lost();
  void close();
  void abort();
  [[nodiscard]] Instant deadline() const;
  void expired(Instant now);
  [[nodiscard]] bool finished() const;
  [[nodiscard]] bool wants_reset() const;

  // --- what happened, in order: "request", "starting", "established", "rejected", "failed",
  // "ended"
  std::vector<std::string> events;
  std::string peer_data;                         // of the event that carried it last
  std::optional<proto::SessionFailure> failure;  // of "failed" and "ended"
  bool ended = false;
  std::size_t frame_octets = 0;  // of start-up, sent
  proto::Negotiated agreed;
  [[nodiscard]] std::string story() const;

 private:
  [[nodiscard]] proto::StartupOffer offer_now();
  void take(proto::SessionNotice notice);
  void begin_stream();
  void settle();

  bool first_fpdu_told_ = false;
  bool down_told_ = false;
};

class SessionPair {
 public:
  explicit SessionPair(std::uint64_t seed, const proto::SessionLimits& limits = {});

  SessionSide client;
  SessionSide server;
  std::size_t chunk_max = 4096;

  [[nodiscard]] SessionSide& side(int i) { return i == 0 ? client : server; }
  // Moves octets until nothing moves; the clock stands still.
  void run();
  // On to the next deadline of either side, then run(). False: no deadline is armed.
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
    bool closed = false, was_reset = false;
  };
  [[nodiscard]] bool transmit(int i);
  [[nodiscard]] bool receive(int i);
  void close_finished(int i);

  Rng rng_;
  Pipe pipes_[2];
};

}  // namespace weft::testing
