// A ring beside a TCP connection, which the reader grants to the writer: the words that both share.
//
// The program's descriptor is the TCP socket. Octets go by TCP, or, while the reader says that it
// is looking, through a ring of shared memory. The writer can take back what lies in the ring
// unread, and send it by TCP, at any time and without the reader's help: a reader that nobody sees
// (a raw system call, io_uring) then finds it where the kernel has it.
//
// Each direction has words, a ring, and these machines:
//   GrantWriter   one call that sends, or one take-back      grant_writer.h
//   GrantReader   one call that receives                     grant_reader.h
// A machine makes no system call. Each step() touches at most one word that another thread may
// change, or asks its caller for something (Need). So tests/model/socket_grant_model_test.cc runs
// these very machines through every order of their steps, with a kernel that is a list.
//
// Invariant: while octets are readable in the ring, no octet of a writer that is seen is in TCP in
// that direction.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace weft::sockets {

// Positions count the octets that ever were in the ring. They are never used again.
enum class GrantWord : std::uint8_t {
  // By the writer, for the reader.
  kWritten,    // position behind the last octet in the ring
  kTcpBegun,   // octets given to TCP, with those of a send that is about to begin
  kTakenFrom,  // the last take-back: positions from here
  kTakenTo,    // ... to here
  kTakenAt,    // ... follow this count of octets in TCP
  // By both: position of the next octet to read, times two; bit 0: the ring is taken back.
  kTake,
  // By the reader, for the writer.
  kWindow,   // a GrantWindow
  kAsleep,   // readers that sleep in the kernel or are about to
  kTcpRead,  // octets read from TCP by calls that are seen
  // The reader's processes share these, and nobody else.
  kInKernel,  // readers that may hold octets of TCP which kTcpRead has not counted
  // The writer's processes share these, with the lock held, but for kSent and kInFlight.
  kPosition,  // as kWritten, which the other side could overwrite
  kSent,      // octets that TCP has taken
  kRing,      // 1: writers use the ring
  kInFlight,  // writers that use TCP
  kOwedFrom,  // positions that were taken back and are not in TCP yet
  kOwedTo,
  kCount,
};

enum GrantWindow : std::uint64_t { kWindowClosed = 0, kWindowOpen = 1, kWindowNever = 2 };

inline constexpr std::uint64_t kTaken = 1;

// Step() asks its caller for one of these. The caller does it, and calls answer().
enum class GrantNeed : std::uint8_t {
  kStep,           // nothing: call step() again
  kLock,           // take the writers' lock
  kUnlock,         // release it
  kBlockSignals,   // of this thread, so that no handler finds octets that are sent and not counted
  kAllowSignals,   // as they were
  kRoom,           // the ring is full. answer(1): look again, 0: TCP
  kSendRing,       // send positions [from, to) of the ring, without waiting; answer(sent)
  kSend,           // send `left` octets of the call as it asked to; answer(result)
  kReceiveNow,     // receive from the socket, without waiting; answer(result)
  kReceive,        // receive from the socket, waiting
  kSpin,           // nothing has come. answer(1): look again, 0: sleep
  kCountReceived,  // answer(octets that left TCP on this side, by whatever call)
  kOtherReader,    // another reader holds octets: look again in a while; answer(0): it never ends
  kDone,           // result() is that of the call
};

// Results below zero.
inline constexpr std::int64_t kGrantWouldBlock = -1;
inline constexpr std::int64_t kGrantError = -2;  // as the socket's last answer, see the caller

// Rules of the protocol. A model of the protocol breaks one at a time, to show that it would
// notice.
enum class GrantRule : std::uint8_t {
  kReaderLooksAgain,     // after it has said that it sleeps
  kWriterLooksAgain,     // whether the window is still open, after the octets are in
  kSleepersAreCounted,   // each by itself; else the first that wakes speaks for all
  kTcpIsEmptyFirst,      // before the ring is used
  kFlightSeesRing,       // who goes by TCP says so, and looks at kRing again
  kTakenBeforeMark,      // the words of a take-back are written before its mark
  kClaimCompares,        // a reader's claim fails after a take-back
  kEndLooksAgain,        // into the ring, after the end of TCP
  kEndFindsTaken,        // what was taken back and never sent
  kCountedInside,        // octets of TCP are counted before the reader leaves kInKernel
  kRawReadsCount,        // at the end the kernel's count decides
  kOwedFirst,            // nobody sends before what is owed
  kInterruptedPutLooks,  // whether a signal handler has taken the ring back
  kSignalsBlocked,       // during a take-back
};

// The words as they lie in memory: three groups, so that the sides do not share cache lines.
struct GrantShared {
  using Word = std::atomic<std::uint64_t>;
  alignas(128) std::array<Word, 5> by_writer;
  alignas(128) std::array<Word, 1> by_both;
  alignas(128) std::array<Word, 3> by_reader;
};
struct GrantOwn {
  using Word = std::atomic<std::uint64_t>;
  alignas(128) std::array<Word, 1> reader;
  alignas(128) std::array<Word, 6> writer;
};

// A side's view of a direction: of the peer's memory it trusts nothing.
class GrantMemory {
 public:
  // `ring_bytes`: a power of two.  All of it outlives this.
  GrantMemory(GrantShared& shared, GrantOwn& own, std::uint8_t* ring, std::uint64_t ring_bytes)
      : shared_(shared), own_(own), ring_(ring), ring_bytes_(ring_bytes) {
    assert(ring_bytes != 0 && (ring_bytes & (ring_bytes - 1)) == 0);
  }

  // No ring to begin with.
  static void reset(GrantShared& shared) { shared.by_both[0] = kTaken; }

  // The octets of one call: read by put(), written by get().
  void set_source(const std::uint8_t* source) { source_ = source; }
  void set_target(std::uint8_t* target) { target_ = target; }

  [[nodiscard]] std::uint64_t ring_bytes() const { return ring_bytes_; }
  [[nodiscard]] std::uint64_t load(GrantWord w) const { return word(w).load(); }
  // No load of this thread that follows comes before it.
  void store(GrantWord w, std::uint64_t value) { word(w).store(value); }
  void add(GrantWord w, std::uint64_t value) { word(w).fetch_add(value); }
  [[nodiscard]] bool swap(GrantWord w, std::uint64_t expected, std::uint64_t value) {
    return word(w).compare_exchange_strong(expected, value);
  }
  void put(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes);
  void get(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes) const;
  [[nodiscard]] static constexpr bool keeps(GrantRule) { return true; }

 private:
  [[nodiscard]] GrantShared::Word& word(GrantWord w) const;

  GrantShared& shared_;
  GrantOwn& own_;
  std::uint8_t* ring_;
  std::uint64_t ring_bytes_;
  const std::uint8_t* source_ = nullptr;
  std::uint8_t* target_ = nullptr;
};

// Here, so that the index is a constant wherever the word is one.
inline GrantShared::Word& GrantMemory::word(GrantWord w) const {
  assert(w < GrantWord::kCount);
  const auto at = static_cast<std::size_t>(w);
  constexpr auto kBoth = static_cast<std::size_t>(GrantWord::kTake);
  constexpr auto kReader = static_cast<std::size_t>(GrantWord::kWindow);
  constexpr auto kOwnReader = static_cast<std::size_t>(GrantWord::kInKernel);
  constexpr auto kOwnWriter = static_cast<std::size_t>(GrantWord::kPosition);
  if (at < kBoth) return shared_.by_writer.at(at);
  if (at < kReader) return shared_.by_both[0];
  if (at < kOwnReader) return shared_.by_reader.at(at - kReader);
  if (at < kOwnWriter) return own_.reader[0];
  return own_.writer.at(at - kOwnWriter);
}

}  // namespace weft::sockets
