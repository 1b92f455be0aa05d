// The rules about the memory of outstanding requests: E10, W11, E12.
#include <algorithm>
#include <string>

#include "check/check_rules.h"

namespace weft::check {

void Rules::note_memory(Slot& slot, Here here) {
  const Posted& request = slot.request;
  share(request.sinks);
  if (!request.sinks.empty()) sinks_.add(request.qp, request.wr_id, request.sinks);
  const bool plain = std::ranges::all_of(
      request.sources, [this](const Octets& one) { return keys_.is_plain(one.lkey); });
  if (request.sources.empty() || !plain) return;
  slot.posted = here.at;
  slot.call = here.call;
  const Summed summed = sum_(request.sources);
  if (summed.memory != Memory::kThere) return;
  slot.sum = summed.sum;
  summed_.insert(request.qp);
  slot.shared = sinks_.has(request.sources);
}

void Rules::share(const std::vector<Octets>& sinks) {
  if (sinks.empty()) return;
  std::erase_if(summed_, [&](const void* handle) {
    Object* const qp = find(handle);
    if (qp == nullptr || qp->slots.empty()) return true;
    for (Slot& slot : qp->slots) {
      if (slot.sum && !slot.shared) slot.shared = overlap(slot.request.sources, sinks);
    }
    return false;
  });
}

void Rules::receive_polled(const Object& qp, std::uint64_t wr_id) {
  const void* const srq = qp.made.parents.at(kSrqOfQp);
  sinks_.remove(srq != nullptr ? srq : qp.made.handle, wr_id);
}

void Rules::check_memory(const Object& qp, const Slot& slot) {
  const Posted& request = slot.request;
  if (!slot.sum) return;
  const Summed summed = sum_(request.sources);
  const bool now = summed.memory == Memory::kThere;
  if (summed.memory == Memory::kUnknown || (now && summed.sum == slot.sum)) return;
  if (now && slot.shared) return;
  const bool open = now && keys_.is_open(request.sources);
  Finding finding{!now ? "E12" : (slot.replied || open ? "W11" : "E10"),
                  slot.call,
                  "the memory of " + std::string(request.opcode) + ", wr_id " + hex(request.wr_id) +
                      ", " + plural(request.bytes, "octet") + " at " +
                      hex(request.sources.front().addr) + ", was " +
                      (now ? "changed" : "unmapped") + " before its completion was polled",
                  slot.posted,
                  {made_note(qp)}};
  if (now && slot.replied) {
    finding.text += "; a message of the peer was polled meanwhile";
  } else if (now && open) {
    finding.text += ", by the program or by its peer: the peer may write there";
  }
  report_(finding);
}

}  // namespace weft::check
