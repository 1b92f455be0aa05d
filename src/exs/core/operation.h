// One operation that the application posted, from its call to its event.
#pragma once

#include <sys/exs.h>

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "exs/core/exs_event_queue.h"
#include "exs/core/exs_memory.h"

namespace weft::exs {

using Clock = std::chrono::steady_clock;
using Instant = Clock::time_point;

// A piece of memory, or of a file.
struct Piece {
  std::uint8_t* base = nullptr;
  std::size_t length = 0;
  std::shared_ptr<Region> region;  // null: not registered
  int fd = -1;                     // >= 0: `length` bytes of this file from `offset` on
  off_t offset = 0;
};

struct Operation {
  int type = 0;  // EXS_EVT_*
  int flags = 0;
  exs_ahandle_t ahandle = 0;
  std::shared_ptr<EventQueue> queue;
  std::vector<Piece> pieces;
  std::size_t total = 0;  // bytes of all pieces
  std::size_t done = 0;   // bytes that have been moved
  Instant posted{};

  // accept: where the addresses go.
  exs_acceptaddr_t* addresses = nullptr;
  int address_count = 0;

  // RDMA. `handed` bytes are under way or done; the operation is complete once the completion with
  // this serial has been polled.
  std::size_t handed = 0;
  std::uint64_t serial = 0;
  bool complete = false;                         // waits only for those before it
  bool advertised = false;                       // named to the peer
  bool fetching = false;                         // packet: Reads are under way
  bool withdrawing = false;                      // packet: kWithdraw has been sent
  bool cancelled = false;                        // ends with ECANCELED as soon as the peer lets go
  Instant let_go_by{};                           // cancelled: then it ends without the peer
  std::uint64_t moved_then = ~std::uint64_t{0};  // see is_stuck()
  bool taken_back = false;  // it has ended so; its place stays until the peer lets go
  bool has_files = false;
  bool truncated = false;  // packet: the message was longer
  std::uint64_t seq = 0;   // packet: number of the message
  int error = 0;
  std::vector<Mr> grants;  // what the peer may reach
  std::vector<Mr> locals;  // unregistered memory, for our own device
  // With pieces that are files: `files` has what the application named, `pieces` is the memory that
  // holds some of its bytes, from number `bounce_at` on.
  std::vector<Piece> files;
  std::vector<std::uint8_t> bounce;
  std::size_t bounce_at = 0;

  // One-sided.
  int remote = -1;                  // whose memory, see NamedMemory::remote()
  std::uint64_t offset = 0;         // in that
  std::uint64_t* before = nullptr;  // atomics: where the former value goes
  std::uint64_t operand = 0;
  std::uint64_t swap = 0;
  std::uint64_t value = 0;  // what the device brings back

  // It is cancelled, and the peer has not let go of it in its time.
  [[nodiscard]] bool waited_for_peer(Instant now) const {
    return cancelled && !taken_back && now >= let_go_by;
  }
  // The same, and nothing has moved for `limit` since. `moved`: a number that changes when
  // something does.
  [[nodiscard]] bool is_stuck(Instant now, std::uint64_t moved, Clock::duration limit);
  // Ready for use by another operation; keeps its memory.
  void reset();
};

using OperationList = std::list<Operation>;

// Bytes [from, from + length) of the memory pieces, one call of `visit` (piece, offset, length) for
// each that has some.  REQUIRES: the pieces have as many.
template <class Visit>
void each_piece(const std::vector<Piece>& pieces, std::size_t from, std::size_t length,
                Visit visit) {
  for (const Piece& piece : pieces) {
    if (length == 0) return;
    if (from >= piece.length) {
      from -= piece.length;
      continue;
    }
    const std::size_t here = piece.length - from < length ? piece.length - from : length;
    visit(piece, from, here);
    length -= here;
    from = 0;
  }
  assert(length == 0);
}

// The same for what an operation has in memory.
template <class Visit>
void each_piece(const Operation& op, std::size_t from, std::size_t length, Visit visit) {
  assert(from >= op.bounce_at);
  each_piece(op.pieces, from - op.bounce_at, length, visit);
}

// Copies to or from the memory pieces of an operation.
void copy_out(const Operation& op, std::size_t from, std::uint8_t* to, std::size_t length);
void copy_in(Operation& op, std::size_t at, const std::uint8_t* from, std::size_t length);

// The event for an operation that moved `length` bytes.
exs_event_t event_of(const Operation& op, int fd, int error, std::size_t length);

}  // namespace weft::exs
