// The rules about receive queues and completion queues: W21 of receives, E23, E30, W40.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {

void Rules::check_receive(Object& queue, const PostedReceive& receive, Here here) {
  if (queue.made.kind != Kind::kQp || queue.dead) return;
  ++queue.receives;
  check_lkeys(receive.sinks, queue, here);
  const auto finding = [&](std::string text) {
    Finding out{"W21", std::string(here.call), std::move(text), here.at, {made_note(queue)}};
    place_(out);
    return out;
  };
  if (receive.sges > queue.made.receive_sges) {
    report_(finding("a receive with " + plural(receive.sges, "SGE") + ", and " +
                    std::to_string(queue.made.receive_sges) + " asked for (max_recv_sge)"));
  }
  if (queue.receives != std::size_t{queue.made.receive_depth} + 1 || queue.crowded) return;
  queue.crowded = finding("the receive queue would be full: " + std::to_string(queue.receives) +
                          " receives, and " + std::to_string(queue.made.receive_depth) +
                          " were asked for (max_recv_wr)");
}

// A program may post until it is refused.
void Rules::not_posted_receive(const PostedReceive& receive) {
  sinks_.take_back(receive.queue, receive.wr_id, receive.sinks);
  Object* const queue = find(receive.queue);
  if (queue == nullptr || queue->receives == 0) return;
  --queue->receives;
  queue->crowded.reset();
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

void Rules::armed(const void* cq, std::size_t queued, Here here) {
  Object* const object = find(cq);
  if (object == nullptr) return;
  object->armed_with = queued;
  object->armed_at = here.at;
}

void Rules::polls(const void* cq) {
  if (Object* const object = find(cq)) object->armed_with = 0;
}

void Rules::waits(const void* channel, Here here) {
  for (auto& [handle, object] : objects_) {
    if (object.dead || object.made.kind != Kind::kCq || object.armed_with == 0) continue;
    if (object.made.parents.front() != channel) continue;
    report_({"W40",
             std::string(here.call),
             "waits for an event, and " +
                 plural(std::exchange(object.armed_with, 0), "completion") +
                 " came before the queue was armed, which make none",
             here.at,
             {made_note(object), {"armed", object.armed_at}}});
  }
}

}  // namespace weft::check
