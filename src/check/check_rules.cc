#include "check/check_rules.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace weft::check {
namespace {

std::string milliseconds(std::uint64_t ns) {
  constexpr std::uint64_t kTenth = 100'000;
  const std::uint64_t tenths = (ns + kTenth / 2) / kTenth;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms";
}

std::string_view function_of(Owed what) {
  switch (what) {
    case Owed::kCqEvents: return "ibv_ack_cq_events";
    case Owed::kAsyncEvents: return "ibv_ack_async_event";
    case Owed::kCmEvents: break;
  }
  return "rdma_ack_cm_event";
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, 13> kNames = {
      "device context",       "protection domain",  "thread domain",    "memory region",
      "memory window",        "completion channel", "completion queue", "queue pair",
      "shared receive queue", "device memory",      "address handle",   "rdma_cm id",
      "event channel"};
  return kNames.at(static_cast<std::size_t>(kind));
}

Rules::Object* Rules::find(const void* handle) {
  return const_cast<Object*>(std::as_const(*this).find(handle));
}

const Rules::Object* Rules::find(const void* handle) const {
  const auto at = objects_.find(handle);
  return at != objects_.end() ? &at->second : nullptr;
}

Note Rules::made_note(const Object& object) {
  std::string text(name_of(object.made.kind));
  if (object.made.kind == Kind::kQp) text += " number " + std::to_string(object.made.number);
  return {text + ", made", object.born.at};
}

void Rules::made(const Made& object, Here here) {
  if (object.kind == Kind::kQp) qps_[object.number] = object.handle;
  Object entry;
  entry.made = object;
  entry.born = here;
  entry.born_call = here.call;
  const bool shared = object.kind == Kind::kContext || object.kind == Kind::kPd;
  entry.of_rdma_cm = shared && here.call.starts_with("r");
  const auto at = objects_.insert_or_assign(object.handle, std::move(entry)).first;
  if (checks_room_ && object.kind == Kind::kQp) check_room(at->second, here);
}

void Rules::destroyed(const void* handle, Here here) {
  Object* object = find(handle);
  if (object == nullptr) return;
  sum_up_late(*object);
  sum_up_full(*object);
  check_due(*object, "destroyed", 0, here);
  keys_.died(handle, object->made.kind == Kind::kMr ? "deregistered" : "deallocated", here.at);
  object->dead = true;
  object->died = here;
  let_go_of_all(*object);
  summed_.erase(handle);
  object->children.clear();
  sinks_.clear(handle);
  open_writes_.erase(handle);
}

bool Rules::not_live(const void* handle, Here here) {
  const Object* object = find(handle);
  if (object == nullptr || !object->dead) return false;
  const std::string name(name_of(object->made.kind));
  report_({"E02",
           std::string(here.call),
           "this " + name + " was destroyed before",
           here.at,
           {made_note(*object), {"destroyed", object->died.at}}});
  return true;
}

void Rules::keyed(const Keyed& key, Here here) {
  const Object* object = find(key.object);
  if (object != nullptr) keys_.made(key, name_of(object->made.kind), here.at);
}

void Rules::invalidated(std::uint32_t key, bool by_peer, Here here) {
  keys_.died(key, by_peer ? "invalidated by the peer, as was polled" : "invalidated", here.at);
}

void Rules::failed(int error, std::string_view name, Here here, const void* refused) {
  Object* const qp = find(refused);
  Finding finding{"N01",
                  std::string(here.call),
                  "failed with errno " + std::to_string(error) + " (" + std::string(name) + ")",
                  here.at,
                  {}};
  if (error != ENOMEM || qp == nullptr) return report_(finding);
  qp->full.beyond.reset();
  if (!qp->full.known) qp->full.refused = std::move(finding);
}

// A post after one that was refused.
void Rules::goes_on(Fullness& full) {
  if (!full.refused || !full.polled) return;
  full.refused.reset();
  full.known = true;
}

void Rules::sum_up_full(Object& qp) {
  if (const auto beyond = std::exchange(qp.full.beyond, std::nullopt)) report_(beyond->finding);
  if (const auto refused = std::exchange(qp.full.refused, std::nullopt)) report_(*refused);
  if (const auto crowded = std::exchange(qp.crowded, std::nullopt)) report_(crowded->finding);
}

void Rules::exceeded(std::optional<Excess>& what, Finding finding, Thread by) {
  place_(finding);
  what = Excess{std::move(finding), posts_, by};
  exceeds_ = true;
}

void Rules::returned(const void* queue, Thread by) {
  Object* const object = find(queue);
  if (object == nullptr) return;
  for (std::optional<Excess>* one : {&object->full.beyond, &object->crowded}) {
    if (*one && (*one)->by == by && (*one)->since == 0) (*one)->since = ++posts_;
  }
}

// A completion of the queue was polled. One that had left the queue of the engine before the
// request came in may have made room for it.
void Rules::judge(std::optional<Excess>& what, Poll poll) {
  if (!what) return;
  const bool is_own = what->by == poll.by;
  const std::uint64_t since = is_own ? what->number : what->since;
  if (since == 0 || poll.behind < since) return what.reset();
  if (is_own) report_(std::exchange(what, std::nullopt)->finding);
}

std::vector<Note> Rules::children_of(const void* handle) const {
  std::vector<Note> out;
  for (const auto& [child, object] : objects_) {
    if (!object.dead && std::ranges::count(object.made.parents, handle) != 0)
      out.push_back(made_note(object));
  }
  std::ranges::sort(out, {}, &Note::at);  // the oldest first
  return out;
}

void Rules::busy(const void* handle, Here here) {
  Object* object = find(handle);
  if (object == nullptr) return;
  object->refused = here;
  object->refused_call = here.call;
  object->children = children_of(handle);
}

void Rules::owes(const void* handle, Owed what, std::uint32_t count, Here here) {
  Finding finding{"E41",
                  std::string(here.call),
                  "waits until the program acknowledges " + plural(count, "event") + " (" +
                      std::string(function_of(what)) + ")",
                  here.at,
                  {}};
  if (const Object* object = find(handle)) finding.notes.push_back(made_note(*object));
  report_(finding);
}

void Rules::check_depth(Object& qp, Here here, Thread by) {
  const std::size_t depth = std::max<std::uint32_t>(qp.made.send_depth, 1);
  if (qp.slots.size() != depth + 1) return;  // each time that it becomes too full, once
  const bool signaled =
      std::ranges::any_of(qp.slots, [](const Slot& s) { return s.request.signaled; });
  std::string why = !signaled ? "none of them was signaled, so no completion can free a slot"
                              : "the program has polled no completion that frees a slot";
  if (qp.slots.front().replied) why += "; the peer's reply frees none";
  Finding finding{"E20",
                  std::string(here.call),
                  "the send queue would be full: " + std::to_string(depth + 1) + " requests, and " +
                      std::to_string(depth) + " were asked for (max_send_wr); " + why,
                  here.at,
                  {made_note(qp)}};
  if (!signaled) return report_(finding);
  if (qp.full.known || qp.full.beyond) return;
  exceeded(qp.full.beyond, std::move(finding), by);
}

void Rules::check_sizes(const Object& qp, const Posted& request, Here here) {
  std::string what;
  if (request.is_inline && request.bytes > qp.made.inline_bytes) {
    what = plural(request.bytes, "octet") + " inline, and " + std::to_string(qp.made.inline_bytes) +
           " were asked for (max_inline_data)";
  } else if (!request.is_inline && request.sges > qp.made.send_sges) {
    what = plural(request.sges, "SGE") + ", and " + std::to_string(qp.made.send_sges) +
           " asked for (max_send_sge)";
  }
  if (what.empty()) return;
  report_({"W21",
           std::string(here.call),
           std::string(request.opcode) + " with " + what,
           here.at,
           {made_note(qp)}});
}

std::uint64_t Rules::posting(const Posted& request, Here here, Thread by) {
  Object* qp = find(request.qp);
  exceeds_ = false;
  if (qp == nullptr || qp->dead) return 0;
  goes_on(qp->full);
  check_sizes(*qp, request, here);
  check_keys(request, *qp, here);
  Slot& slot = qp->slots.emplace_back();
  slot.request = request;
  slot.number = qp->last_post = ++posts_;
  slot.posted = here.at;
  slot.call = here.call;
  check_sinks(request.qp, request.sinks, here);
  note_memory(slot);
  check_depth(*qp, here, by);
  // A program that never frees a slot posts for as long as it likes: E20 was said.
  const std::size_t most = 2 * (std::size_t{qp->made.send_depth} + 1);
  if (qp->slots.size() > most) {
    let_go(qp->slots.front());
    qp->slots.pop_front();
  }
  return posts_;
}

void Rules::set_waiting(LateOnes& late, bool waiting) {
  if (late.waiting != waiting) waiting ? ++waiting_ : --waiting_;
  late.waiting = waiting;
  if (!waiting) late.posted = 0;
}

void Rules::posting_receive(const PostedReceive& receive, Here here, Thread by) {
  exceeds_ = false;
  ++posts_;
  const void* const queue = receive.queue;
  check_sinks(queue, receive.sinks, here);
  watch(receive.sinks);
  share(receive.sinks);
  sinks_.add(queue, Sinks::Side::kReceive, receive.wr_id, receive.sinks);
  if (Object* const object = find(queue)) check_receive(*object, receive, here, by);
  if (waiting_ == 0) return;
  for (auto& [handle, object] : objects_) {
    if (!object.late.waiting || object.late.posted != 0) continue;
    if (handle != queue && object.made.parents.at(kSrqOfQp) != queue) continue;
    object.late.posted = here.at;
    object.late.call = here.call;
  }
}

void Rules::late_receive(const void* handle, Late what, std::uint64_t waited_ns) {
  Object* qp = find(handle);
  if (qp == nullptr || qp->dead) return;
  LateOnes& late = qp->late;
  if (what == Late::kCame) {
    ++late.came;
    if (waited_ns >= late.longest_ns) {
      late.longest_ns = waited_ns;
      late.longest_posted = late.posted;
      late.longest_call = late.call;
    }
  }
  if (what == Late::kRefused) ++late.refused;
  if (what == Late::kLost) ++late.lost;
  set_waiting(late, what == Late::kBegins);
  if (what == Late::kLost) report_no_receive(*qp, "it was lost");
  if (what == Late::kFailed) {
    report_no_receive(
        *qp, "it waited " + milliseconds(waited_ns) + ", and then the connection was ended");
  }
}

// There is no line to name where nothing was posted: it is that of the queue pair.
void Rules::report_no_receive(Object& qp, const std::string& what) {
  if (std::exchange(qp.late.reported, true)) return;
  report_({"E60",
           qp.born_call,
           "no receive was posted for a message to this queue pair: " + what,
           qp.born.at,
           {made_note(qp)}});
}

void Rules::sum_up_late(Object& qp) {
  set_waiting(qp.late, false);
  const LateOnes late = std::exchange(qp.late, {});
  if (late.came + late.refused == 0) return;
  Finding finding{"N60", late.longest_call, {}, late.longest_posted, {made_note(qp)}};
  if (late.came > 0) {
    finding.text = plural(late.came, "message") +
                   " came before a receive was posted; the longest waited " +
                   milliseconds(late.longest_ns);
  }
  if (late.refused > 0) {
    finding.text += (late.came > 0 ? ", and " : "") + plural(late.refused, "message") +
                    " without a receive had to be sent again";
  }
  if (finding.at == 0) {  // nothing was posted meanwhile, as far as is known
    finding.call = qp.born_call;
    finding.at = qp.born.at;
  }
  report_(finding);
}

void Rules::emptied(const void* handle, Here here) {
  Object* qp = find(handle);
  if (qp == nullptr) return;
  check_due(*qp, "moved to RESET", qp->receives, here);
  sum_up_late(*qp);
  sum_up_full(*qp);
  let_go_of_all(*qp);
  sinks_.clear(handle);
  open_writes_.erase(handle);
  qp->receives = 0;
  qp->progress = {};
  qp->crowded.reset();
  qp->memory.reset();
  qp->failed = qp->flushes = false;
}

void Rules::not_posted(const void* handle, std::uint64_t number) {
  Object* qp = find(handle);
  if (qp == nullptr) return;
  qp->full.polled = false;
  if (qp->full.beyond && qp->full.beyond->number == number) qp->full.beyond.reset();
  const auto slot = std::ranges::find(qp->slots, number, &Slot::number);
  if (slot == qp->slots.end()) return;
  const Posted& request = slot->request;
  if (!request.sinks.empty())
    sinks_.take_back(handle, Sinks::Side::kSend, request.wr_id, request.sinks);
  let_go(*slot);
  qp->slots.erase(slot);
}

void Rules::refused(const Refused& what) {
  Object* qp = find(what.qp);
  if (qp == nullptr || qp->dead) return;
  if (!what.to_peer) {
    qp->memory = what;  // for the completion
    return;
  }
  const bool by_lkey = keys_.lives(what.key ^ kLkeyMark) && !keys_.lives(what.key);
  Finding finding{"N01", qp->born_call, "a request of the peer was refused: ", qp->born.at,
                  keys_.about(by_lkey ? what.key ^ kLkeyMark : what.key)};
  if (by_lkey) {
    finding.rule = "W22";
    finding.text += "its rkey " + hex(what.key) + " is an lkey of this process";
  } else {
    finding.text += keys_.explain(what);
  }
  finding.notes.push_back(made_note(*qp));
  report_(finding);
}

// The memory that a failed request named: here, or at the peer.
std::string Rules::memory_of(const Object& qp, const Posted& request,
                             std::vector<Note>& notes) const {
  if (qp.memory) {
    notes = keys_.about(qp.memory->key);
    return ", an SGE of it: " + keys_.explain(*qp.memory);
  }
  if (!request.has_remote) return {};
  notes = keys_.about(request.rkey);
  return ", " + plural(request.bytes, "octet") + " at " + hex(request.remote_addr) +
         " of the peer by rkey " + hex(request.rkey);
}

void Rules::completed(const Completed& completion, Here here, Poll poll) {
  const auto number = qps_.find(completion.qp_number);
  Object* qp = number != qps_.end() ? find(number->second) : nullptr;
  if (qp == nullptr) return;
  note_progress(*qp, completion);
  qp->flushes = qp->flushes || !completion.success;
  if (completion.receive) receive_polled(*qp, completion, poll);
  if (completion.receive && completion.success) {
    for (Slot& slot : qp->slots) {
      slot.replied = true;
      let_go(slot);
    }
    return;
  }
  // Completions of a queue come in its order. One with an error may be of an unsignaled request.
  const auto done = std::ranges::find_if(qp->slots, [&](const Slot& slot) {
    return !completion.receive && slot.request.wr_id == completion.wr_id &&
           (slot.request.signaled || !completion.success);
  });
  const bool known = done != qp->slots.end();
  const Posted request = known ? done->request : Posted{};
  if (known) {
    for (auto slot = qp->slots.begin(); slot != done + 1; ++slot) {
      let_go(*slot);
      if (!slot->request.sinks.empty())
        sinks_.remove(qp->made.handle, Sinks::Side::kSend, slot->request.wr_id);
      if (completion.success) check_memory(*qp, *slot);
    }
    qp->slots.erase(qp->slots.begin(), done + 1);
    qp->full.polled = true;
    judge(qp->full.beyond, poll);
  }
  if (completion.success || completion.flushed || qp->failed) return;
  qp->failed = true;
  // As libibverbs names it: the peer had no receive, time and again.
  const bool starved = std::string_view(completion.status) == "RNR retry counter exceeded";
  Finding finding{starved ? "E60" : "N01",
                  std::string(here.call),
                  "a request completed with " + std::string(completion.status) + ": " +
                      (completion.receive ? "a receive"
                       : known            ? request.opcode
                                          : "a request") +
                      ", wr_id " + hex(completion.wr_id),
                  here.at,
                  {}};
  finding.text += memory_of(*qp, request, finding.notes);
  qp->memory.reset();
  finding.notes.push_back(made_note(*qp));
  report_(finding);
}

}  // namespace weft::check
