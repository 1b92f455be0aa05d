// A stream between wired queue pairs, with work of its own, against any octets: Acks, refusals and
// resumptions of what was never sent, and messages that are lost.
//
// Octet 0: bit 0 unreliable, 1 the peer resets instead of closing, 2 only one receive is posted, 3
// refusals are allowed once. Octet 1: how many octets come at once (0: all). The rest is what the
// peer sends. It gets right CRCs, and real STags where a small number stands.
//
// What must hold whatever comes: no octet outside of what was offered changes, and every request
// posted completes exactly once.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "../tests/sim/endpoint.h"
#include "base/crc32c.h"
#include "wire/fpdu.h"

namespace weft::fuzzing {
namespace {

using testing::Endpoint;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t kRegion = 4096;
constexpr std::uint32_t kReceiveBytes = 64;
constexpr std::uint32_t kRecvs = 6;
constexpr SendOp kReliable[] = {SendOp::kSend,  SendOp::kRead,     SendOp::kWriteImm,
                                SendOp::kWrite, SendOp::kFetchAdd, SendOp::kImmediate};
constexpr SendOp kUnreliable[] = {SendOp::kSend, SendOp::kWriteImm, SendOp::kWrite,
                                  SendOp::kImmediate};
// A peer that refuses and lets resume may go on for as long as it likes.
constexpr int kTimeOuts = 200;

class Harness {
 public:
  explicit Harness(std::span<const std::uint8_t> input)
      : options_(input[0]),
        piece_(input[1] == 0 ? 100000 : input[1]),
        endpoint_({.arena_bytes = 32U << 10U, .queue_depth = 16, .secret = 5}) {
    make_memory();
    start();
    feed(repaired({input.begin() + 2, input.end()}));
    finish();
    check_memory();
  }

 private:
  [[nodiscard]] bool option(unsigned bit) const { return (options_ >> bit & 1U) != 0; }
  [[nodiscard]] std::span<const SendOp> operations() const {
    if (option(0)) return kUnreliable;
    return kReliable;
  }

  void make_memory() {
    std::uint8_t* at = endpoint_.take(kRegion, 8);
    stags_.push_back(endpoint_.add_region(at, kRegion, Endpoint::kAll, 0));
    offered_.push_back({at, kRegion});
    (void)endpoint_.take(64);  // a gap that must stay as it is
    at = endpoint_.take(kRegion, 8);
    stags_.push_back(endpoint_.add_region(at, kRegion, Access::kNone, 0));
    receives_ = option(2) ? 1 : kRecvs;
    for (std::uint32_t i = 0; i < receives_; ++i) {
      std::uint8_t* buffer = endpoint_.take(kReceiveBytes);
      offered_.push_back({buffer, kReceiveBytes});
      endpoint_.post_recv(i, buffer, kReceiveBytes);
    }
  }

  void start() {
    proto::StreamParams p;
    p.both_ready = true;
    p.unreliable = option(0);
    p.acks = !p.unreliable;
    p.ird = p.ord = p.acks ? 3 : 0;
    p.recv_wait = std::chrono::milliseconds(1);
    p.not_ready_pause = std::chrono::milliseconds(1);
    endpoint_.start(p);
    endpoint_.stream().allow_refusals(option(3) ? 1 : 7);
    std::uint32_t id = 0;
    for (const SendOp op : operations()) {
      proto::SendWqe* wqe = endpoint_.new_send(op, SendFlags::kSignaled, id);
      endpoint_.add_sge(*wqe, stags_[0], reinterpret_cast<const void*>(std::uintptr_t{id * 64}), 8);
      if (op == SendOp::kFetchAdd) proto::atomic_args(*wqe) = {};
      endpoint_.commit_send();
      ++id;
    }
  }

  [[nodiscard]] Bytes repaired(Bytes bytes) const {
    for (std::size_t at = 0; at + kFpduLengthSize + 2 <= bytes.size();) {
      const std::uint32_t ulpdu_len = load_ulpdu_length(&bytes[at]);
      const std::size_t size = fpdu_size(ulpdu_len);
      if (bytes.size() - at < size) bytes.resize(at + size, 0);
      std::uint8_t* const ulpdu = &bytes[at + kFpduLengthSize];
      const bool ack = (ulpdu[1] & kRdmapOpcodeMask) == kAckBits;
      if (peek_tagged(ulpdu[0]) && !ack && ulpdu_len >= kDdpTaggedSize &&
          load_be32(ulpdu + 2) < stags_.size()) {
        store_be32(ulpdu + 2, stags_[load_be32(ulpdu + 2)].value);
      }
      const std::size_t covered = size - kCrcSize;
      store_crc(&bytes[at + covered], crc32c({&bytes[at], covered}));
      at += size;
      if (bytes.size() > 100000) break;
    }
    return bytes;
  }

  void transmit() {
    proto::Stream& stream = endpoint_.stream();
    for (int i = 0; i < 100; ++i) {
      proto::TxBatch* batch = stream.gather();
      if (batch == nullptr) break;
      const std::size_t n = batch->bytes - batch->sent;
      stream.sent(n);
      stream.released(n);
    }
    (void)stream.take_fin();
  }

  // False: there is nothing to wait for.
  bool wait() {
    proto::Stream& stream = endpoint_.stream();
    if (stream.deadline().is_never() || time_outs_++ == kTimeOuts) return false;
    endpoint_.clock = std::max(endpoint_.clock, stream.deadline());
    stream.expired(endpoint_.clock);
    transmit();
    return true;
  }

  void feed(const Bytes& bytes) {
    static std::array<std::uint8_t, proto::kScratchBytesMin> scratch;
    proto::Stream& stream = endpoint_.stream();
    std::size_t at = 0;
    transmit();
    while (at < bytes.size() && !stream.finished()) {
      if (stream.awaits_receive()) {
        if (!wait()) return;
        continue;
      }
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
      transmit();
      if (!stream.finished() && !option(0)) (void)wait();  // a pause of ours may be due
    }
  }

  void finish() {
    proto::Stream& stream = endpoint_.stream();
    if (option(1)) {
      stream.transport_lost(false);
    } else {
      stream.peer_closed();
    }
    transmit();
    while (!stream.finished() && wait()) {
    }
    if (!stream.finished()) stream.abort();
    stream.flush_posted();
    endpoint_.flush_receives();
    EXPECT_TRUE(stream.finished());
    EXPECT_TRUE(endpoint_.down.has_value());
    EXPECT_EQ(endpoint_.sends.size(), operations().size());
    EXPECT_EQ(endpoint_.recvs.size(), receives_);
    for (std::uint32_t i = 0; i < endpoint_.sends.size(); ++i) {
      EXPECT_EQ(endpoint_.sends[i].wr_id, i);
    }
    for (std::uint32_t i = 0; i < endpoint_.recvs.size(); ++i) {
      EXPECT_EQ(endpoint_.recvs[i].wr_id, i);
    }
  }

  void check_memory() const {
    Bytes seen(arena_.begin(), arena_.end());
    for (const auto& piece : offered_) {
      std::memset(seen.data() + (piece.data() - arena_.data()), Endpoint::kFill, piece.size());
    }
    EXPECT_EQ(seen, Bytes(arena_.size(), Endpoint::kFill)) << "memory changed that was not offered";
  }

  std::uint8_t options_;
  std::size_t piece_;
  Endpoint endpoint_;
  std::span<const std::uint8_t> arena_ = endpoint_.arena();
  std::vector<Stag> stags_;
  std::vector<std::span<std::uint8_t>> offered_;
  std::uint32_t receives_ = 0;
  int time_outs_ = 0;
};

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);  // an expectation that fails ends the program
  if (size >= 2 && size < 20000) weft::fuzzing::Harness({data, size});
  return 0;
}
