// One call that sends, or one take-back, as steps (grant_words.h).
#pragma once

#include <algorithm>
#include <cassert>
#include <compare>
#include <cstdint>

#include "sockets/grant/grant_words.h"

namespace weft::sockets {

enum class GrantCall : std::uint8_t {
  kSend,
  kSendInSignal,  // a handler whose thread holds the lock: it takes the ring back and uses TCP
  kSpill,  // take back what lies unread, with the lock; result() 0, or kGrantWouldBlock: owed
};

// Used by one thread. A caller that is killed anywhere leaves words that readers can go on with.
class GrantWriter {
 public:
  static constexpr std::uint64_t kPieceBytes = 16384;

  // `grants`: the call may begin to use the ring. Else it takes the lock only if others use it.
  GrantWriter(GrantCall call, std::uint64_t bytes, bool grants)
      : call_(call),
        grants_(grants),
        at_(call == GrantCall::kSendInSignal      ? At::kRingInSignal
            : call == GrantCall::kSend && !grants ? At::kFly
                                                  : At::kLock),
        bytes_(bytes) {
    assert((call == GrantCall::kSpill) == (bytes == 0));
  }

  template <class Memory>
  [[nodiscard]] GrantNeed step(Memory& m);
  // After any need but kStep and kDone. What a word means is at GrantNeed.
  void answer(std::int64_t value);

  [[nodiscard]] std::int64_t result() const { return result_; }
  // For kSendRing.
  [[nodiscard]] std::uint64_t from() const { return from_; }
  [[nodiscard]] std::uint64_t to() const { return to_; }
  // For kSend: the octets of the call behind the first done().
  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] std::uint64_t left() const { return bytes_ - done_; }

  auto operator<=>(const GrantWriter&) const = default;

 private:
  enum class At : std::uint8_t {
    kLock,
    kOwed,
    kRing,
    kOwedInSignal,
    kRingInSignal,
    // Begin to use the ring.
    kTryWindow,
    kTryAwake,
    kSetRing,
    kTryFlight,
    kTryEmpty,
    kUnsetRing,
    kSetTake,
    kStillRing,
    // Put.
    kOpenWindow,
    kOpenAwake,
    kRoom,
    kRoomAnswer,
    kCopy,
    kAdvance,
    kPublish,
    kWasTaken,
    kRest,
    kAfterWindow,
    kAfterAwake,
    // Take back, and send what is owed.
    kBlock,
    kReadTake,
    kWriteTaken,
    kMark,
    kWriteTakenLate,
    kOwe,
    kSendRing,
    kCountRing,
    kPay,
    kClearRing,
    kAllow,
    kTakenBack,
    // TCP.
    kGoTcp,
    kFly,
    kFlyRing,
    kFlyOwed,
    kLand,
    kBegin,
    kSend,
    kCountSent,
    kLandSent,
    kUnlock,
    kDone,
  };

  template <class Memory>
  [[nodiscard]] GrantNeed begin_step(Memory& m);
  template <class Memory>
  [[nodiscard]] GrantNeed open_step(Memory& m);
  template <class Memory>
  [[nodiscard]] GrantNeed put_step(Memory& m);
  template <class Memory>
  [[nodiscard]] GrantNeed take_back_step(Memory& m);
  template <class Memory>
  [[nodiscard]] GrantNeed pay_step(Memory& m);
  template <class Memory>
  [[nodiscard]] GrantNeed tcp_step(Memory& m);
  template <class Memory>
  [[nodiscard]] bool look_for_room(Memory& m);

  GrantNeed go(At at, GrantNeed need = GrantNeed::kStep) {
    at_ = at;
    return need;
  }
  GrantNeed go_if(bool condition, At yes, At no) { return go(condition ? yes : no); }
  GrantNeed end(std::int64_t result) {
    result_ = result;
    return go(call_ == GrantCall::kSendInSignal ? At::kDone : At::kUnlock);
  }

  // No gaps between the members: the model compares octets.
  GrantCall call_;
  bool grants_;
  bool mending_ = false;  // the take-back is there only to send what is owed already
  At at_;
  std::uint32_t piece_ = 0;
  std::uint64_t bytes_;
  std::uint64_t done_ = 0;
  std::uint64_t take_ = 0;
  std::uint64_t from_ = 0;
  std::uint64_t to_ = 0;
  std::int64_t answer_ = 0;
  std::int64_t result_ = 0;
};

inline void GrantWriter::answer(std::int64_t value) { answer_ = value; }

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantWriter::step(Memory& m) {
  if (at_ <= At::kRingInSignal) return begin_step(m);
  if (at_ <= At::kStillRing) return open_step(m);
  if (at_ <= At::kAfterAwake) return put_step(m);
  if (at_ <= At::kOwe) return take_back_step(m);
  if (at_ <= At::kTakenBack) return pay_step(m);
  return tcp_step(m);
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantWriter::begin_step(Memory& m) {
  switch (at_) {
    case At::kLock: return go(At::kOwed, GrantNeed::kLock);
    case At::kOwed:
      mending_ = m.load(GrantWord::kOwedFrom) != m.load(GrantWord::kOwedTo);
      return go_if(mending_ && m.keeps(GrantRule::kOwedFirst), At::kBlock, At::kRing);
    case At::kRing: {
      mending_ = false;
      const bool ring = m.load(GrantWord::kRing) != 0;
      if (call_ == GrantCall::kSpill) return go_if(ring, At::kBlock, At::kTakenBack);
      if (ring) return go(At::kOpenWindow);
      return go_if(grants_, At::kTryWindow, At::kGoTcp);
    }
    case At::kOwedInSignal:
      mending_ = m.load(GrantWord::kOwedFrom) != m.load(GrantWord::kOwedTo);
      return go_if(mending_ && m.keeps(GrantRule::kOwedFirst), At::kBlock, At::kFly);
    default:  // kRingInSignal
      mending_ = false;
      return go_if(m.load(GrantWord::kRing) != 0, At::kBlock, At::kOwedInSignal);
  }
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantWriter::open_step(Memory& m) {
  switch (at_) {
    case At::kTryWindow:
      return go_if(m.load(GrantWord::kWindow) == kWindowOpen, At::kTryAwake, At::kGoTcp);
    case At::kTryAwake: return go_if(m.load(GrantWord::kAsleep) == 0, At::kSetRing, At::kGoTcp);
    case At::kSetRing: m.store(GrantWord::kRing, 1); return go(At::kTryFlight);
    // A writer on its way to TCP counts itself, then looks at kRing: one of the two sees the other.
    case At::kTryFlight:
      return go_if(m.load(GrantWord::kInFlight) == 0, At::kTryEmpty, At::kUnsetRing);
    case At::kTryEmpty:
      return go_if(m.load(GrantWord::kTcpRead) == m.load(GrantWord::kSent) ||
                       !m.keeps(GrantRule::kTcpIsEmptyFirst),
                   At::kSetTake, At::kUnsetRing);
    case At::kUnsetRing: m.store(GrantWord::kRing, 0); return go(At::kGoTcp);
    case At::kSetTake:
      m.store(GrantWord::kTake, m.load(GrantWord::kPosition) << 1U);
      return go(At::kStillRing);
    default: return go_if(m.load(GrantWord::kRing) != 0, At::kRoom, At::kGoTcp);
  }
}

// Whether a piece fits; piece_ says how much.
template <class Memory>
bool GrantWriter::look_for_room(Memory& m) {
  const std::uint64_t take = m.load(GrantWord::kTake);
  const std::uint64_t unread = m.load(GrantWord::kPosition) - (take >> 1U);
  // A reader that claims what was never written gets no more by the ring.
  if ((take & kTaken) != 0 || unread >= m.ring_bytes()) return false;
  piece_ = static_cast<std::uint32_t>(std::min({m.ring_bytes() - unread, left(), kPieceBytes}));
  return true;
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantWriter::put_step(Memory& m) {
  const std::uint64_t position = m.load(GrantWord::kPosition);
  switch (at_) {
    case At::kOpenWindow:
      return go_if(m.load(GrantWord::kWindow) == kWindowOpen, At::kOpenAwake, At::kBlock);
    case At::kOpenAwake: return go_if(m.load(GrantWord::kAsleep) == 0, At::kRoom, At::kBlock);
    case At::kRoom:
      if (look_for_room(m)) return go(At::kCopy);
      return go(At::kRoomAnswer, GrantNeed::kRoom);
    case At::kRoomAnswer: return go_if(answer_ != 0, At::kRoom, At::kBlock);
    case At::kCopy: m.put(position, done_, piece_); return go(At::kAdvance);
    case At::kAdvance:
      m.store(GrantWord::kPosition, position + piece_);
      done_ += piece_;
      return go(At::kPublish);
    case At::kPublish: m.store(GrantWord::kWritten, position); return go(At::kWasTaken);
    case At::kWasTaken:
      return go_if(m.load(GrantWord::kRing) == 0 && m.keeps(GrantRule::kInterruptedPutLooks),
                   At::kRest, At::kAfterWindow);
    case At::kRest:
      // A signal handler has taken back what was there before. What it has not seen goes by TCP,
      // from the caller's memory; these positions stay empty.
      assert(piece_ <= done_);
      done_ -= std::min<std::uint64_t>(position - m.load(GrantWord::kOwedTo), piece_);
      if (left() == 0) return end(static_cast<std::int64_t>(done_));
      return go(At::kGoTcp);
    case At::kAfterWindow:
      if (!m.keeps(GrantRule::kWriterLooksAgain)) return go(At::kTakenBack);
      return go_if(m.load(GrantWord::kWindow) == kWindowOpen, At::kAfterAwake, At::kBlock);
    default:
      if (m.load(GrantWord::kAsleep) != 0) return go(At::kBlock);
      if (left() == 0) return end(static_cast<std::int64_t>(done_));
      return go(At::kRoom);
  }
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantWriter::take_back_step(Memory& m) {
  switch (at_) {
    case At::kBlock:
      return go(mending_ ? At::kSendRing : At::kReadTake,
                m.keeps(GrantRule::kSignalsBlocked) ? GrantNeed::kBlockSignals : GrantNeed::kStep);
    case At::kReadTake: {
      take_ = m.load(GrantWord::kTake);
      // A handler that interrupted the one who was about to clear the mark: nothing is in the ring.
      if ((take_ & kTaken) != 0) return go(At::kClearRing);
      const std::uint64_t position = m.load(GrantWord::kPosition);
      from_ = take_ >> 1U;
      to_ = position - from_ <= m.ring_bytes() ? position : from_;  // else the reader lies
      return go_if(m.keeps(GrantRule::kTakenBeforeMark), At::kWriteTaken, At::kMark);
    }
    case At::kWriteTaken:
    case At::kWriteTakenLate:
      // No reader reads them before it has seen the mark and the end of TCP.
      m.store(GrantWord::kTakenFrom, from_);
      m.store(GrantWord::kTakenTo, to_);
      m.store(GrantWord::kTakenAt, m.load(GrantWord::kSent));
      return go_if(at_ == At::kWriteTaken, At::kMark, At::kOwe);
    case At::kMark:
      if (!m.swap(GrantWord::kTake, take_, take_ | kTaken)) return go(At::kReadTake);
      return go_if(m.keeps(GrantRule::kTakenBeforeMark), At::kOwe, At::kWriteTakenLate);
    default:  // kOwe
      m.store(GrantWord::kOwedFrom, from_);
      m.store(GrantWord::kOwedTo, to_);
      return go(At::kSendRing);
  }
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantWriter::pay_step(Memory& m) {
  switch (at_) {
    case At::kSendRing:
      from_ = m.load(GrantWord::kOwedFrom);
      to_ = m.load(GrantWord::kOwedTo);
      answer_ = 0;
      if (from_ == to_) return go(At::kClearRing);
      return go(At::kCountRing, GrantNeed::kSendRing);
    case At::kCountRing:
      answer_ = std::max<std::int64_t>(answer_, 0);
      assert(static_cast<std::uint64_t>(answer_) <= to_ - from_);
      m.add(GrantWord::kSent, static_cast<std::uint64_t>(answer_));
      return go(At::kPay);
    case At::kPay:
      m.store(GrantWord::kOwedFrom, from_ + static_cast<std::uint64_t>(answer_));
      return go(At::kClearRing);
    case At::kClearRing: m.store(GrantWord::kRing, 0); return go(At::kAllow);
    case At::kAllow:
      return go(At::kTakenBack,
                m.keeps(GrantRule::kSignalsBlocked) ? GrantNeed::kAllowSignals : GrantNeed::kStep);
    default: {
      const bool owed = m.load(GrantWord::kOwedFrom) != m.load(GrantWord::kOwedTo) &&
                        m.keeps(GrantRule::kOwedFirst);
      if (call_ == GrantCall::kSpill) return end(owed ? kGrantWouldBlock : 0);
      // The caller's octets are in the ring, or were taken back from it.
      if (left() == 0) return end(static_cast<std::int64_t>(done_));
      if (owed) return end(done_ > 0 ? static_cast<std::int64_t>(done_) : kGrantWouldBlock);
      if (call_ == GrantCall::kSend && mending_) return go(At::kRing);
      return go(At::kGoTcp);
    }
  }
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantWriter::tcp_step(Memory& m) {
  switch (at_) {
    case At::kGoTcp:
      // No lock across a kernel call that may wait.
      return go(At::kFly, call_ == GrantCall::kSend ? GrantNeed::kUnlock : GrantNeed::kStep);
    case At::kFly: m.add(GrantWord::kInFlight, 1); return go(At::kFlyRing);
    case At::kFlyRing:
      return go_if(m.load(GrantWord::kRing) != 0 && m.keeps(GrantRule::kFlightSeesRing), At::kLand,
                   At::kFlyOwed);
    case At::kFlyOwed:
      return go_if(m.load(GrantWord::kOwedFrom) != m.load(GrantWord::kOwedTo) &&
                       m.keeps(GrantRule::kOwedFirst),
                   At::kLand, At::kBegin);
    case At::kLand:
      m.add(GrantWord::kInFlight, ~std::uint64_t{0});
      return go_if(call_ == GrantCall::kSend, At::kLock, At::kRingInSignal);
    case At::kBegin: m.add(GrantWord::kTcpBegun, left()); return go(At::kSend);
    case At::kSend: return go(At::kCountSent, GrantNeed::kSend);
    case At::kCountSent:
      if (answer_ > 0) m.add(GrantWord::kSent, static_cast<std::uint64_t>(answer_));
      return go(At::kLandSent);
    case At::kLandSent: {
      m.add(GrantWord::kInFlight, ~std::uint64_t{0});
      const auto before = static_cast<std::int64_t>(done_);
      result_ = answer_ >= 0 ? before + answer_ : before > 0 ? before : answer_;
      return go(At::kDone);
    }
    case At::kUnlock: return go(At::kDone, GrantNeed::kUnlock);
    default: return GrantNeed::kDone;
  }
}

}  // namespace weft::sockets
