// The rules about the memory of outstanding requests: E10, W11, E12.
#include <algorithm>
#include <string>
#include <utility>

#include "check/check_rules.h"

namespace weft::check {

// Memory that the program addresses otherwise is not where the request says.
void Rules::watch(const std::vector<Octets>& octets) {
  for (const Octets& one : octets) {
    if (!keys_.is_plain(one.lkey)) continue;
    watched_.first = std::min(watched_.first, one.addr);
    watched_.second = std::max(watched_.second, one.addr + one.length);
  }
}

std::pair<std::uint64_t, std::uint64_t> Rules::watched() {
  if (sources_.is_empty() && sinks_.is_empty()) watched_ = {~std::uint64_t{0}, 0};
  return watched_;
}

// The program may do with its sources as it likes from now on.
void Rules::let_go(Slot& slot) {
  if (std::exchange(slot.watched, false)) sources_.remove(slot.request.sources);
}

void Rules::let_go_of_all(Object& qp) {
  for (Slot& slot : qp.slots) let_go(slot);
  qp.slots.clear();
}

// Where a region is gone, no adapter touches the memory.
bool Rules::is_use(const Octets& one, const Octets& memory) const {
  return overlap({&one, 1}, {&memory, 1}) && keys_.is_plain(one.lkey);
}

Rules::Slot* Rules::user_of(const Octets& memory) {
  if (!sources_.overlap({&memory, 1})) return nullptr;
  for (auto& [handle, object] : objects_) {
    for (Slot& slot : object.slots) {
      const auto uses = [&](const Octets& one) { return is_use(one, memory); };
      if (slot.watched && std::ranges::any_of(slot.request.sources, uses)) return &slot;
    }
  }
  return nullptr;
}

Sinks::Found Rules::writer_to(const Octets& memory) const {
  return sinks_.find(memory, [&](const Octets& one) { return is_use(one, memory); });
}

bool Rules::is_free(const Octets& memory) {
  return writer_to(memory).queue == nullptr && user_of(memory) == nullptr;
}

void Rules::gone(const Octets& memory, Here here) {
  Finding finding{"E12", std::string(here.call), {}, here.at, {}};
  Slot* const slot = user_of(memory);
  const void* queue = nullptr;
  if (slot != nullptr) {
    const Posted& request = slot->request;
    finding.text = std::string(request.opcode) + ", wr_id " + hex(request.wr_id);
    if (slot->posted != 0) finding.notes.push_back({"posted", slot->posted});
    queue = request.qp;
    slot->sum.reset();  // what becomes of it is no news
  } else {
    const Sinks::Found sink = writer_to(memory);
    finding.text = "a request that writes to it, wr_id " + hex(sink.wr_id);
    queue = sink.queue;
  }
  finding.text = plural(memory.length, "octet") + " at " + hex(memory.addr) +
                 " are given back while they are the memory of " + finding.text +
                 ": its completion was not polled, and the region is there";
  if (const Object* const object = find(queue)) finding.notes.push_back(made_note(*object));
  report_(finding);
}

void Rules::note_memory(Slot& slot) {
  const Posted& request = slot.request;
  watch(request.sources);
  watch(request.sinks);
  share(request.sinks);
  if (!request.sinks.empty())
    sinks_.add(request.qp, Sinks::Side::kSend, request.wr_id, request.sinks);
  sources_.add(request.sources);
  slot.watched = true;
  const bool plain = std::ranges::all_of(
      request.sources, [this](const Octets& one) { return keys_.is_plain(one.lkey); });
  if (request.sources.empty() || !plain) return;
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

void Rules::receive_polled(Object& qp, const Completed& completion, Poll poll) {
  const void* const srq = qp.made.parents.at(kSrqOfQp);
  Object* const queue = srq != nullptr ? find(srq) : &qp;
  if (queue != nullptr && queue->receives != 0) --queue->receives;
  judge(qp.crowded, poll);
  const void* const handle = srq != nullptr ? srq : qp.made.handle;
  if (!owned_.is_empty() && completion.success) {
    for (const Octets& sink : sinks_.of(handle, completion.wr_id))
      check_owned(qp, sink, "a message of the peer, for which it was posted as a receive");
  }
  sinks_.remove(handle, Sinks::Side::kReceive, completion.wr_id);
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
