// Where the bytes of a stream go, and what becomes of those that have arrived.
#include <algorithm>
#include <cstring>

#include "proto/stream.h"

namespace weft::proto {

void StreamRx::want(RxPlan& plan, std::span<std::uint8_t> scratch) {
  plan.count = 0;
  plan.bytes = 0;
  plan_direct_ = false;
  if (awaits_receive()) return;
  if (discarding_) {
    plan.slices[plan.count++] = {scratch.data(), scratch.size()};
  } else if (reader_.direct_remaining() != 0) {
    // Rights are looked at again: they may have been revoked since the last read.
    plan.count = target_slices(plan.slices, kRxSlicesMax - 1, reader_.direct_remaining());
    if (plan.count == 0) return want(plan, scratch);  // revoked: now discarding
    plan_direct_ = true;
    std::size_t planned = 0;
    for (std::size_t i = 0; i < plan.count; ++i) planned += plan.slices[i].size;
    if (planned == reader_.direct_remaining()) plan.slices[plan.count++] = reader_.want_tail();
  } else if (scratch.empty() && !reader_.nothing_behind()) {
    // Fed, and the pieces part between a payload and its pad or CRC.
    plan.slices[plan.count++] = reader_.want_tail();
  } else {
    plan.slices[plan.count++] = reader_.want(scratch);
  }
  plan.placed = plan_direct_;
  for (std::size_t i = 0; i < plan.count; ++i) plan.bytes += plan.slices[i].size;
}

void StreamRx::arrived(std::size_t n) {
  if (n == 0 && !plan_direct_ && !discarding_ && reader_.holds_nothing()) return;
  stream().counters_.rx_bytes.add(n);
  if (discarding_) return;
  const std::size_t direct = reader_.filled(n);
  if (plan_direct_) {
    seg_.placed += static_cast<std::uint32_t>(direct);
    if (seg_.op != Opcode::kWrite) open_cursor().advance(direct);
  }
  drain_reader();
}

void StreamRx::feed(std::span<std::uint8_t> bytes) {
  while (!bytes.empty() && !discarding_) {
    if (reader_.at_border()) {
      stream().counters_.rx_bytes.add(bytes.size());
      reader_.feed(bytes);
      drain_reader();
      return;
    }
    // The rest of an FPDU goes where its beginning is.
    RxPlan plan;
    want(plan, {});
    std::size_t n = 0;
    for (std::size_t i = 0; i < plan.count && n < bytes.size(); ++i) {
      const std::size_t piece = std::min(plan.slices[i].size, bytes.size() - n);
      std::memcpy(plan.slices[i].data, bytes.data() + n, piece);
      n += piece;
    }
    bytes = bytes.subspan(n);
    arrived(n);
  }
}

void StreamRx::drain_reader() {
  Stream& s = stream();
  while (!discarding_) {
    const Inbound in = reader_.next();
    bool alive = true;
    switch (in.kind) {
      case Inbound::Kind::kNone:
        pin_.release();
        if (!reader_.park()) s.fail(Violation::kLocalFault);
        return;
      case Inbound::Kind::kUlpdu: alive = on_ulpdu(in.ulpdu); break;
      case Inbound::Kind::kDirect: alive = on_direct(in.ulpdu, in.ulpdu_len); break;
      case Inbound::Kind::kDirectEnd: alive = close_segment(); break;
      case Inbound::Kind::kViolation:
        s.violate(in.violation);
        alive = false;
        break;
    }
    if (!alive && hold_.why != Waits::kForNothing) {
      // A payload that was to be placed directly has not been taken from the reader.
      return hold(in.kind == Inbound::Kind::kUlpdu ? in.ulpdu : MarkedOctets{});
    }
    if (!alive) break;
  }
  pin_.release();
  reader_.drop_all();
}

}  // namespace weft::proto
