// The verified pass over RDMA: windows of messages, each in a place of its own, every byte of which
// is compared where it arrived before the next window starts.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "weft/common/pattern.h"
#include "weft/common/sysinfo.h"
#include "weft/endpoint/rdma_client.h"

namespace weft::cli {
namespace {

// Neither zero nor any byte of the pattern in its place, over a whole window.
constexpr int kStale = 0xa5;

std::span<std::uint8_t> place(RdmaLink& link, const Layout& layout, std::uint64_t k,
                              std::uint64_t size) {
  return {link.places + layout.stride * k, size};
}

}  // namespace

// What this side must hold before the window goes: messages to send, or marks that show which bytes
// of a Read never came.
void RdmaClient::fill_window(RdmaLink& link) {
  link.next_slot = 0;
  for (std::uint64_t k = 0; k < layout_.window; ++k) {
    const auto bytes = place(link, layout_, k, spec_.size);
    if (is_answered(spec_.op)) {
      std::memset(bytes.data(), kStale, bytes.size());
    } else {
      fill_pattern(bytes, pattern_seed(link.index, link.verified + k));
    }
  }
}

// After the window: what Reads and atomics brought.
Outcome<void> RdmaClient::check_window(RdmaLink& link, PhaseResult& result) {
  if (!is_answered(spec_.op)) return {};
  for (std::uint64_t k = 0; k < layout_.window; ++k) {
    const std::uint64_t number = link.verified + k;
    const auto bytes = place(link, layout_, k, spec_.size);
    if (is_atomic(spec_.op)) {
      std::uint64_t old = 0;
      std::memcpy(&old, bytes.data(), sizeof(old));
      if (old != number) {
        return failure(fmt::format(
            "verification failed: {} number {} of connection {} found {} where {} was due",
            name_of(spec_.op), number, link.index, old, number));
      }
    } else if (const auto bad = check_pattern(bytes, pattern_seed(link.index, number))) {
      return tl::unexpected(describe_mismatch(link.index, number, *bad));
    }
    result.verified_bytes += bytes.size();
  }
  return {};
}

Outcome<void> RdmaClient::verify_window(Watch& watch, PhaseResult& result) {
  for (RdmaLink& link : links_) fill_window(link);
  if (spec_.op == Operation::kRead) {
    if (auto ok = exchange(NoteKind::kFill, layout_.window, watch); !ok) return ok;
  }
  for (std::uint32_t posted = 0; posted < layout_.window;) {
    const std::uint32_t count = std::min(batch_, layout_.window - posted);
    for (RdmaLink& link : links_) {
      while (!can_post(link, count)) {
        if (auto ok = pump(true, watch); !ok) return ok;
      }
      if (!post_messages(link, count)) return tl::unexpected(watch.explain(why_not_posted()));
    }
    posted += count;
  }
  if (auto ok = exchange(NoteKind::kCheck, layout_.window, watch); !ok) return ok;
  for (RdmaLink& link : links_) {
    if (auto ok = check_window(link, result); !ok) return ok;
    link.verified += layout_.window;
  }
  result.messages += std::uint64_t{layout_.window} * links_.size();
  return {};
}

Outcome<PhaseResult> RdmaClient::run_verify(const PhaseLimits& limits, Watch& watch) {
  PhaseResult result;
  const std::int64_t begin_ns = now_ns();
  const std::int64_t end_ns = begin_ns + static_cast<std::int64_t>(limits.seconds * 1e9);
  do {
    if (auto ok = verify_window(watch, result); !ok) return tl::unexpected(ok.error());
  } while (now_ns() < end_ns);
  if (auto ok = exchange(NoteKind::kEnd, result.messages, watch); !ok) {
    return tl::unexpected(ok.error());
  }
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  return result;
}

}  // namespace weft::cli
