// The rule about programs that wait for good: N70.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {
namespace {

// A finding names the first of them.
constexpr std::size_t kShownQueues = 16;

std::string time_text(std::uint64_t ns) {
  constexpr std::uint64_t kMs = 1'000'000;
  if (ns % (1000 * kMs) == 0) return std::to_string(ns / (1000 * kMs)) + " s";
  return std::to_string(ns / kMs) + " ms";
}

}  // namespace

void Rules::note_progress(Object& qp, const Completed& completion) {
  ++completions_;
  ++qp.progress.polled;
  qp.progress.last = "wr_id " + hex(completion.wr_id) + ", " + completion.status;
}

const Rules::Object& Rules::receives_of(const Object& qp) const {
  const Object* const srq = find(qp.made.parents.at(kSrqOfQp));
  return srq != nullptr ? *srq : qp;
}

// A request without a signal may be done, for all the program will ever know.
bool Rules::awaits_request(const Object& qp) {
  return std::ranges::any_of(qp.slots, [](const Slot& slot) { return slot.request.signaled; });
}

bool Rules::is_stuck(Object& qp, std::uint64_t now_ns, std::uint64_t limit_ns) const {
  Progress& progress = qp.progress;
  const bool waits = awaits_request(qp) || receives_of(qp).receives != 0;
  const std::pair now{progress.polled, qp.slots.empty() ? 0 : qp.slots.front().number};
  if (!waits || progress.since_ns == 0 || progress.seen != now) {
    progress.seen = now;
    progress.since_ns = now_ns;
    progress.told = false;
  }
  return waits && now_ns - progress.since_ns >= limit_ns;
}

// One that waits for messages alone is idle, as long as others get on.
std::vector<Rules::Watched> Rules::hung(std::uint64_t now_ns, std::uint64_t limit_ns) {
  if (quiet_.first != completions_ || quiet_.second == 0) quiet_ = {completions_, now_ns};
  const bool moves = now_ns - quiet_.second < limit_ns;
  std::vector<const Object*> all;
  std::vector<Object*> stuck;
  for (auto& [handle, object] : objects_) {
    const Kind kind = object.made.kind;
    if (object.dead || (kind != Kind::kQp && kind != Kind::kCq)) continue;
    all.push_back(&object);
    if (kind == Kind::kQp && is_stuck(object, now_ns, limit_ns) &&
        (!moves || awaits_request(object)))
      stuck.push_back(&object);
  }
  const bool is_new = std::ranges::any_of(stuck, [](Object* qp) { return !qp->progress.told; });
  if (!is_new) return {};
  for (Object* qp : stuck) qp->progress.told = true;
  std::ranges::sort(all, {}, kAge);
  std::vector<Watched> out;
  for (const Object* object : all) out.push_back({object->made.handle, object->made.kind});
  return out;
}

Note Rules::state_of(const Object& qp, const Looks& looks) const {
  Note out = made_note(qp);
  out.text = out.text.substr(0, out.text.rfind(", made"));
  if (const auto look = looks.find(qp.made.handle); look != looks.end())
    out.text += ", " + look->second;
  out.text += ": " + plural(qp.slots.size(), "request");
  if (!qp.slots.empty()) {
    const Posted& oldest = qp.slots.front().request;
    out.text += " (the oldest " + std::string(oldest.opcode) + ", wr_id " + hex(oldest.wr_id) +
                ", " + plural(oldest.bytes, "octet") + ")";
  }
  const Object& receives = receives_of(qp);
  out.text += " and " + plural(receives.receives, "receive") +
              (&receives != &qp ? " of its shared receive queue" : "") + " outstanding";
  if (qp.late.waiting) out.text += "; a message of the peer waits for a receive";
  out.text += qp.progress.polled == 0 ? "; no completion was polled"
                                      : "; " + plural(qp.progress.polled, "completion") +
                                            " polled, the last with " + qp.progress.last;
  out.text += "; made";
  return out;
}

void Rules::hangs(std::uint64_t limit_ns, const Looks& looks) {
  std::vector<const Object*> qps, cqs;
  for (const auto& [handle, look] : looks) {
    const Object* const object = find(handle);
    if (object != nullptr && !object->dead)
      (object->made.kind == Kind::kQp ? qps : cqs).push_back(object);
  }
  // The one that waits for requests comes first, and then the oldest.
  std::ranges::sort(qps, {}, [](const Object* qp) {
    return std::pair(!(qp->progress.told && awaits_request(*qp)), qp->born.at);
  });
  std::ranges::sort(cqs, {}, kAge);
  Finding finding{"N70", {}, "nothing has completed for " + time_text(limit_ns), 0, {}};
  std::size_t waiting = 0;
  for (const Object* qp : qps) {
    if (!qp->progress.told) continue;
    const Progress& receive = receives_of(*qp).progress;
    const bool posts = awaits_request(*qp);
    if (waiting++ == 0) {
      finding.call = posts ? qp->slots.front().call : receive.received_by;
      finding.at = posts ? qp->slots.front().posted : receive.received;
    }
  }
  finding.text += " on " + plural(waiting, "queue pair") + " with work outstanding";
  for (const Object* qp : qps) {
    if (finding.notes.size() < kShownQueues) finding.notes.push_back(state_of(*qp, looks));
  }
  if (qps.size() > kShownQueues)
    finding.text += "; " + plural(qps.size(), "queue pair") + " in all";
  for (const Object* cq : cqs) {
    const std::string& look = looks.at(cq->made.handle);
    if (!look.empty())
      finding.notes.push_back({"completion queue, " + look + "; made", cq->born.at});
  }
  if (waiting != 0) report_(finding);
}

}  // namespace weft::check
