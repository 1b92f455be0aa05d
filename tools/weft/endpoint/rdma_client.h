// The client's side of an RDMA test: it posts the work and keeps the clock.
#pragma once

#include <cstdint>

#include "weft/endpoint/rdma.h"

namespace weft::cli {

class RdmaClient final : public RdmaTest, public ClientEndpoint {
 public:
  RdmaClient(Device& device, const TestSpec& spec);
  using RdmaTest::open;

  [[nodiscard]] Json offer() const override { return memory_offer(); }
  [[nodiscard]] Outcome<void> connect(const SocketAddress& server, const Json& ready,
                                      Watch& watch) override;
  [[nodiscard]] Outcome<PhaseResult> run(Phase phase, const PhaseLimits& limits,
                                         Watch& watch) override;
  [[nodiscard]] LinkFacts facts() const override { return link_facts(); }
  void close() override { close_links(); }

 private:
  [[nodiscard]] Outcome<void> on_data(RdmaLink& link, std::uint32_t cell,
                                      const WorkCompletion& completion) override;
  [[nodiscard]] Outcome<void> on_note(RdmaLink& link, const Note& note) override;

  // Sends a note on every link and waits until each has been answered.
  [[nodiscard]] Outcome<void> exchange(NoteKind kind, std::uint64_t value, Watch& watch);

  // Keeps every link full until the time or the count is reached; returns the messages posted.
  [[nodiscard]] Outcome<std::uint64_t> stream(double seconds, std::uint64_t messages, Watch& watch);
  [[nodiscard]] bool can_post(const RdmaLink& link, std::uint32_t count) const;
  // False: why_not_posted() tells.
  [[nodiscard]] bool post_messages(RdmaLink& link, std::uint32_t count);
  [[nodiscard]] Outcome<PhaseResult> run_bandwidth(const PhaseLimits& limits, Watch& watch);

  // rdma_latency.cc
  [[nodiscard]] Outcome<PhaseResult> run_latency(const PhaseLimits& limits, Watch& watch);
  [[nodiscard]] Outcome<void> one_round_trip(RdmaLink& link, Watch& watch);

  // rdma_verify.cc
  [[nodiscard]] Outcome<PhaseResult> run_verify(const PhaseLimits& limits, Watch& watch);
  void fill_window(RdmaLink& link);
  [[nodiscard]] Outcome<void> verify_window(Watch& watch, PhaseResult& result);
  [[nodiscard]] Outcome<void> check_window(RdmaLink& link, PhaseResult& result);

  const bool takes_receives_;
  std::uint32_t batch_;
  std::uint64_t pongs_ = 0;
  std::size_t replies_ = 0;
};

}  // namespace weft::cli
