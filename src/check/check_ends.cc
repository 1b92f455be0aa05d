// The rules about what is left when the process ends: N40, N42, N52, W51. And of what a child of
// fork() does with it: E61.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {
namespace {

// Calls that give back what is the child's own: memory and copies of descriptors.
constexpr std::array<std::string_view, 3> kGiveBack = {
    "ibv_close_device", "ibv_destroy_comp_channel", "rdma_destroy_event_channel"};

}  // namespace

void Rules::inherited(const void* handle, Here here) {
  const Object* const object = find(handle);
  if (object == nullptr || object->dead) return;
  if (std::ranges::find(kGiveBack, here.call) != kGiveBack.end()) return;
  report_(
      {"E61",
       std::string(here.call),
       "a child of fork() uses this " + std::string(name_of(object->made.kind)) + " of its parent",
       here.at,
       {made_note(*object)}});
}

std::vector<const Rules::Object*> Rules::alive() const {
  std::vector<const Object*> out;
  for (const auto& [handle, object] : objects_) {
    if (!object.dead && !object.of_rdma_cm) out.push_back(&object);
  }
  std::ranges::sort(out, {}, kAge);
  return out;
}

std::vector<Note> Rules::left() const {
  std::vector<Note> out;
  for (const Object* object : alive())
    out.push_back({std::string(name_of(object->made.kind)), object->born.at});
  return out;
}

void Rules::report_leaks() {
  for (const Object* object : alive()) {
    report_({"N52",
             object->born_call,
             "this " + std::string(name_of(object->made.kind)) + " was never destroyed",
             object->born.at,
             {}});
  }
}

// Whether a queue pair that completes to it is in the error state: it has flushed requests, which
// nobody needs.
bool Rules::is_broken(const void* cq, const Unreads& unread) const {
  return std::ranges::any_of(objects_, [&](const auto& entry) {
    const auto& [handle, object] = entry;
    if (object.dead || object.made.kind != Kind::kQp) return false;
    const auto left = unread.find(handle);
    return left != unread.end() && left->second.broken &&
           std::ranges::count(object.made.parents, cq) != 0;
  });
}

Finding Rules::unread_events(const Unread& left, std::string_view when) const {
  constexpr std::size_t kShown = 8;
  Finding out{"N42",
              {},
              std::string(when) + ", and " + plural(left.events.size(), "asynchronous event") +
                  " nobody has read (ibv_get_async_event)",
              0,
              {}};
  for (const Unread::Event& event : left.events) {
    if (out.notes.size() == kShown) break;
    const Object* const object = find(event.handle);
    Note note = object != nullptr ? made_note(*object) : Note{"the device", 0};
    note.text = event.name + ": " + note.text;
    out.notes.push_back(std::move(note));
  }
  return out;
}

void Rules::closing(const void* context, const Unread& left, Here here) {
  if (left.events.empty()) return;
  Finding finding = unread_events(left, "the device is closed");
  finding.call = here.call;
  finding.at = here.at;
  if (const Object* const object = find(context)) finding.notes.push_back(made_note(*object));
  report_(finding);
}

std::vector<Rules::Watched> Rules::may_have_unread() const {
  std::vector<Watched> out;
  for (const auto& [handle, object] : objects_) {
    const Kind kind = object.made.kind;
    const bool may = kind == Kind::kContext || kind == Kind::kCq || kind == Kind::kQp;
    if (may && !object.dead) out.push_back({handle, kind});
  }
  return out;
}

void Rules::report_unread(const Unreads& unread) {
  std::vector<const Object*> all;
  for (const auto& [handle, left] : unread) {
    const Object* const object = find(handle);
    if (object != nullptr && !object->dead) all.push_back(object);
  }
  std::ranges::sort(all, {}, kAge);
  for (const Object* object : all) {
    const Unread& left = unread.at(object->made.handle);
    Finding finding{"N42", {}, {}, 0, {}};
    if (!left.events.empty()) {
      finding = unread_events(left, "the process ends");
    } else if (left.completions != 0 && !is_broken(object->made.handle, unread)) {
      finding.text = "the process ends, and " + plural(left.completions, "completion") +
                     " of this completion queue nobody has polled";
    }
    if (finding.text.empty()) continue;
    finding.call = object->born_call;
    finding.at = object->born.at;
    if (left.completions != 0 && object->armed_with != 0) {
      finding.rule = "N40";
      finding.call = object->armed_call;
      finding.at = object->armed_at;
      finding.text += ": " + plural(object->armed_with, "completion") +
                      " came before it was armed, which make no event";
      finding.notes.push_back(made_note(*object));
    }
    report_(finding);
  }
}

void Rules::ended(const Unreads& unread) {
  std::vector<Object*> qps;
  for (auto& [handle, object] : objects_) {
    if (object.made.kind == Kind::kQp && !object.dead) qps.push_back(&object);
  }
  std::ranges::sort(qps, {}, kAge);
  for (Object* qp : qps) {
    sum_up_late(*qp);
    sum_up_full(*qp);
  }
  report_unread(unread);
  if (checks_leaks_) report_leaks();
  std::vector<const Object*> left;
  for (const auto& [handle, object] : objects_) {
    if (!object.dead && !object.refused_call.empty()) left.push_back(&object);
  }
  std::ranges::sort(left, {}, kAge);
  for (const Object* object : left) {
    Finding finding{"W51",
                    object->refused_call,
                    "EBUSY: this " + std::string(name_of(object->made.kind)) +
                        " was not destroyed, nor later; " +
                        plural(object->children.size(), "other object") + " depended on it",
                    object->refused.at,
                    {made_note(*object)}};
    for (const Note& child : object->children) {
      finding.notes.push_back({"it was needed by a " + child.text, child.at});
    }
    report_(finding);
  }
}

}  // namespace weft::check
