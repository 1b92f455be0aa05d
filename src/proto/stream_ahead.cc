// Placement before its turn: RFC 5041 section 5.4 lets it happen, RFC 5044 section 5.1 says how
// FPDUs are found in octets whose predecessors are missing.
#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "proto/stream.h"
#include "wire/fpdu.h"

namespace weft::proto {

namespace {

// One whole FPDU in a stream with markers, somewhere in a run of octets.
class MarkedFpdu {
 public:
  // Looks at `offset` of the stream, where `bytes` begins and an FPDU (with its leading marker, if
  // one is due) is said to begin.
  MarkedFpdu(StreamOffset offset, std::span<const std::uint8_t> bytes) : at_(offset) {
    lead_ = offset % kMarkerInterval == 0 ? kMarkerSize : 0;
    if (bytes.size() < lead_ + kFpduLengthSize) return;
    ulpdu_len_ = load_ulpdu_length(bytes.data() + lead_);
    size_ = fpdu_size_marked(offset, ulpdu_len_);
    if (size_ > bytes.size()) return;
    raw_ = bytes.first(size_);
    whole_ = true;
  }

  [[nodiscard]] bool whole() const noexcept { return whole_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t ulpdu_len() const noexcept { return ulpdu_len_; }
  [[nodiscard]] bool crc_good() const noexcept {
    const std::size_t covered = size_ - kCrcSize;
    return crc32c(raw_.first(covered)) == load_crc(raw_.data() + covered);
  }

  // Begins to read the ULPDU; false: a marker does not point at this FPDU. The markers are looked
  // at first, all of them, so that nothing is placed of an FPDU that has a wrong one.
  [[nodiscard]] bool markers_good() const noexcept {
    const StreamOffset start = at_ + lead_;
    for (StreamOffset m = at_ + until_marker(at_); m + kMarkerSize <= at_ + size_ - kCrcSize;
         m += kMarkerInterval) {
      const std::uint64_t expected = m < start ? 0 : m - start;
      if (load_marker(raw_.data() + (m - at_)) != expected) return false;
    }
    return true;
  }

  // Copies `size` octets of the ULPDU from `from` on.
  void copy(std::uint32_t from, std::uint8_t* to, std::uint32_t size) const noexcept {
    StreamOffset pos = at_ + lead_ + kFpduLengthSize;
    while (true) {
      const std::uint32_t gap = until_marker(pos);
      if (gap == 0) {
        pos += kMarkerSize;
        continue;
      }
      const std::uint32_t skip = std::min(gap, from);
      pos += skip;
      from -= skip;
      if (skip == gap) continue;
      const std::uint32_t piece = std::min(gap - skip, size);
      if (piece == 0) return;
      std::memcpy(to, raw_.data() + (pos - at_), piece);
      pos += piece;
      to += piece;
      size -= piece;
    }
  }

 private:
  StreamOffset at_;
  std::size_t lead_ = 0;
  std::size_t size_ = 0;
  std::uint32_t ulpdu_len_ = 0;
  std::span<const std::uint8_t> raw_;
  bool whole_ = false;
};

// Where the first FPDU begins that can be found by a marker and has its start among `bytes`; the
// end of the run if there is none.
StreamOffset first_start(StreamOffset offset, std::span<const std::uint8_t> bytes) {
  const StreamOffset end = offset + bytes.size();
  for (StreamOffset m = offset + until_marker(offset); m + kMarkerSize <= end;
       m += kMarkerInterval) {
    const std::uint32_t back = load_marker(bytes.data() + (m - offset));
    if (back == 0) return m;
    if (back > m - offset) continue;  // it began in what is missing
    const StreamOffset start = m - back;
    if (start % kMarkerInterval != kMarkerSize) return start;
    if (start - offset >= kMarkerSize) return start - kMarkerSize;  // its leading marker
  }
  return end;
}

}  // namespace

Ahead StreamRx::place_ahead(StreamOffset offset, std::span<const std::uint8_t> bytes) const {
  const Stream& s = stream();
  Ahead ahead;
  // Without a CRC nothing proves that these octets are what they look like, and without markers
  // nothing proves where an FPDU begins.
  if (!s.params_.crc || !s.params_.rx_markers || discarding_) return ahead;
  if (s.machine_.state() != StreamState::kRts || offset < s.rx_offset()) return ahead;
  StreamOffset pos = first_start(offset, bytes);
  while (pos - offset < bytes.size()) {
    const MarkedFpdu fpdu(pos, bytes.subspan(static_cast<std::size_t>(pos - offset)));
    // A fault of this FPDU is reported by the pass that goes in order.
    if (!fpdu.whole() || !fpdu.crc_good() || !fpdu.markers_good()) break;
    const std::uint32_t len = fpdu.ulpdu_len();
    std::uint8_t header[kDdpTaggedSize];
    if (len > kDdpTaggedSize) {
      fpdu.copy(0, header, kDdpTaggedSize);
      Pin pin;
      const auto payload = len - static_cast<std::uint32_t>(kDdpTaggedSize);
      std::uint8_t* const at = target_ahead(header, payload, pin);
      if (at != nullptr) {
        fpdu.copy(kDdpTaggedSize, at, payload);
        ++ahead.fpdus;
        ahead.octets += payload;
      }
    }
    pos += fpdu.size();
  }
  return ahead;
}

// The memory that a tagged segment may be placed in now; null: none. The same checks as in order,
// less those that depend on what came before.
std::uint8_t* StreamRx::target_ahead(const std::uint8_t* header, std::uint32_t payload,
                                     Pin& pin) const {
  const Stream& s = stream();
  const Result<Opcode> op = check_segment_control(header[0], header[1]);
  if (!op || !peek_tagged(header[0])) return nullptr;
  if (s.params_.peer_memory.last_octets_first) return nullptr;
  const DdpTagged h = load_ddp_tagged(header);
  std::uint8_t* at = nullptr;
  MemoryFault fault = MemoryFault::kInvalidStag;
  if (*op == Opcode::kWrite) {
    if (!has(s.remote_access_.load(std::memory_order_relaxed), Access::kRemoteWrite))
      return nullptr;
    fault = s.table_.resolve(h.stag, h.to, payload, Access::kRemoteWrite, s.params_.id, pin, at);
  } else if (*op == Opcode::kReadResponse && s.reads_.awaits(h, payload)) {
    fault = s.table_.resolve(h.stag, h.to, payload, Access::kLocalWrite, s.params_.id, pin, at);
  }
  if (fault != MemoryFault::kNone || has(pin.entry()->spec.access, kByMethod)) return nullptr;
  return at;
}

}  // namespace weft::proto
