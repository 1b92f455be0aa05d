// The posts of a connection over RDMA: messages within the peer's credits, Writes, Reads, one-sided
// work; and how far the send queue has come.
//
// With the mutex of the socket.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "exs/core/exs_messages.h"
#include "exs/core/exs_socket.h"
#include "exs/rdma/cm_connection.h"
#include "exs/rdma/flow.h"
#include "exs/rdma/message_slots.h"
#include "exs/rdma/send_queue.h"
#include "exs/rdma/slot_credits.h"

namespace weft::exs {

// A part of the peer's memory.
struct RemotePiece {
  std::uint64_t addr = 0;
  std::uint32_t rkey = 0;
  std::uint64_t length = 0;
};

class RdmaPort {
 public:
  RdmaPort(Socket& socket, Engine& engine) : s_(socket), cm_(engine) {}
  [[nodiscard]] CmConnection& cm() { return cm_; }
  [[nodiscard]] const CmConnection& cm() const { return cm_; }

  // ---- its life
  // A queue pair with its buffers, receives posted. 0 or an errno. REQUIRES an id of rdma_cm.
  int make_qp();
  // The peer may send: we wait for its first message, or may send as well.
  void up(bool may_send) { advance(may_send ? Life::kOpen : Life::kSilent); }
  [[nodiscard]] bool is_up() const { return life_ == Life::kSilent || life_ == Life::kOpen; }
  [[nodiscard]] bool gone() const { return life_ == Life::kGone; }
  // After this the device reaches no memory of ours.
  void end();
  // After this no report comes any more. REQUIRES end().
  void release();

  // ---- what both ends offer
  [[nodiscard]] const Hello& mine() const { return mine_; }
  [[nodiscard]] const Hello& theirs() const { return theirs_; }
  void offer(const Hello& mine) { mine_ = mine; }
  // The peer's offer has come. Once, after offer().
  void agree(const Hello& theirs) {
    assert(mine_.slots != 0 && theirs_.slots == 0 && theirs.slots != 0);
    theirs_ = theirs;
  }
  // Payload that a message in either direction may hold.
  [[nodiscard]] std::size_t immediate_bytes() const {
    return std::min(mine_.immediate_bytes, theirs_.immediate_bytes);
  }

  // ---- posting. False: it could not be posted, and the connection is broken.
  // Whether there is room for `requests` work requests and, if a message is wanted, for one.
  [[nodiscard]] bool can_post(std::size_t requests) const;
  [[nodiscard]] bool can_send(std::size_t requests);
  // The same without data, and nothing is counted.
  [[nodiscard]] bool has_credit() const {
    return can_post(1) && credits_.left(theirs_.slots) >= 2 && slots_.any_free();
  }
  // Posts one message, with the counters of `flow`. `payload` of the operation from `from` on is
  // copied into it.
  bool send_message(Flow& flow, Header header, std::span<const Segment> segments,
                    const Operation* payload, std::size_t from, bool signaled);
  // Writes bytes of `op` to remote memory, unsignaled: a message follows.
  bool post_writes(Operation& op, std::size_t from, std::span<const RemotePiece> to);
  bool post_requests(ibv_send_wr* first, std::size_t count, int slot, bool signaled);
  // The keys of memory of `op` for our own device; those of a sink, for Reads and atomics, which
  // some devices name to the peer. False: it cannot be registered, see errno.
  bool local_key(Operation& op, const Piece& piece, std::uint32_t& out);
  bool sink_key(Operation& op, const Piece& piece, std::size_t at, std::size_t length,
                std::uint32_t& out);
  // Brings up to `most` next bytes of the operation's files into its buffer. False: an error, which
  // ends the operation.
  bool load_file(Operation& op, std::size_t most);

  // Messages without data, in order: sent by flush_control() when there are credits. An answer to
  // each of the peer's messages is no more than the slots that it has been told of.
  void queue_control(Type type, std::uint8_t flags, std::uint64_t seq, std::uint32_t aux) {
    control_.push_back({type, flags, seq, aux});
  }
  void flush_control(Flow& flow);
  // Sends the credits that the peer waits for, when no other message has carried them.
  void flush_credits(Flow& flow);
  // Nothing is queued, and the last message of an end is away.
  [[nodiscard]] bool all_said() const { return control_.empty() && queue_.done(last_serial_); }

  // ---- what has been done
  [[nodiscard]] bool done(std::uint64_t serial) const { return queue_.done(serial); }
  [[nodiscard]] std::uint64_t last() const { return queue_.last(); }  // serial of the last post
  [[nodiscard]] std::uint64_t retired() const { return queue_.retired(); }
  // The completion of a post, with these bits of its serial.
  void retire(std::uint32_t serial_bits);

  // ---- receiving
  // A message has come. False: it breaks the protocol, the peer had no slot left for it.
  [[nodiscard]] bool on_message() { return credits_.on_message(mine_.slots); }
  // The message in `slot`, until slot_read().
  [[nodiscard]] std::span<const std::uint8_t> received(std::uint32_t slot,
                                                       std::size_t length) const {
    return slots_.received(slot, length);
  }
  // Its slot is free for the peer. False: a receive cannot be posted.
  [[nodiscard]] bool slot_read(std::uint32_t slot);
  // The peer's count of slots that it has given back. False: it breaks the protocol.
  [[nodiscard]] bool on_slots_returned(std::uint32_t total) { return credits_.on_returned(total); }

  [[nodiscard]] const std::shared_ptr<Device>& device() const { return cm_.device(); }

 private:
  enum class Life : std::uint8_t { kNew, kSilent, kOpen, kGone };  // only ever becomes a later one

  struct Control {
    Type type;
    std::uint8_t flags;
    std::uint64_t seq;
    std::uint32_t aux;
  };

  void advance(Life to) { life_ = std::max(life_, to); }

  Socket& s_;
  CmConnection cm_;
  Life life_ = Life::kNew;
  Hello mine_;
  Hello theirs_;
  MessageSlots slots_;
  std::size_t inline_bytes_ = 0;
  SlotCredits credits_;
  bool stalled_ = false;  // for a credit; counted once
  SendQueue queue_;
  std::deque<Control> control_;
  std::uint64_t last_serial_ = 0;  // of the last message, to be away before we disconnect
};

}  // namespace weft::exs
