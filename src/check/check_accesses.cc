// The rules about memory that the peer uses, or that several write to: E13, W15, N14.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "check/check_rules.h"

namespace weft::check {
namespace {

// The values of IBV_ACCESS_REMOTE_..., which are part of the ABI.
constexpr unsigned kWriteRight = 2;
constexpr unsigned kReadRight = 4;

std::string_view access_name(unsigned how) {
  if (how == kWriteRight) return "an RDMA Write of the peer";
  return how == kReadRight ? "an RDMA Read of the peer" : "an atomic of the peer";
}

std::string text_of(const Octets& memory) {
  return plural(memory.length, "octet") + " at " + hex(memory.addr);
}

}  // namespace

bool Rules::turn_on(std::string_view rule) {
  if (rule == "N14") checks_sinks_ = true;
  if (rule == "W15") checks_writers_ = true;
  if (rule == "N52") checks_leaks_ = true;
  if (rule == "N24") checks_room_ = true;
  return rule == "N14" || rule == "W15" || rule == "N24" || rule == "N52";
}

void Rules::accessed(const Accessed& what) {
  const Object* const qp = find(what.qp);
  if (qp == nullptr || qp->dead) return;
  check_owned(*qp, what.memory, access_name(what.how));
  if (checks_writers_ && what.how == kWriteRight) check_writers(*qp, what);
}

void Rules::check_owned(const Object& qp, const Octets& memory, std::string_view by) {
  const Origin* const owner = owned_.find(memory);
  if (owner == nullptr) return;
  report_({"E13",
           "weft_own",
           text_of(memory) + " are touched by " + std::string(by) +
               ", while the program has them for itself",
           *owner,
           {made_note(qp)}});
}

// A message of another connection is under way to the same octets.
void Rules::check_writers(const Object& qp, const Accessed& what) {
  // A connection that broke has no Write under way any more.
  std::erase_if(open_writes_, [&](const auto& of_qp) {
    return overlap({&what.memory, 1}, of_qp.second) && is_broken_(of_qp.first);
  });
  for (const auto& [handle, octets] : open_writes_) {
    if (handle == what.qp || !overlap({&what.memory, 1}, octets)) continue;
    // Which of the two is seen first is chance: the higher number is named, and each pair once.
    const Object* const other = find(handle);
    const bool is_higher = other == nullptr || other->made.number <= qp.made.number;
    const Object& named = is_higher ? qp : *other;
    Finding finding{"W15",
                    named.born_call,
                    "an RDMA Write to " + text_of(what.memory) +
                        ", while one of another connection goes to some of them",
                    named.born.at,
                    {made_note(named)}};
    if (other != nullptr) finding.notes.push_back(made_note(is_higher ? *other : qp));
    report_(finding);
  }
  std::vector<Octets>& mine = open_writes_[what.qp];
  if (what.begins) mine.clear();
  // A message goes on where it was.
  if (!mine.empty() && mine.back().addr + mine.back().length == what.memory.addr) {
    mine.back().length += what.memory.length;
  } else if (what.memory.length != 0) {
    mine.push_back(what.memory);
  }
  if (what.ends) open_writes_.erase(what.qp);
}

void Rules::check_sinks(const void* queue, const std::vector<Octets>& sinks, Here here) {
  if (!checks_sinks_) return;
  for (const Octets& sink : sinks) {
    const Sinks::Found other = sinks_.find(sink, [](const Octets&) { return true; });
    if (other.queue == nullptr) continue;
    Finding finding{"N14",
                    std::string(here.call),
                    text_of(sink) +
                        " are to be written by this request, and some of them by the "
                        "outstanding one with wr_id " +
                        hex(other.wr_id),
                    here.at,
                    {}};
    if (const Object* const object = find(queue)) finding.notes.push_back(made_note(*object));
    const Object* const object = queue != other.queue ? find(other.queue) : nullptr;
    if (object != nullptr) finding.notes.push_back(made_note(*object));
    return report_(finding);
  }
}

}  // namespace weft::check
