// The rules about receive queues and completion queues: W21 of receives, E23, E30, N40, W40, E62.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {

void Rules::check_receive(Object& queue, const PostedReceive& receive, Here here, Thread by) {
  if (queue.dead) return;
  ++queue.receives;
  queue.progress.received = here.at;
  queue.progress.received_by = here.call;
  if (queue.made.kind != Kind::kQp) return;
  check_lkeys(receive.sinks, queue, here);
  const auto finding = [&](std::string text) {
    return Finding{"W21", std::string(here.call), std::move(text), here.at, {made_note(queue)}};
  };
  if (receive.sges > queue.made.receive_sges) {
    report_(finding("a receive with " + plural(receive.sges, "SGE") + ", and " +
                    std::to_string(queue.made.receive_sges) + " asked for (max_recv_sge)"));
  }
  if (queue.receives != std::size_t{queue.made.receive_depth} + 1 || queue.crowded) return;
  exceeded(queue.crowded,
           finding("the receive queue would be full: " + std::to_string(queue.receives) +
                   " receives, and " + std::to_string(queue.made.receive_depth) +
                   " were asked for (max_recv_wr)"),
           by);
}

// A program may post until it is refused.
void Rules::not_posted_receive(const PostedReceive& receive) {
  sinks_.take_back(receive.queue, Sinks::Side::kReceive, receive.wr_id, receive.sinks);
  Object* const queue = find(receive.queue);
  if (queue == nullptr || queue->receives == 0) return;
  --queue->receives;
  queue->crowded.reset();
}

// A queue pair in error flushes its requests, and a program may leave out the rest.
void Rules::check_due(const Object& qp, std::string_view what, std::size_t receives, Here here) {
  if (qp.made.kind != Kind::kQp || qp.flushes) return;
  std::size_t due = 0;
  for (const Slot& slot : qp.slots) due += slot.request.signaled ? 1 : 0;
  if (due + receives == 0) return;
  std::string text = "the queue pair is " + std::string(what) + ", and ";
  if (due != 0) text += plural(due, "signaled request");
  if (receives != 0) text += (due != 0 ? " and " : "") + plural(receives, "receive");
  Finding finding{"W50",
                  std::string(here.call),
                  text + (due + receives == 1 ? " of it gets" : " of it get") + " no completion",
                  here.at,
                  {}};
  if (due != 0) {
    const auto first =
        std::ranges::find_if(qp.slots, [](const Slot& slot) { return slot.request.signaled; });
    finding.notes.push_back({"the oldest is " + std::string(first->request.opcode) + ", wr_id " +
                                 hex(first->request.wr_id) + ", posted",
                             first->posted});
  }
  finding.notes.push_back(made_note(qp));
  report_(finding);
}

void Rules::reads_undefined(const void* cq, Here here, std::string_view status, bool success) {
  const Object* const object = find(cq);
  if (object == nullptr) return;
  report_({"E30",
           std::string(here.call),
           success ? "reads what is undefined for a completion of this kind"
                   : "reads what is undefined for a completion with " + std::string(status) +
                         ": only wr_id, status, qp_num and vendor_err are there",
           here.at,
           {made_note(*object)}});
}

void Rules::overflows(const void* cq, std::size_t queued, std::uint32_t asked, Here here) {
  Object* const object = find(cq);
  if (object == nullptr || std::exchange(object->overflowed, true)) return;
  report_({"E23",
           std::string(here.call),
           "the completion queue has overflowed: " + plural(queued, "completion") +
               ", and room for " + std::to_string(asked) + " was asked for",
           here.at,
           {made_note(*object)}});
}

// All that queue pairs may complete to a completion queue of this one.
void Rules::check_room(const Object& qp, Here here) {
  constexpr std::size_t kSendCq = 1, kReceiveCq = 2;  // among the parents
  const void* last = nullptr;
  for (const void* handle : {qp.made.parents.at(kSendCq), qp.made.parents.at(kReceiveCq)}) {
    const Object* const cq = handle != std::exchange(last, handle) ? find(handle) : nullptr;
    if (cq == nullptr || cq->made.depth == 0) continue;
    std::uint64_t most = 0;
    for (const auto& [other, object] : objects_) {
      const Made& made = object.made;
      if (object.dead || made.kind != Kind::kQp) continue;
      if (made.parents.at(kSendCq) == handle) most += made.send_depth;
      const bool has_own = made.receive_depth != ~0U;
      if (made.parents.at(kReceiveCq) == handle && has_own) most += made.receive_depth;
    }
    if (most <= cq->made.depth) continue;
    report_({"N24",
             std::string(here.call),
             "a completion queue could overflow: it has room for " +
                 std::to_string(cq->made.depth) + ", and its queue pairs may have " +
                 plural(most, "completion"),
             here.at,
             {made_note(*cq)}});
  }
}

void Rules::entered_twice(const void* handle, Here here) {
  const Object* const object = find(handle);
  if (object == nullptr) return;
  Finding finding{"E62",
                  std::string(here.call),
                  "another thread is in this " + std::string(name_of(object->made.kind)) +
                      ", which was promised to one thread",
                  here.at,
                  {made_note(*object)}};
  constexpr std::size_t kThreadOfPd = 1;  // among the parents
  const Object* const pd = find(object->made.parents.front());
  const bool is_pd = pd != nullptr && pd->made.kind == Kind::kPd;
  if (const Object* const domain = is_pd ? find(pd->made.parents.at(kThreadOfPd)) : nullptr)
    finding.notes.push_back(made_note(*domain));
  report_(finding);
}

void Rules::armed(const void* cq, std::size_t queued, Thread by, Here here) {
  Object* const object = find(cq);
  if (object == nullptr) return;
  object->armed_with = queued;
  object->armed_behind = posts_;
  object->armed_at = here.at;
  object->armed_call = here.call;
  object->armed_by = by;
}

void Rules::polls(const void* cq, Thread by) {
  Object* const object = find(cq);
  if (object == nullptr) return;
  object->armed_with = 0;
  if (object->polled_by != 0 && object->polled_by != by) object->polled_by_several = true;
  object->polled_by = by;
}

// Nobody else is about to poll it, as far as can be known.
bool Rules::is_served_by(const Object& cq, Thread thread) {
  return cq.armed_by == thread && !cq.polled_by_several &&
         (cq.polled_by == 0 || cq.polled_by == thread);
}

// A request was posted since, and it or its answer makes an event.
bool Rules::is_event_due(const Object& cq) const {
  return std::ranges::any_of(objects_, [&cq](const auto& entry) {
    const Object& object = entry.second;
    return !object.dead && object.last_post > cq.armed_behind &&
           std::ranges::count(object.made.parents, cq.made.handle) != 0;
  });
}

// Where another one of the channel is armed, the program waits for that, perhaps.
void Rules::waits(const void* channel, std::size_t armed, Thread by, Here here) {
  std::vector<Object*> silent;
  for (auto& [handle, object] : objects_) {
    if (object.dead || object.made.kind != Kind::kCq || object.armed_with == 0) continue;
    if (object.made.parents.front() == channel && is_served_by(object, by))
      silent.push_back(&object);
  }
  if (armed > silent.size()) return;
  if (std::ranges::any_of(silent, [this](const Object* cq) { return is_event_due(*cq); })) return;
  std::ranges::sort(silent, {}, kAge);
  for (Object* object : silent) {
    report_({"W40",
             std::string(here.call),
             "waits for an event, and " +
                 plural(std::exchange(object->armed_with, 0), "completion") +
                 " came before the queue was armed, which make none",
             here.at,
             {made_note(*object), {"armed", object->armed_at}}});
  }
}

// It has waited elsewhere, in epoll say.
void Rules::took_event(const void* cq, Thread by, Here here) {
  Object* const object = find(cq);
  if (object == nullptr || object->armed_with == 0 || !is_served_by(*object, by)) return;
  report_({"N40",
           std::string(here.call),
           "takes an event, and until it came " +
               plural(std::exchange(object->armed_with, 0), "completion") +
               " waited that had come before the queue was armed",
           here.at,
           {made_note(*object), {"armed", object->armed_at}}});
}

}  // namespace weft::check
