// The receiving half of MPA framing: finds FPDUs in a stream, checks markers and CRCs.
//
// A pull parser. The owner asks want() where bytes should go, reports filled(), then takes items
// from next() until it gives kNone. Nothing of an FPDU is shown before its CRC is checked.
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/profile.h"
#include "base/seq.h"
#include "base/slice.h"
#include "proto/marked.h"
#include "proto/violation.h"
#include "wire/fpdu.h"

namespace weft::proto {

// Where an incomplete FPDU waits between reads: the owner's pool.
class CarryPool {
 public:
  virtual ~CarryPool() = default;
  // `size` bytes, at most kCarryBytesMax; null: no memory.
  virtual std::uint8_t* acquire_carry(std::size_t size) = 0;
  virtual void release_carry(std::uint8_t* carry, std::size_t size) = 0;
};

// Largest FPDU on the wire, with markers.
inline constexpr std::size_t kCarryBytesMax = profile::kCarryBytes;
static_assert(profile::kSmall ||
              kCarryBytesMax >= fpdu_size_marked(0, kMaxUlpduAccepted) + kMarkerSize);

// The least size of a scratch buffer: a carried FPDU and something to read.
inline constexpr std::size_t kScratchBytesMin = kCarryBytesMax + (4U << 10U);

struct Inbound {
  enum class Kind : std::uint8_t {
    kNone,       // read more
    kUlpdu,      // `ulpdu` is a whole one; its DDP header lies before any marker
    kDirect,     // `ulpdu` is the first part of one of `ulpdu_len` octets, DDP header and more:
                 // answer with place_directly() or keep()
    kDirectEnd,  // the ULPDU placed directly is complete
    kViolation,
  };
  Kind kind = Kind::kNone;
  Violation violation{Violation::kNone};
  std::uint32_t ulpdu_len{0};
  MarkedOctets ulpdu{};  // valid until the next call of any member
};

class FpduReader {
 public:
  FpduReader(bool crc, bool markers, bool check_markers, CarryPool& pool);
  ~FpduReader();
  FpduReader(const FpduReader&) = delete;
  FpduReader& operator=(const FpduReader&) = delete;

  // One slice of `scratch` (at least kScratchBytesMin) in which the next bytes belong; what was
  // left over from before is put in front of it. Or, if an FPDU comes in tiny pieces, a slice of
  // the carry in which it waits. REQUIRES: direct_remaining() == 0.
  [[nodiscard]] Slice want(std::span<std::uint8_t> scratch);
  // While a payload is placed directly: the slot for what follows the payload.
  [[nodiscard]] Slice want_tail();

  // From the next FPDU on.  REQUIRES: nothing_behind().
  void change(bool crc, bool markers) noexcept {
    crc_ = crc;
    markers_ = markers;
  }
  // No octet has been read behind the FPDU that next() gave last, which was no direct one.
  [[nodiscard]] bool nothing_behind() const noexcept { return cur_ == end_ && !in_direct_; }

  // Bytes that the transport has in memory of its own, to be parsed where they lie (and changed
  // there); then park(). From now on there is no scratch: an FPDU that is left over in part waits
  // where it is to be completed, and want() gives that place. REQUIRES: at_border().
  void feed(std::span<std::uint8_t> bytes);

  // The next FPDU is framed by its length alone, and nothing of it has been read.
  [[nodiscard]] bool takes_bare() const noexcept {
    return !crc_ && !markers_ && at_border() && !keep_;
  }
  // The owner has read such an FPDU of so many octets, a small one, somewhere else.
  void note_bare(std::size_t size) noexcept {
    offset_ += size;
    if (large_lately_ != 0) --large_lately_;
  }

  // Stream offset behind the FPDU that next() gave last or the owner has read; of one that is
  // placed directly, behind what has come of it.
  [[nodiscard]] StreamOffset offset() const noexcept { return offset_; }

  // No byte of an FPDU waits to be put together: a read that brought nothing changes nothing.
  [[nodiscard]] bool holds_nothing() const noexcept {
    return carry_ == nullptr && cur_ == end_ && !in_direct_;
  }

  // `n` bytes came, in the order of the slices given. Returns how many of them are payload placed
  // directly.
  std::size_t filled(std::size_t n);
  [[nodiscard]] Inbound next();

  // Answers to kDirect: the owner has placed the payload in `bytes` and takes the rest itself; or
  // wants the ULPDU whole.
  void place_directly();
  void keep();

  // The octets of the last read that next() has not given yet, for the owner to keep: of kDirect
  // the whole FPDU is among them. They are valid until drop_rest(), which must follow.
  [[nodiscard]] std::span<const std::uint8_t> rest() const noexcept { return {cur_, end_}; }
  void drop_rest();
  // Octets that rest() gave: they are parsed where they lie, then park() copies what is left.
  // REQUIRES: at_border().
  void resume(std::span<std::uint8_t> bytes);

  // Payload octets of a direct ULPDU still to come.
  [[nodiscard]] std::size_t direct_remaining() const noexcept { return direct_remaining_; }

  // No partial FPDU is held: the stream stands on an FPDU border.
  [[nodiscard]] bool at_border() const noexcept;

  // Puts what is left of the last read aside; the scratch is free again. False: no memory.
  // Call it when next() has given kNone.
  [[nodiscard]] bool park();
  void drop_all();  // forgets everything held

 private:
  [[nodiscard]] Inbound parse();
  [[nodiscard]] Inbound whole(std::uint32_t ulpdu_len, std::size_t raw_size);
  [[nodiscard]] std::size_t raw_size_here() const noexcept;
  [[nodiscard]] std::size_t carry_capacity_for(std::size_t left) const noexcept;
  void release_carry();
  [[nodiscard]] bool markers_agree(const std::uint8_t* raw, std::size_t raw_size,
                                   StreamOffset at) const noexcept;
  [[nodiscard]] MarkedOctets ulpdu_in(std::uint8_t* raw, std::size_t raw_size,
                                      std::uint32_t ulpdu_len, StreamOffset at) const noexcept;

  // A payload of at least this size is worth a system call of its own.
  static constexpr std::uint32_t kDirectMin = 8U << 10U;
  // Below this a left-over part is copied, however small the pieces are in which more comes.
  static constexpr std::size_t kInPlaceMin = 1024;
  // If payloads are placed directly and large FPDUs came lately, a read stages at most this much.
  // So the first read of a message after a pause does not copy its payload.
  static constexpr std::size_t kStagedMax = 4U << 10U;
  static constexpr std::uint8_t kLately = 8;  // FPDUs
  static constexpr std::size_t kTailBytes = kMaxPad + kCrcSize + 2 + kMaxDdpHeaderSize;

  bool crc_;
  bool markers_;
  const bool check_markers_;
  CarryPool& pool_;

  std::uint8_t* cur_ = nullptr;  // unparsed bytes: in the scratch, or in tail_
  std::uint8_t* end_ = nullptr;
  std::uint8_t* fill_ = nullptr;  // where filled() bytes begin; null while the tail slot is out
  StreamOffset offset_ = 0;       // stream offset of cur_

  std::uint8_t* carry_ = nullptr;  // left over from the last read
  std::size_t carry_size_ = 0;
  std::size_t carry_capacity_ = 0;  // more than was left over: the FPDU is completed in place
  std::size_t last_fill_ = 0;       // bytes of the last read into a buffer

  std::size_t direct_remaining_ = 0;
  std::size_t trailer_remaining_ = 0;  // pad and CRC behind a direct payload
  bool in_direct_ = false;
  std::uint8_t large_lately_ = 0;  // counts down from kLately with each small FPDU
  bool fed_ = false;               // there is no scratch
  bool keep_ = false;              // the FPDU at cur_ is not to be offered directly
  std::uint8_t tail_[profile::kPlacesDirectly ? kTailBytes : 1];
};

}  // namespace weft::proto
