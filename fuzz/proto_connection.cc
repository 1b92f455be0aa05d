// A whole connection: start-up, then a stream with work of its own, against any octets.
//
// Octet 0: bit 0 we are the initiator, 1 CRC, 2 markers in what we receive, 3 repair, 4 large
// receives, 5 the peer resets instead of closing, 6 we close in the middle, 7 FPDUPTR unchecked.
// Octet 1: bits 0 to 6 how many octets come at once (0: all); bit 7 the harness has done the peer's
// part of start-up. The rest is what the peer sends, start-up first.
//
// With "repair" the harness makes of the octets behind start-up FPDUs that pass: a right CRC, and
// real STags where a small number stands. Without it hardly any input would get past the CRC, or
// name memory.
//
// What must hold whatever comes: no octet outside of what was offered changes, every request posted
// completes exactly once, everything borrowed is given back.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "../tests/sim/endpoint.h"
#include "base/crc32c.h"
#include "proto/startup.h"

namespace weft::fuzzing {
namespace {

using proto::Startup;
using proto::StartupOffer;
using proto::StartupState;
using testing::Endpoint;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t kRegion = 4096;
constexpr std::uint32_t kSends = 8;
constexpr std::uint32_t kRecvs = 6;

class Harness {
 public:
  explicit Harness(std::span<const std::uint8_t> input)
      : options_(input[0]),
        piece_((input[1] & 0x7fU) == 0 ? 100000 : input[1] & 0x7fU),
        input_(input.begin() + 2, input.end()),
        endpoint_(
            {.arena_bytes = option(4) ? 160U << 10U : 32U << 10U, .queue_depth = 16, .secret = 5}) {
    make_memory();
    if ((input[1] & 0x80U) != 0) prepend_startup();
  }

  void run() {
    std::size_t at = 0;
    Startup startup = (option(0)) ? *Startup::initiator(offer()) : Startup::responder();
    startup.sent(startup.to_send().size());
    while (at < input_.size()) {
      const std::size_t n = std::min({startup.missing(), piece_, input_.size() - at});
      if (n == 0 || !startup.received({input_.data() + at, n})) break;
      at += n;
    }
    if (startup.state() == StartupState::kRequestReady) {
      if (!startup.accept(offer())) __builtin_trap();
      startup.sent(startup.to_send().size());
    }
    if (startup.state() != StartupState::kDone) return;
    start(startup.result());
    Bytes rest(input_.begin() + static_cast<std::ptrdiff_t>(at), input_.end());
    if (option(3)) rest = repaired(rest);
    feed(rest);
    finish();
    check_memory();
  }

 private:
  [[nodiscard]] bool option(unsigned bit) const { return (options_ >> bit & 1U) != 0; }

  [[nodiscard]] StartupOffer offer() const {
    StartupOffer o;
    o.crc = option(1);
    o.markers = option(2);
    o.peer_to_peer = option(0);
    o.ird = o.ord = 3;
    return o;
  }

  // A frame of the peer that wants what we want.
  void prepend_startup() {
    Startup peer = option(0) ? Startup::responder() : *Startup::initiator(offer());
    if (option(0)) {
      if (!peer.received(Startup::initiator(offer())->to_send()) || !peer.accept(offer())) {
        __builtin_trap();
      }
    }
    const auto frame = peer.to_send();
    input_.insert(input_.begin(), frame.begin(), frame.end());
  }

  void make_memory() {
    const Access accesses[] = {Endpoint::kAll, Access::kLocalWrite | Access::kRemoteWrite,
                               Access::kRemoteRead, Access::kNone};
    for (const Access access : accesses) {
      std::uint8_t* at = endpoint_.take(kRegion, 8);
      stags_.push_back(endpoint_.add_region(at, kRegion, access, 0));
      if (has(access, Access::kRemoteWrite)) offered_.push_back({at, kRegion});
      (void)endpoint_.take(64);  // a gap that must stay as it is
    }
    // Bound to another stream, and one that is invalid.
    std::uint8_t* at = endpoint_.take(kRegion);
    stags_.push_back(endpoint_.add_region(at, kRegion, Endpoint::kAll, 0, 99));
    stags_.push_back(endpoint_.add_region(at, kRegion, Endpoint::kAll, 0));
    (void)endpoint_.table().invalidate(stags_.back());
    const std::uint32_t size = option(4) ? 20000 : 40;
    for (std::uint32_t i = 0; i < kRecvs; ++i) {
      std::uint8_t* buffer = endpoint_.take(size);
      offered_.push_back({buffer, size});
      endpoint_.post_recv(i, buffer, size);
    }
  }

  void start(const proto::Negotiated& n) {
    proto::StreamParams p;
    p.initiator = n.initiator;
    p.crc = n.crc;
    p.tx_markers = n.tx_markers;
    p.rx_markers = n.rx_markers;
    p.check_markers = !option(7);
    p.rtr = n.initiator ? n.rtr : RtrKind::kNone;
    p.startup_failure = n.startup_failure;
    p.ird = n.ird;
    p.ord = n.ord;
    crc_ = n.crc;
    markers_ = n.rx_markers;
    endpoint_.start(p);
    // Work of ours, so that responses find something they may answer.
    std::uint8_t* at = endpoint_.take(kRegion, 8);
    offered_.push_back({at, kRegion});
    const Stag sink = endpoint_.add_region(at, kRegion, Access::kLocalWrite, 0);
    stags_.push_back(sink);
    constexpr SendOp kOps[kSends] = {SendOp::kSend, SendOp::kRead,     SendOp::kWrite,
                                     SendOp::kRead, SendOp::kFetchAdd, SendOp::kWriteImm,
                                     SendOp::kRead, SendOp::kSend};
    for (std::uint32_t i = 0; i < kSends; ++i) {
      proto::SendWqe* wqe = endpoint_.new_send(kOps[i], SendFlags::kSignaled, i);
      endpoint_.add_sge(*wqe, sink, reinterpret_cast<const void*>(std::uintptr_t{i * 64}), 8);
      if (kOps[i] == SendOp::kFetchAdd) proto::atomic_args(*wqe) = {};
      endpoint_.commit_send();
    }
  }

  // --- making octets pass ---

  void name_memory(std::uint8_t* stag) const {
    const std::uint32_t value = load_be32(stag);
    if (value < stags_.size()) store_be32(stag, stags_[value].value);
  }

  [[nodiscard]] Bytes repaired(Bytes bytes) const {
    if (markers_) return bytes;
    for (std::size_t at = 0; at + kFpduLengthSize + 2 <= bytes.size();) {
      const std::uint32_t ulpdu_len = load_ulpdu_length(&bytes[at]);
      const std::size_t size = fpdu_size(ulpdu_len);
      if (bytes.size() - at < size) bytes.resize(at + size, 0);
      std::uint8_t* const ulpdu = &bytes[at + kFpduLengthSize];
      if (peek_tagged(ulpdu[0]) && ulpdu_len >= kDdpTaggedSize) name_memory(ulpdu + 2);
      if (!peek_tagged(ulpdu[0]) && ulpdu_len >= kDdpUntaggedSize + kReadRequestSize) {
        const std::uint8_t op = ulpdu[1] & kRdmapOpcodeMask;
        const bool read = op == static_cast<std::uint8_t>(Opcode::kReadRequest);
        name_memory(ulpdu + kDdpUntaggedSize + (read ? 16 : 8));
      }
      const std::size_t covered = size - kCrcSize;
      if (crc_) store_crc(&bytes[at + covered], crc32c({&bytes[at], covered}));
      at += size;
      if (bytes.size() > 100000) break;
    }
    return bytes;
  }

  // --- driving ---

  void transmit() {
    proto::Stream& stream = endpoint_.stream();
    for (int i = 0; i < 100; ++i) {
      proto::TxBatch* batch = stream.gather();
      if (batch == nullptr) break;
      const std::size_t n = std::min<std::size_t>(batch->bytes - batch->sent, piece_ * 7);
      stream.sent(n);
      stream.released(n);
    }
    (void)stream.take_fin();
  }

  void feed(const Bytes& bytes) {
    static std::array<std::uint8_t, proto::kScratchBytesMin> scratch;
    proto::Stream& stream = endpoint_.stream();
    std::size_t at = 0;
    bool closed = false;
    transmit();
    while (at < bytes.size() && !stream.finished()) {
      proto::RxPlan plan;
      stream.want(plan, scratch);
      std::size_t n = std::min({plan.bytes, piece_, bytes.size() - at});
      const std::size_t got = n;
      for (std::size_t i = 0; i < plan.count && n != 0; ++i) {
        const std::size_t part = std::min(n, plan.slices[i].size);
        std::memcpy(plan.slices[i].data, &bytes[at], part);
        at += part;
        n -= part;
      }
      stream.arrived(got);
      if (option(6) && !closed && at > bytes.size() / 2) {
        stream.close();
        closed = true;
      }
      transmit();
    }
  }

  void finish() {
    proto::Stream& stream = endpoint_.stream();
    if (option(5)) {
      stream.transport_lost(false);
    } else {
      stream.peer_closed();
    }
    transmit();
    endpoint_.clock = stream.deadline();
    if (!endpoint_.clock.is_never()) stream.expired(endpoint_.clock);
    if (!stream.finished()) stream.abort();
    stream.flush_posted();
    endpoint_.flush_receives();
    EXPECT_TRUE(stream.finished());
    EXPECT_TRUE(endpoint_.down.has_value());
    EXPECT_EQ(endpoint_.sends.size(), kSends);
    EXPECT_EQ(endpoint_.recvs.size(), kRecvs);
    for (std::uint32_t i = 0; i < endpoint_.sends.size(); ++i) {
      EXPECT_EQ(endpoint_.sends[i].wr_id, i);
    }
    for (std::uint32_t i = 0; i < endpoint_.recvs.size(); ++i) {
      EXPECT_EQ(endpoint_.recvs[i].wr_id, i);
    }
  }

  void check_memory() const {
    // Blanks what was offered; then all must be as in the beginning. Few calls over much memory,
    // because each instrumented step costs.
    Bytes seen(arena_.size());
    std::memcpy(seen.data(), arena_.data(), arena_.size());
    for (const auto& piece : offered_) {
      std::memset(seen.data() + (piece.data() - arena_.data()), Endpoint::kFill, piece.size());
    }
    const Bytes untouched(arena_.size(), Endpoint::kFill);
    EXPECT_EQ(0, std::memcmp(seen.data(), untouched.data(), seen.size()))
        << "memory changed that was not offered";
  }

  std::uint8_t options_;
  std::size_t piece_;
  Bytes input_;
  Endpoint endpoint_;
  std::span<const std::uint8_t> arena_ = endpoint_.arena();
  std::vector<Stag> stags_;
  std::vector<std::span<std::uint8_t>> offered_;
  bool crc_ = false;
  bool markers_ = false;
};

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);  // an expectation that fails ends the program
  if (size >= 2 && size < 20000) weft::fuzzing::Harness({data, size}).run();
  return 0;
}
