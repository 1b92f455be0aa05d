// The octet stream of rsockets over one queue pair: rings, target buffers, credits, messages.
//
// An RsStream does no waiting and has no lock: its owner serializes all calls and sleeps on
// channel(). Progress happens in process() and in the data calls. What the peer sends is checked
// here (hazards H1-H7 of rs_wire.h); a peer that breaks the rules ends the connection.
//
//   rs_stream.cc        set-up, completions, messages, credits
//   rs_stream_data.cc   the data calls, the iomap calls
#pragma once

#include <weft/device.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "rsockets/rs_farewell.h"
#include "rsockets/rs_maps.h"
#include "rsockets/rs_memory.h"
#include "rsockets/rs_receive_ring.h"
#include "rsockets/rs_remote_table.h"
#include "rsockets/rs_send_credits.h"
#include "rsockets/rs_send_ring.h"
#include "rsockets/rs_wire.h"

namespace weft::rsockets {

struct RsOptions {
  std::uint32_t send_bytes = 1U << 17U;
  std::uint32_t recv_bytes = 1U << 17U;
  std::uint16_t send_requests = 384;
  std::uint16_t recv_requests = 384;  // credits we give
  std::uint32_t inline_bytes = 64;
  std::uint16_t iomap_count = 0;  // mapped ranges the peer may offer us

  // Brings every value into the range that the protocol and the device allow.
  void clamp();
};

class RsStream {
 public:
  //   as Device, ProtectionDomain and CompletionQueue report them
  [[nodiscard]] static Result<std::unique_ptr<RsStream>> create(Device& device, RsOptions options);
  ~RsStream();
  RsStream(const RsStream&) = delete;
  RsStream& operator=(const RsStream&) = delete;

  [[nodiscard]] const RsOptions& options() const { return options_; }
  [[nodiscard]] const std::shared_ptr<QueuePair>& qp() const { return qp_; }
  [[nodiscard]] CompletionChannel& channel() const { return *channel_; }
  [[nodiscard]] std::array<std::uint8_t, RsConnect::kSize> private_data() const;

  // The peer's private data came: data may flow once the QP is connected.
  //   as decode_connect(); nothing changed
  [[nodiscard]] Status start(std::span<const std::uint8_t> private_data);

  // Takes completions, handles messages, returns credits. True: there were completions.
  bool process();
  // Takes events off the channel and has it raise one for the next completion. Call process()
  // again before sleeping.
  void arm();
  // For an owner with an event loop of its own. True: it sleeps until channel().sleep_fd() is
  // readable, then calls channel().end_sleep() and process(). False: there is news.
  [[nodiscard]] bool rest();

  // Copies into the send ring and posts; returns the octets taken: 0 means no room now.
  // REQUIRES: writable().
  [[nodiscard]] std::size_t send(std::span<const std::uint8_t> data);
  [[nodiscard]] std::size_t receive(std::span<std::uint8_t> out, bool peek);
  [[nodiscard]] std::size_t unread() const { return reading_.unread(); }
  [[nodiscard]] std::uint64_t arrived() const { return reading_.arrived(); }  // octets, ever
  [[nodiscard]] bool can_send() const;
  // Every request posted has completed: TCP has all that was sent.
  [[nodiscard]] bool flushed() const { return data_outstanding_ == 0 && control_outstanding_ == 0; }

  // Says to the peer that we send no more, or that we leave. False: no control slot; process() and
  // try again. True as well when it has been said before.
  [[nodiscard]] bool say_shutdown();
  [[nodiscard]] bool say_disconnect();

  // The peer has said that it sends no more, or has left.
  [[nodiscard]] bool peer_finished() const { return peer_ != Peer::kSends; }
  // The peer has left: what we send is not wanted any more.
  [[nodiscard]] bool peer_left() const { return peer_ == Peer::kLeft; }
  [[nodiscard]] bool down() const { return life_ >= Life::kDown; }  // requests come back flushed
  [[nodiscard]] bool violated() const { return life_ == Life::kViolated; }  // by the peer

  // --- mapped memory ---

  // Offers [addr, addr + length) to the peer at `offset` of our name space.
  //   kNoSpace      the peer has no free entry;  kLimitExceeded, kInvalidArgument: registration
  [[nodiscard]] Status map(void* addr, std::size_t length, bool writable, std::uint64_t offset);
  //   kNotFound     nothing is mapped there with this length
  [[nodiscard]] Status unmap(void* addr, std::size_t length);
  // Writes into what the peer has mapped at `offset`. Returns octets taken: 0 if there is no room
  // now, or nothing is mapped there (then mapped() is false).
  [[nodiscard]] std::size_t write_mapped(std::span<const std::uint8_t> data, std::uint64_t offset);
  [[nodiscard]] bool mapped(std::uint64_t offset) const;
  // Offers that wait for room are sent by process().
  [[nodiscard]] bool maps_pending() const { return maps_.pending(); }

 private:
  static constexpr std::uint32_t kControlSlots = 4;
  static constexpr std::uint32_t kExtraReceives = 16;  // for messages without a credit (H1)
  static constexpr std::uint32_t kSglEntries = 2;

  // Each only ever becomes a later one.
  enum class Life : std::uint8_t { kNew, kRunning, kDown, kViolated };
  enum class Peer : std::uint8_t { kSends, kFinished, kLeft };

  explicit RsStream(RsOptions options) : options_(options) {}
  [[nodiscard]] Status set_up(Device& device);
  [[nodiscard]] Status register_rings();
  [[nodiscard]] Status post_receives();
  bool post_receive(std::uint32_t slot);

  void completed(const WorkCompletion& wc);
  void received(const WorkCompletion& wc);
  void on_data(std::uint32_t length);
  void on_credit(std::uint16_t value);
  void violation();
  void end(Life how) { life_ = std::max(life_, how); }
  [[nodiscard]] bool running() const { return life_ == Life::kRunning; }
  void give_credit();
  [[nodiscard]] bool post_message(RsMessage message, std::uint64_t kind);
  [[nodiscard]] bool post_target_and_credit(const RsSge& target);
  // Posts a message of the end, for which there may be no control slot: as say_disconnect().
  [[nodiscard]] bool say(RsOp op, FarewellEvent held_up, FarewellEvent sent);

  [[nodiscard]] std::size_t room() const;
  [[nodiscard]] bool post_piece(std::span<const std::uint8_t> piece, std::uint64_t addr,
                                std::uint32_t key, bool with_message);
  // A Write of `entry` into the peer's table at `to`, and a message behind it. `kind`: of both
  // requests. How many were taken; if not both, the stream is down.
  [[nodiscard]] std::uint32_t post_entry(std::span<const std::uint8_t> entry, std::uint64_t to,
                                         RsMessage message, std::uint64_t kind);
  void send_pending_maps();
  // The entry of what the peer has mapped at `offset`.
  [[nodiscard]] std::optional<RsIomap> mapped_at(std::uint64_t offset) const;

  RsOptions options_;
  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionChannel> channel_;
  std::shared_ptr<CompletionQueue> cq_;
  std::shared_ptr<QueuePair> qp_;

  // The strip holds messages, apart from the ring: the peer may not write into what they are read
  // from. The tables hold targets, then what the peer has mapped.
  RsMemory recv_memory_, send_memory_, strip_, tables_;

  bool armed_ = false;  // for all that is known: an event may have been raised
  Life life_ = Life::kNew;
  Peer peer_ = Peer::kSends;
  RsFarewell farewell_;

  // Sending.
  std::deque<RsSge> targets_;         // where the peer wants the next octets, oldest first
  std::uint32_t next_own_entry_ = 1;  // of our SGL: where the peer writes its next target
  RsRemoteTable remote_;
  RsSendCredits credits_;
  std::uint32_t requests_free_ = 0;     // send requests for data
  std::uint32_t data_outstanding_ = 0;  // data requests not completed
  std::uint32_t control_outstanding_ = 0;
  RsSendRing sending_;

  RsReceiveRing reading_;
  RsMaps maps_;
};

}  // namespace weft::rsockets
