// Two streams over an in-memory byte pipe with a virtual clock and a seeded adversary.
//
// The adversary cuts the bytes into chunks, stalls either direction, and may break the connection
// once: flip a bit, reset it, or end one direction at any octet. The same seed gives the same run.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "endpoint.h"
#include "proto/startup.h"
#include "rng.h"

namespace weft::testing {

enum class FaultKind : std::uint8_t { kNone, kFlip, kReset, kTimeout, kFin };

// Happens to the octet `at` of the direction written by `writer` (0: client), start-up not counted.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  int writer = 0;
  std::uint64_t at = 0;
  std::uint8_t bits = 1;  // of a flip
};

struct SimConfig {
  std::uint64_t seed = 1;
  proto::StartupOffer offer[2];  // client, server
  std::uint32_t max_ulpdu[2] = {1442, 1442};
  std::uint32_t max_ulpdu_known[2] = {0, 0};
  bool hold_completions = false;
  bool acks = false;          // as between wired queue pairs
  bool unreliable = false;    // likewise
  bool late_reads = false;    // the transport reads memory some time after it took it
  bool changes_path = false;  // each side moves its stream to another path and back, now and then
  bool steps = false;         // each side is told of the steps of requests and messages
  bool prepares = false;      // the transport has batches prepared while it is full
  bool in_place = false;      // small FPDUs are laid and read in memory of the transport
  bool check_markers = true;
  Duration patience[2]{};            // the server's only without peer-to-peer set-up
  std::size_t chunk_max = 4096;      // octets moved at once, at most
  std::size_t pipe_max = 64U << 10;  // octets under way in one direction
  bool stalls = false;
  bool short_of_batches = false;
  bool late_receives = false;  // posted some time after the Send has come
  bool refuses_sends = false;  // ... so late that it has to come again; with acks
  Fault fault;
  EndpointConfig endpoint;
};

// Framing, sizes and delays at random, by `choices`.
[[nodiscard]] SimConfig busy_config(std::uint64_t seed, std::uint64_t choices);

class SimPair {
 public:
  explicit SimPair(const SimConfig& config);

  // Start-up of both sides through the pipes. False: one of them refused.
  [[nodiscard]] bool establish();

  [[nodiscard]] Endpoint& side(int i) { return i == 0 ? client_ : server_; }
  [[nodiscard]] Endpoint& client() { return client_; }
  [[nodiscard]] Endpoint& server() { return server_; }
  [[nodiscard]] proto::Startup& startup(int i) { return startup_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Rng& rng() { return rng_; }
  [[nodiscard]] bool acks() const { return config_.acks; }
  [[nodiscard]] bool is_wired() const { return config_.acks || config_.unreliable; }
  [[nodiscard]] bool socket_closed(int i) const { return closed_[static_cast<std::size_t>(i)]; }
  // Changes of the path that side `i` has followed, in what it receives.
  [[nodiscard]] int path_changes(int i) { return into(i).changes; }
  [[nodiscard]] bool fault_happened() const { return fault_happened_; }
  // Octets that were laid and read in place.
  [[nodiscard]] std::uint64_t laid() const { return laid_; }
  [[nodiscard]] std::uint64_t taken_in_place() const { return taken_in_place_; }

  // Moves bytes until nothing moves any more and no timer is armed. `before_step` may post work.
  // False: `steps_max` was not enough.
  bool run_until_idle(const std::function<void()>& before_step = {},
                      std::uint64_t steps_max = 5'000'000);

 private:
  struct Pipe {
    std::deque<std::uint8_t> bytes;
    std::deque<std::uint8_t> ring;  // the other path
    bool writes_ring = false;
    bool asked = false;  // for a change of the path
    bool reads_ring = false;
    int changes = 0;
    std::uint64_t written = 0;
    std::uint64_t startup = 0;  // octets of `written` that were start-up
    std::deque<Slice> taken;    // with late_reads: not read yet
    bool fin_taken = false;     // ... and behind them the FIN
    bool fin = false;
    bool fin_seen = false;
    Instant stalled_until{0};

    [[nodiscard]] std::size_t under_way() const { return bytes.size() + ring.size(); }
  };

  // Each returns whether anything happened.
  [[nodiscard]] bool step_startup(int i);
  [[nodiscard]] bool transmit(int i);
  [[nodiscard]] std::size_t take(int i, const proto::TxBatch& batch);
  [[nodiscard]] bool read_late(int i);
  [[nodiscard]] bool lay(int i);
  [[nodiscard]] bool take_small(int i);
  [[nodiscard]] bool lost_by_fault();
  [[nodiscard]] std::size_t room(int i) const;
  void drop_taken(int i);
  [[nodiscard]] bool receive(int i);
  [[nodiscard]] bool wake();
  void write(int i, std::uint8_t octet);
  void change_path(int i);
  void lose(int i, bool timed_out);
  void check_finished(int i);
  [[nodiscard]] Pipe& out_of(int i) { return pipes_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Pipe& into(int i) { return pipes_[static_cast<std::size_t>(1 - i)]; }
  void start_stream(int i);

  SimConfig config_;
  Rng rng_;
  Endpoint client_;
  Endpoint server_;
  std::array<proto::Startup, 2> startup_;
  std::array<Pipe, 2> pipes_;
  std::array<bool, 2> closed_{};
  std::uint64_t laid_ = 0;
  std::uint64_t taken_in_place_ = 0;
  std::array<bool, 2> lost_{};
  bool fault_happened_ = false;
  int refusals_left_ = 12;  // or the run would not end
  std::vector<std::uint8_t> scratch_;
};

// What a Stream needs of what start-up has settled.
[[nodiscard]] proto::StreamParams params_of(const proto::Negotiated& n);

}  // namespace weft::testing
