// The buffers of a connection's messages: as many to receive into as the peer may send at a time,
// then as many to send from.
//
// With the mutex of the socket, as all of RdmaSocket. The device reads and writes them until
// release() has returned.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exs/core/exs_memory.h"
#include "exs/rdma/slot_credits.h"

namespace weft::exs {

class MessageSlots {
 public:
  // The bit of a wr_id's lower half that says: a receive. The others name its slot.
  static constexpr std::uint32_t kReceiveBit = 1U << 31U;

  // Memory for `count` slots each way, of messages with up to `immediate_bytes` of payload. 0 or an
  // errno.
  int create(const std::shared_ptr<Device>& device, std::uint16_t count,
             std::size_t immediate_bytes);
  void release() { mr_.reset(); }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }  // of a slot
  [[nodiscard]] std::uint32_t lkey() const { return mr_.lkey(); }

  // To send from.
  [[nodiscard]] bool any_free() const { return !free_.empty(); }
  int take();  // REQUIRES any_free()
  void give_back(int slot) { free_.push_back(slot); }
  [[nodiscard]] std::uint8_t* to_send(int slot);

  // To receive into. Posts all of them, for connection `number`, before the peer is told how many
  // they are. False: refused.
  bool post_all(ibv_qp* qp, std::uint32_t number);
  // The message that has come in `slot`, until the slot is posted again.
  [[nodiscard]] std::span<const std::uint8_t> received(std::uint32_t slot,
                                                       std::size_t length) const;
  // The message has been read. True: it is time for post_read(), for several together since a post
  // costs more than a slot.
  bool read(std::uint32_t slot);
  // Posts the slots that have been read, for the peer to use again. False: refused.
  bool post_read(ibv_qp* qp, std::uint32_t number, SlotCredits& credits);

 private:
  Pages memory_;
  Mr mr_;
  std::uint32_t count_ = 0;  // each way
  std::size_t bytes_ = 0;
  std::vector<int> free_;
  std::vector<std::uint32_t> read_;
  std::size_t post_every_ = 1;
};

}  // namespace weft::exs
