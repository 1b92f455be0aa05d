// One end of a DDP stream for tests: a host over memory of its own, without transport. Everything
// the stream does to it is recorded, and what it must not do stops the program. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/ddp_stream.h"

namespace weft::testing {

using Octets = std::vector<std::uint8_t>;

class DdpSide final : public proto::DdpHost {
 public:
  static constexpr Stag kStag{0x100};         // all of memory, from tagged offset kBase
  static constexpr Stag kForeignStag{0x200};  // of another stream
  static constexpr Stag kReadOnlyStag{0x300};
  static constexpr std::uint64_t kBase = 1000;
  static constexpr std::uint8_t kFill = 0xee;  // of memory that nobody wrote
  static constexpr std::uint8_t kGone = 0xdd;  // of messages that were given back
  static constexpr std::size_t kGuard = 64;    // octets on either side of memory and buffers

  struct Got {
    std::uint32_t queue = 0;
    std::uint8_t control = 0;
    std::uint32_t rsvd_ulp = 0;
    Octets octets;
    bool operator==(const Got&) const = default;
  };

  explicit DdpSide(const proto::DdpParams& params, std::size_t memory_bytes = 4096);
  ~DdpSide() override;
  DdpSide(const DdpSide&) = delete;
  DdpSide& operator=(const DdpSide&) = delete;

  [[nodiscard]] proto::DdpStream& stream() { return *stream_; }

  // --- what a program does ---

  // Posts a copy of `octets`. It is overwritten when the stream gives it back.
  Status post(proto::DdpMessage message, const Octets& octets);
  Status send(const Octets& octets, std::uint32_t queue = 0, std::uint8_t control = 0);
  Status write(const Octets& octets, std::uint64_t to, std::uint8_t control = 0, Stag stag = kStag);
  // A buffer for a message of `queue`.
  void post_buffer(std::uint32_t size, std::uint32_t queue = 0);

  // --- what a transport does ---

  // Takes at most `n` octets and copies them; with `hold` the stream is not told yet that they are
  // no longer read.
  Octets take(std::size_t n = SIZE_MAX, bool hold = false);
  void release_held();
  // The next octets that the stream offers, still where they are. Empty: nothing.
  [[nodiscard]] std::span<const std::uint8_t> offered(std::size_t max);

  // --- what happened ---

  std::vector<Got> got;                // untagged messages
  std::vector<std::uint8_t> notified;  // control octets of tagged messages that ended
  std::size_t released_whole = 0, released_unsent = 0;
  std::optional<proto::DdpEnd> ended;
  [[nodiscard]] std::span<const std::uint8_t> memory() const {
    return std::span(memory_).subspan(kGuard, memory_.size() - 2 * kGuard);
  }
  // Nothing was written beside memory and buffers, and what was borrowed is back.
  [[nodiscard]] bool intact() const;
  [[nodiscard]] std::size_t messages_out() const { return messages_.size(); }

  // --- knobs ---

  int batches_max = 2;
  bool takes_notifications = true;

  // --- DdpHost ---

  proto::MemoryFault place(Stag stag, std::uint64_t to, proto::MarkedOctets payload) override;
  bool tagged_delivered(const DdpTagged& header) override;
  bool take_buffer(std::uint32_t queue, std::span<std::uint8_t>& buffer) override;
  void untagged_delivered(const DdpUntagged& header, std::uint32_t length) override;
  void message_released(bool sent) override;
  void stream_ended(proto::DdpEnd how) override;
  std::uint8_t* acquire_carry(std::size_t size) override;
  void release_carry(std::uint8_t* carry, std::size_t size) override;
  proto::TxBatch* acquire_batch() override;
  void release_batch(proto::TxBatch* batch) override;

 private:
  struct Buffer {
    explicit Buffer(std::uint32_t size) : octets(size + 2 * kGuard, kFill) {}
    [[nodiscard]] std::span<std::uint8_t> inner() {
      return std::span(octets).subspan(kGuard, octets.size() - 2 * kGuard);
    }
    Octets octets;
  };

  Octets memory_;
  std::array<std::deque<Buffer>, proto::kDdpQueuesMax> buffers_;
  std::array<std::optional<Buffer>, proto::kDdpQueuesMax> open_;
  std::deque<Octets> messages_;
  bool guards_broken_ = false;
  std::size_t held_ = 0;
  int batches_out_ = 0;
  int carries_out_ = 0;
  std::unique_ptr<proto::DdpStream> stream_;
};

// One FPDU without markers, with a good CRC.
[[nodiscard]] Octets fpdu(std::span<const std::uint8_t> ulpdu);
[[nodiscard]] Octets fpdu(const DdpTagged& header, const Octets& payload);
[[nodiscard]] Octets fpdu(const DdpUntagged& header, const Octets& payload);

}  // namespace weft::testing
