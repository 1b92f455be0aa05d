// Work requests of little payload, which fit one FPDU, and the FPDUs that bring them: the short
// way.
//
// Such a request goes from its WQE into a frame without being opened as a message. The frame is in
// a batch; or, on a transport that shares memory with its peer, right where it is sent from, and is
// read where it lies. A view of a stream, with its threads: made for one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/stag_table.h"
#include "proto/work.h"
#include "wire/rdmap.h"

namespace weft::proto {

class Stream;

class SmallMessages {
 public:
  explicit SmallMessages(Stream& stream) noexcept : s_(stream) {}

  // --- into the batch ---

  // A Send or an RDMA Write of little payload in one piece.
  [[nodiscard]] bool is_small(const SendWqe& wqe) const;
  // The next request, which is such a one. False: no room, the memory is not valid, or it is by
  // method; the long way then says so.
  [[nodiscard]] bool emit(SendWqe& wqe);

  // --- where they are sent from ---

  // Lays the FPDUs of requests into memory of the transport, if they are next, their frames have
  // neither CRC nor markers, and `room` has place for them. Returns how many octets; if any, laid()
  // follows with all of them, when the transport has sent them, before anything else is asked of
  // the stream. The rest, if any, comes by gather(). REQUIRES: the transport copies.
  [[nodiscard]] std::size_t lay(std::span<std::uint8_t> room);
  void laid(std::size_t n);

  // --- where they lie ---

  // Octets that lie in memory of the peer, too, which may change them at any moment, in place of
  // want() and arrived(). Takes the FPDUs in front that are small, whole, and without CRC and
  // markers; returns how many octets these have. The others, if any, come by want(). If the path
  // has changed, the memory may be gone when this returns.
  [[nodiscard]] std::size_t take(std::span<const std::uint8_t> seen);

 private:
  [[nodiscard]] bool may_lay() const noexcept;
  [[nodiscard]] std::size_t lay_one(SendWqe& wqe, std::span<std::uint8_t> room, Pin& pin);
  struct Header {
    Opcode op;
    std::uint8_t bits;  // that ask for an Ack
  };
  // Header and payload. `from`: the payload.
  [[nodiscard]] Header store_ulpdu(const SendWqe& wqe, const std::uint8_t* from, std::uint8_t* at);
  void built(SendWqe& wqe, const Header& header);
  void tell_built(const SendWqe& wqe);

  Stream& s_;
};

}  // namespace weft::proto
