// The files of `weft run --timeline`: records of 64 octets, in the order of octets of the
// machine. A file has the records of one thread, or of several, one after the other. A page before
// them says whose they are.
//
// Times are those of CLOCK_MONOTONIC, in nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace weft::timeline {

enum class Kind : std::uint8_t {
  kNone,
  kRequest,     // of a send queue
  kReceive,     // a message of the peer that takes a receive, and the receive
  kMessage,     // one that takes none: an RDMA Write, or the question of a Read or atomic
  kCall,        // a call of the program: Call
  kConnection,  // a stream: Connection
};

// SendOp of <weft/types.h>.
enum class Op : std::uint8_t {
  kSend,
  kSendInvalidate,
  kWrite,
  kWriteImm,
  kRead,
  kFetchAdd,
  kCmpSwap,
  kImmediate,
  kLocalInvalidate,
  kBindWindow,
  kUnknown = 255,
};
[[nodiscard]] std::string_view name_of(Op op);

// The times of a record, but for its first. A request was posted at `start`.
enum class At : std::uint8_t {
  // kRequest
  kPostEnd = 0,  // the call that posted it returned
  kTaken = 1,    // the engine began it
  kFirstOut = 2,
  kLastOut = 3,
  kCompleted = 4,
  kPolled = 5,
  // kReceive, kMessage
  kReceivePosted = 0,
  kArrived = 1,    // its first octets were looked at
  kLateUntil = 2,  // it has waited for its receive until then
  kPlaced = 3,
  kReceived = 4,
  // kPolled
};
inline constexpr std::size_t kTimes = 6;
inline constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

struct Record {
  Kind kind{};
  Op op = Op::kUnknown;
  std::uint8_t status = 0;       // ibv_wc_status
  std::uint8_t shift = 0;        // of `deltas`: they count 2^shift ns
  std::uint32_t connection = 0;  // Connection::number; 0: none
  std::uint64_t start = 0;
  std::uint64_t end_offset = 0;  // of the stream, behind its last octet; 0: unknown
  std::uint32_t length = 0;
  std::uint32_t qp = 0;
  std::array<std::uint32_t, kTimes> deltas{};
  std::uint64_t wr_id = 0;

  static constexpr std::uint32_t kAbsent = std::numeric_limits<std::uint32_t>::max();

  // kNever: unknown.
  [[nodiscard]] std::uint64_t at(At what) const {
    const std::uint32_t delta = deltas[static_cast<std::size_t>(what)];
    return delta == kAbsent ? kNever : start + (std::uint64_t{delta} << shift);
  }
  // `start` becomes the first of the times and of `first` (kNever: this is of a message). At least
  // one is known. A receive may have been posted long before its message came: then it counts as
  // posted as long before as leaves the other times exact.
  void set_times(std::uint64_t first, std::array<std::uint64_t, kTimes> times) {
    constexpr std::uint64_t kMost = (std::uint64_t{1} << 31U) - 1;
    std::uint64_t& receive = times[static_cast<std::size_t>(At::kReceivePosted)];
    const bool is_message = first == kNever;
    start = std::min(first, *std::min_element(times.begin() + (is_message ? 1 : 0), times.end()));
    if (start == kNever) start = receive;
    std::uint64_t last = start;
    for (const std::uint64_t time : times)
      if (time != kNever) last = std::max(last, time);
    const auto bits = static_cast<int>(std::bit_width(last - start));
    shift = static_cast<std::uint8_t>(bits > 31 ? bits - 31 : 0);
    if (is_message && receive < start) {
      receive = std::max(receive, last - std::min(last, kMost << shift));
      start = std::min(start, receive);
    }
    for (std::size_t i = 0; i < kTimes; ++i) {
      deltas[i] =
          times[i] == kNever ? kAbsent : static_cast<std::uint32_t>((times[i] - start) >> shift);
    }
  }
};

struct Call {
  Kind kind = Kind::kCall;
  std::array<std::uint8_t, 3> unused{};
  std::uint32_t thread = 0;  // 0: the one that has begun the file
  std::uint64_t start = 0;
  std::uint64_t duration = 0;
  std::array<char, 40> name{};  // ended by a null
};

struct Connection {
  Kind kind = Kind::kConnection;
  std::array<std::uint8_t, 3> unused{};
  std::uint32_t number = 0;  // from 1, of this process
  std::uint64_t start = 0;
  // IPv6, or IPv4 as IPv6 has it.
  std::array<std::uint8_t, 16> local{}, peer{};
  std::uint16_t local_port = 0, peer_port = 0;
  std::uint32_t qp = 0;
  std::array<std::uint8_t, 8> unused_too{};
};
using Octets64 = std::array<std::uint8_t, 64>;
static_assert(sizeof(Record) == 64 && sizeof(Call) == 64 && sizeof(Connection) == 64);

struct FileHeader {
  static constexpr std::array<char, 8> kMagic{'W', 'E', 'F', 'T', 'T', 'I', 'M', 'E'};
  static constexpr std::uint32_t kVersion = 2;

  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t process = 0;
  std::uint32_t thread = 0;  // that has begun the file
  std::uint32_t unused = 0;
  // Records so far; of more than `capacity` the last ones are there, each at its number modulo
  // capacity.
  std::uint64_t written = 0;
  std::uint64_t capacity = 0;
  std::uint64_t began = 0;       // CLOCK_MONOTONIC
  std::uint64_t began_real = 0;  // CLOCK_REALTIME at the same moment
  // CLOCK_MONOTONIC. Processes of two containers may have the same number, and so has a program
  // that a process starts in place of itself.
  std::uint64_t process_began = 0;
  // Texts end with a null.
  std::array<char, 40> boot_id{};  // two files with the same one have one clock
  std::array<char, 64> host{};
  std::array<char, 16> rank{};
  std::array<char, 256> program{};
  std::uint64_t lost = 0;  // records of the process that got no file; in one of its files
};
inline constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(FileHeader) <= kHeaderBytes);

}  // namespace weft::timeline
