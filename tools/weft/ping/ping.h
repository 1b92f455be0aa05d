// `weft ping`: RDMA Write, Send and Read with verification, round after round.
//
// A round: the client Writes `size` bytes into the server's memory and Sends as many; the server
// compares both, fills the second half of its memory and answers with a Send; the client compares
// that and Reads the second half, and compares it too. Every byte belongs to its round.
#pragma once

#include <weft/weft.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/command.h"

namespace weft::cli {

inline constexpr std::uint64_t kPingBytes = 16U << 20U;  // per message, at most
inline constexpr std::size_t kPingHeaderBytes = 16;      // round and verdict, before the pattern
inline constexpr std::size_t kPingClients = 64;          // served at once

// What the client asks for in its private data, and what the server answers with.
struct PingRequest {
  std::uint64_t size = 0;
};
struct PingOffer {
  std::uint64_t addr = 0;  // 2 * size bytes: one half to write, one to read
  std::uint32_t rkey = 0;
};
[[nodiscard]] std::vector<std::uint8_t> encode(const PingRequest& request);
[[nodiscard]] std::vector<std::uint8_t> encode(const PingOffer& offer);
[[nodiscard]] std::optional<PingRequest> decode_ping_request(std::span<const std::uint8_t> bytes);
[[nodiscard]] std::optional<PingOffer> decode_ping_offer(std::span<const std::uint8_t> bytes);

// The first bytes of each Send.
struct PingHeader {
  std::uint64_t round = 0;
  std::uint64_t verdict = 0;  // of the server: a PingVerdict
};
enum class PingVerdict : std::uint64_t { kRight = 0, kWriteWrong = 1, kSendWrong = 2 };
void encode(const PingHeader& header, std::uint8_t* out);
[[nodiscard]] PingHeader decode_ping_header(const std::uint8_t* bytes);

// The four messages of a round have different patterns.
enum class PingPart : std::uint32_t { kWrite, kSend, kAnswer, kRead };
[[nodiscard]] std::uint64_t ping_seed(PingPart part, std::uint64_t round);

// One end of a ping connection: a queue pair with its memory. The memory holds, in this order: the
// half that is written, the half that is read, the message to send, the message received.
class PingEnd {
 public:
  [[nodiscard]] static Outcome<std::unique_ptr<PingEnd>> create(ProtectionDomain& pd,
                                                                std::shared_ptr<CompletionQueue> cq,
                                                                std::uint64_t size);

  [[nodiscard]] Outcome<void> post_receive();
  [[nodiscard]] Outcome<void> post(std::span<const SendWr> wrs);
  // Work requests on this end's memory; `sge` is where the caller keeps the gather list.
  [[nodiscard]] SendWr send_wr(Sge& sge) const;
  [[nodiscard]] SendWr remote_wr(SendOp op, Sge& sge, const PingOffer& peer) const;

  [[nodiscard]] std::span<std::uint8_t> written() const { return {memory_.get(), size_}; }
  [[nodiscard]] std::span<std::uint8_t> readable() const { return {memory_.get() + size_, size_}; }
  [[nodiscard]] std::uint8_t* outgoing() const { return memory_.get() + 2 * size_; }
  [[nodiscard]] std::uint8_t* incoming() const { return outgoing() + message_bytes(); }
  [[nodiscard]] std::span<std::uint8_t> body(std::uint8_t* message) const {
    return {message + kPingHeaderBytes, size_};
  }
  [[nodiscard]] std::size_t message_bytes() const { return kPingHeaderBytes + size_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] PingOffer offer() const;
  [[nodiscard]] const std::shared_ptr<QueuePair>& qp() const { return qp_; }

 private:
  std::unique_ptr<std::uint8_t[]> memory_;
  std::uint64_t size_ = 0;
  std::shared_ptr<MemoryRegion> region_;
  std::shared_ptr<QueuePair> qp_;
};

struct PingServerSetup {
  SocketAddress where;
  bool once = false;
  bool quiet = false;
  int announce_fd = -1;
};
[[nodiscard]] Outcome<void> run_ping_server(const PingServerSetup& setup, Device& device);

struct PingClientSetup {
  SocketAddress server;
  std::vector<std::uint64_t> sizes{64};
  std::uint64_t count = 10;
  double interval_s = 0.2;
  bool quiet = false;
  bool json = false;
};
[[nodiscard]] Outcome<void> run_ping_client(const PingClientSetup& setup, Device& device);

}  // namespace weft::cli
