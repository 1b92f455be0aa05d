// What the connection set-up tests over RDMA and over plain TCP have in common.
#pragma once

#include <cstdint>

#include "weft/endpoint/endpoint.h"
#include "weft/endpoint/rdma_hello.h"

namespace weft::cli {

// Goes as the number in the hello of each connection of such a test.
enum class ConnectKind : std::uint32_t {
  kSetUp = 0,  // counts
  kBegin = 1,  // the phase begins with it
  kEnd = 2,    // and ends with it
};

// The client of such a test: it keeps `depth` set-ups under way. How one set-up is made, and when
// it is over, is for RDMA or TCP to say.
class Connector : public ClientEndpoint {
 public:
  [[nodiscard]] Json offer() const override { return Json::object(); }
  [[nodiscard]] Outcome<void> connect(const SocketAddress& server, const Json& ready,
                                      Watch& watch) override;
  [[nodiscard]] Outcome<PhaseResult> run(Phase phase, const PhaseLimits& limits,
                                         Watch& watch) override;
  [[nodiscard]] LinkFacts facts() const override { return facts_; }
  void close() override {}

 protected:
  explicit Connector(const TestSpec& spec) : spec_(spec) {}

  const TestSpec spec_;
  SocketAddress server_;
  TestToken token_ = 0;
  LinkFacts facts_;

 private:
  [[nodiscard]] virtual Outcome<void> start(ConnectKind kind) = 0;
  // Waits a moment for set-ups to be over, and adds them to `result`.
  [[nodiscard]] virtual Outcome<void> wait_some(Watch& watch, PhaseResult& result) = 0;
  [[nodiscard]] virtual std::size_t under_way() const = 0;
  [[nodiscard]] Outcome<void> only(ConnectKind kind, Watch& watch);
};

}  // namespace weft::cli
