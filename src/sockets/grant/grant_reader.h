// One call that receives, as steps (grant_words.h).
#pragma once

#include <algorithm>
#include <cassert>
#include <compare>
#include <cstdint>

#include "sockets/grant/grant_words.h"

namespace weft::sockets {

// Used by one thread. A caller that is stopped anywhere holds nothing that the writer waits for.
class GrantReader {
 public:
  struct Options {
    bool waits = true;   // the call may wait
    bool grants = true;  // while it waits, the ring may be used
    bool keeps = false;  // the window stays open behind the call
    bool peeks = false;  // MSG_PEEK
    // Asks the kernel before it makes ready to sleep, too. REQUIRES: so, unless the call waits
    bool looks = true;
    auto operator<=>(const Options&) const = default;
  };
  // At most `bytes` octets, not 0.
  GrantReader(std::uint64_t bytes, Options options) : options_(options), bytes_(bytes) {
    assert(bytes != 0 && (options.looks || options.waits));
  }

  template <class Memory>
  [[nodiscard]] GrantNeed step(Memory& m);
  // After any need but kStep and kDone. Of kReceive: 0 at the end.
  void answer(std::int64_t value) { answer_ = value; }

  // Octets, 0 at the end, kGrantWouldBlock, kGrantError.
  [[nodiscard]] std::int64_t result() const { return result_; }
  // It had to wait, and offered the ring.
  [[nodiscard]] bool granted() const { return granted_; }
  // result() octets came by the ring, into the memory's target.
  [[nodiscard]] bool by_ring() const { return by_ring_ != 0; }

  auto operator<=>(const GrantReader&) const = default;

 private:
  enum class At : std::uint8_t {
    // The ring.
    kTake,
    kWritten,
    kCopy,
    kClaim,
    kForged,
    // TCP.
    kEnter,
    kReceive,
    kAnswer,
    kCount,
    kLeave,
    kCountLate,
    kAfter,
    // Going to sleep, and waking.
    kGrant,
    kSpin,
    kSleep,
    kWake,
    kClose,
    // The end of TCP.
    kEndReaders,
    kEndAnswer,
    kEndCounts,
    kEndSetCount,
    kEndTaken,
    kEndCopy,
    kEndClaim,
    kDone,
  };

  template <class Memory>
  [[nodiscard]] GrantNeed ring_step(Memory& m);
  template <class Memory>
  [[nodiscard]] GrantNeed kernel_step(Memory& m);
  template <class Memory>
  [[nodiscard]] GrantNeed sleep_step(Memory& m);
  template <class Memory>
  [[nodiscard]] GrantNeed end_step(Memory& m);

  GrantNeed go(At at, GrantNeed need = GrantNeed::kStep) {
    at_ = at;
    return need;
  }
  GrantNeed go_if(bool condition, At yes, At no) { return go(condition ? yes : no); }
  // Nothing is in the ring, and TCP has not ended.
  GrantNeed go_to_tcp() { return go_if(asleep_ || options_.looks, At::kEnter, At::kGrant); }
  GrantNeed end(std::int64_t result) {
    result_ = result;
    return go(asleep_ ? At::kWake : granted_ ? At::kClose : At::kDone);
  }

  // No gaps between the members: the model compares octets.
  Options options_;
  At at_ = At::kTake;
  bool granted_ = false;
  bool asleep_ = false;  // this call is counted in kAsleep
  bool ended_ = false;   // TCP has said that there is no more, or an error
  std::uint8_t by_ring_ = 0;
  std::uint8_t unused_[2] = {};
  std::uint32_t found_ = 0;
  std::uint64_t bytes_;
  std::uint64_t take_ = 0;
  std::uint64_t position_ = 0;
  std::int64_t answer_ = 0;
  std::int64_t result_ = 0;
};

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantReader::step(Memory& m) {
  if (at_ <= At::kForged) return ring_step(m);
  if (at_ <= At::kAfter) return kernel_step(m);
  if (at_ <= At::kClose) return sleep_step(m);
  return end_step(m);
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantReader::ring_step(Memory& m) {
  switch (at_) {
    case At::kTake:
      take_ = m.load(GrantWord::kTake);
      if ((take_ & kTaken) == 0) return go(At::kWritten);
      if (ended_ && m.keeps(GrantRule::kEndFindsTaken)) return go(At::kEndReaders);
      return ended_ ? end(result_) : go_to_tcp();
    case At::kWritten: {
      const std::uint64_t unread = m.load(GrantWord::kWritten) - (take_ >> 1U);
      if (unread > m.ring_bytes()) return go(At::kForged);
      if (unread == 0) return ended_ ? end(result_) : go_to_tcp();
      found_ = static_cast<std::uint32_t>(std::min(unread, bytes_));
      return go(At::kCopy);
    }
    case At::kCopy: m.get(take_ >> 1U, 0, found_); return go(At::kClaim);
    case At::kClaim: {
      // The copy counts only if the writer has not taken the octets back meanwhile.
      const std::uint64_t next = take_ + 2 * std::uint64_t{found_};
      if (options_.peeks) {
        if (m.load(GrantWord::kTake) != take_) return go(At::kTake);
      } else if (!m.keeps(GrantRule::kClaimCompares)) {
        m.store(GrantWord::kTake, next);
      } else if (!m.swap(GrantWord::kTake, take_, next)) {
        return go(At::kTake);
      }
      by_ring_ = 1;
      return end(static_cast<std::int64_t>(found_));
    }
    default:  // kForged: or the two words were read on both sides of a take-back
      if (m.load(GrantWord::kTake) != take_) return go(At::kTake);
      m.store(GrantWord::kWindow, kWindowNever);
      options_.grants = false;
      return ended_ ? end(result_) : go_to_tcp();
  }
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantReader::kernel_step(Memory& m) {
  switch (at_) {
    case At::kEnter: m.add(GrantWord::kInKernel, 1); return go(At::kReceive);
    case At::kReceive:
      return go(At::kAnswer, asleep_ ? GrantNeed::kReceive : GrantNeed::kReceiveNow);
    case At::kAnswer:
      return go_if(answer_ > 0 && !options_.peeks && m.keeps(GrantRule::kCountedInside), At::kCount,
                   At::kLeave);
    case At::kCount:
      m.add(GrantWord::kTcpRead, static_cast<std::uint64_t>(answer_));
      return go(At::kLeave);
    case At::kLeave:
      m.add(GrantWord::kInKernel, ~std::uint64_t{0});
      return go_if(answer_ > 0 && !options_.peeks && !m.keeps(GrantRule::kCountedInside),
                   At::kCountLate, At::kAfter);
    case At::kCountLate:
      m.add(GrantWord::kTcpRead, static_cast<std::uint64_t>(answer_));
      return go(At::kAfter);
    default:
      if (answer_ > 0) return end(answer_);
      if (answer_ == kGrantWouldBlock) {
        // Told in a call that waits: its time limit has come.
        if (!options_.waits || asleep_) return end(answer_);
        return go(At::kGrant);
      }
      if (!m.keeps(GrantRule::kEndLooksAgain)) return end(answer_);
      result_ = answer_;
      ended_ = true;
      return go(At::kTake);
  }
}

template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantReader::sleep_step(Memory& m) {
  switch (at_) {
    case At::kGrant:
      if (!options_.grants) return go(At::kSleep);
      // Never is for good, whoever says it meanwhile.
      if (!granted_) static_cast<void>(m.swap(GrantWord::kWindow, kWindowClosed, kWindowOpen));
      granted_ = true;
      return go(At::kSpin, GrantNeed::kSpin);
    case At::kSpin:
      if (answer_ != 0) return go(At::kTake);
      return go(At::kSleep);
    case At::kSleep:
      // The writer puts octets in, then looks at this word. So one of the two sees the other.
      assert(!asleep_ && options_.waits);
      m.add(GrantWord::kAsleep, 1);
      asleep_ = true;
      return go_if(m.keeps(GrantRule::kReaderLooksAgain), At::kTake, At::kEnter);
    case At::kWake:
      assert(asleep_);
      if (m.keeps(GrantRule::kSleepersAreCounted)) {
        m.add(GrantWord::kAsleep, ~std::uint64_t{0});
      } else {
        m.store(GrantWord::kAsleep, 0);
      }
      return go_if(granted_, At::kClose, At::kDone);
    default:
      if (!options_.keeps) {
        static_cast<void>(m.swap(GrantWord::kWindow, kWindowOpen, kWindowClosed));
      }
      return go(At::kDone);
  }
}

// TCP has ended, and the ring is taken back. Its writer may have died before it had sent all.
template <class Memory>
[[gnu::always_inline]] inline GrantNeed GrantReader::end_step(Memory& m) {
  switch (at_) {
    case At::kEndReaders:
      if (m.load(GrantWord::kInKernel) == 0) return go(At::kEndCounts, GrantNeed::kCountReceived);
      answer_ = 0;
      return go(At::kEndAnswer, GrantNeed::kOtherReader);
    case At::kEndAnswer: return answer_ != 0 ? go(At::kTake) : end(result_);
    case At::kEndCounts:
      position_ = m.load(GrantWord::kTcpRead);
      return go_if(
          position_ < static_cast<std::uint64_t>(answer_) && m.keeps(GrantRule::kRawReadsCount),
          At::kEndSetCount, At::kEndTaken);
    case At::kEndSetCount:
      // Calls that nobody saw have read the rest.
      static_cast<void>(
          m.swap(GrantWord::kTcpRead, position_, static_cast<std::uint64_t>(answer_)));
      return go(At::kTake);
    case At::kEndTaken: {
      const std::uint64_t length = m.load(GrantWord::kTakenTo) - m.load(GrantWord::kTakenFrom);
      const std::uint64_t sent = position_ - m.load(GrantWord::kTakenAt);
      if (length > m.ring_bytes() || sent >= length) return end(result_);
      found_ = static_cast<std::uint32_t>(std::min(length - sent, bytes_));
      return go(At::kEndCopy);
    }
    case At::kEndCopy:
      m.get(m.load(GrantWord::kTakenFrom) + position_ - m.load(GrantWord::kTakenAt), 0, found_);
      return go(At::kEndClaim);
    case At::kEndClaim:
      if (!options_.peeks && !m.swap(GrantWord::kTcpRead, position_, position_ + found_)) {
        return go(At::kTake);
      }
      by_ring_ = 1;
      return end(static_cast<std::int64_t>(found_));
    default: return GrantNeed::kDone;
  }
}

}  // namespace weft::sockets
