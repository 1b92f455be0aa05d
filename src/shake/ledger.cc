#include "shake/ledger.h"

#include <algorithm>

namespace weft::shake {

// The queue's oldest signaled request is the one that succeeded. One that failed may be unsignaled.
void Ledger::sent(std::uint64_t wr_id, bool success) {
  const auto done = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.wr_id == wr_id && (entry.signaled || !success);
  });
  if (done != entries_.end()) entries_.erase(entries_.begin(), std::next(done));
}

std::optional<Ledger::Entry> Ledger::received(std::uint64_t wr_id, bool shared) {
  const auto is_it = [wr_id](const Entry& entry) { return entry.wr_id == wr_id; };
  const auto done = std::ranges::find_if(entries_, is_it);
  if (done == entries_.end()) return std::nullopt;
  const bool known =
      !shared || std::find_if(std::next(done), entries_.end(), is_it) == entries_.end();
  Entry out = std::move(*done);
  entries_.erase(done);
  return known ? std::optional(std::move(out)) : std::nullopt;
}

bool Ledger::uses(const Sge& octets) const {
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    return std::ranges::any_of(entry.sges, [&](const Sge& sge) {
      return sge.addr < octets.addr + octets.length && octets.addr < sge.addr + sge.length;
    });
  });
}

std::optional<Sge> tail(std::span<const Sge> sges, std::uint64_t used) {
  constexpr std::uint64_t kLine = 64;
  for (const Sge& sge : sges) {
    if (used > sge.length) {
      used -= sge.length;
      continue;
    }
    const std::uint64_t end = sge.addr + used;
    const std::uint64_t line_end =
        std::min((end + kLine - 1) / kLine * kLine, sge.addr + sge.length);
    if (used == 0 || line_end == end) return std::nullopt;
    return Sge{end, static_cast<std::uint32_t>(line_end - end), sge.lkey};
  }
  return std::nullopt;
}

}  // namespace weft::shake
