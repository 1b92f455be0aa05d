// One operation that the application posted, from its call to its event.
#pragma once

#include <sys/exs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "exs/core/cancellation.h"
#include "exs/core/exs_event_queue.h"
#include "exs/core/exs_memory.h"
#include "exs/core/file_buffer.h"
#include "exs/core/piece.h"

namespace weft::exs {

// The access of a one-sided operation to the peer's memory.
struct RemoteAccess {
  int memory = -1;  // whose, see NamedMemory::remote()
  std::uint64_t offset = 0;
  std::uint64_t* before = nullptr;  // atomics: where the former value goes
  std::uint64_t operand = 0;
  std::uint64_t swap = 0;
  std::uint64_t value = 0;  // what the device brings back
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

  std::span<exs_acceptaddr_t> addresses;  // accept: where they go

  // RDMA. `handed` bytes are under way or done; the operation is complete once the completion with
  // this serial has been polled.
  std::size_t handed = 0;
  std::uint64_t serial = 0;
  bool complete = false;     // waits only for those before it
  bool advertised = false;   // named to the peer
  bool fetching = false;     // packet: Reads are under way
  bool withdrawing = false;  // packet: kWithdraw has been sent
  bool now = false;  // of a call that may not block: it ends within that, with what is possible
  Cancellation cancellation;
  bool truncated = false;  // packet: the message was longer
  std::uint64_t seq = 0;   // packet: number of the message
  int error = 0;
  std::vector<Mr> grants;  // what the peer may reach
  std::vector<Mr> locals;  // unregistered memory, for our own device
  FileBuffer files;        // where pieces are files
  RemoteAccess remote;

  // Ready for use by another operation; keeps its memory.
  void reset();
};

using OperationList = std::list<Operation>;

// As for pieces, of what an operation has in memory.
template <class Visit>
void each_piece(const Operation& op, std::size_t from, std::size_t length, Visit visit) {
  assert(from >= op.files.begin());
  each_piece(op.pieces, from - op.files.begin(), length, visit);
}

// Whether an operation of this type writes to the memory that it names.
[[nodiscard]] bool fills_memory(int type);

// Copies to or from the memory pieces of an operation.
void copy_out(const Operation& op, std::size_t from, std::uint8_t* to, std::size_t length);
void copy_in(Operation& op, std::size_t at, const std::uint8_t* from, std::size_t length);

// The event for an operation that moved `length` bytes.
exs_event_t event_of(const Operation& op, int fd, int error, std::size_t length);

}  // namespace weft::exs
