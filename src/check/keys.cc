#include "check/keys.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace weft::check {
namespace {

// The values of IBV_ACCESS_..., which are part of the ABI.
constexpr unsigned kLocalWrite = 1;
constexpr unsigned kRemoteWrite = 2;
constexpr unsigned kRemoteRead = 4;
constexpr unsigned kRemoteAtomic = 8;

std::string_view right_name(unsigned right) {
  switch (right) {
    case kLocalWrite: return "IBV_ACCESS_LOCAL_WRITE";
    case kRemoteWrite: return "IBV_ACCESS_REMOTE_WRITE";
    case kRemoteRead: return "IBV_ACCESS_REMOTE_READ";
    case kRemoteAtomic: return "IBV_ACCESS_REMOTE_ATOMIC";
    default: return "the right";
  }
}

}  // namespace

std::string hex(std::uint64_t value) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string plural(std::uint64_t count, std::string_view one) {
  return std::to_string(count) + " " + std::string(one) + (count == 1 ? "" : "s");
}

void Keys::bury(Key& key, std::string_view how, Origin at) {
  if (key.dead) return;
  key.dead = true;
  key.how = how;
  key.where = at;
  of_.erase(key.is.object);
  dead_.push_back(key.is.key);
  if (dead_.size() <= kDead) return;
  const auto oldest = keys_.find(dead_.front());
  if (oldest != keys_.end() && oldest->second.dead) {
    open_.remove(opened_by(oldest->second.is));
    keys_.erase(oldest);
  }
  dead_.pop_front();
}

void Keys::made(const Keyed& key, std::string_view name, Origin at) {
  died(key.object, "replaced", at);
  if (key.length == 0) return;
  if (const auto other = keys_.find(key.key); other != keys_.end())
    open_.remove(opened_by(other->second.is));
  open_.add(opened_by(key));
  keys_.insert_or_assign(key.key, Key{key, name, at, false, {}, 0});
  of_.insert_or_assign(key.object, key.key);
}

std::vector<Octets> Keys::opened_by(const Keyed& key) {
  if ((key.rights & (kRemoteWrite | kRemoteAtomic)) == 0) return {};
  return {{key.memory, key.length}};
}

bool Keys::is_plain(std::uint32_t key) const {
  const auto at = keys_.find(key);
  return at != keys_.end() && !at->second.dead && !at->second.is.shifted;
}

void Keys::died(const void* object, std::string_view how, Origin at) {
  const auto key = of_.find(object);
  if (key == of_.end()) return;
  // Another thread's object may have got the number before this one's end is told.
  const auto found = keys_.find(key->second);
  if (found != keys_.end() && found->second.is.object == object)
    return bury(found->second, how, at);
  of_.erase(key);
}

void Keys::died(std::uint32_t key, std::string_view how, Origin at) {
  if (const auto found = keys_.find(key); found != keys_.end()) bury(found->second, how, at);
}

const Keys::Key* Keys::find(std::uint32_t key) const {
  const auto found = keys_.find(key);
  return found != keys_.end() ? &found->second : nullptr;
}

bool Keys::lives(std::uint32_t key) const {
  const Key* const found = find(key);
  return found != nullptr && !found->dead;
}

bool Keys::lacks(std::uint32_t key, unsigned right) const {
  return lives(key) && (find(key)->is.rights & right) == 0;
}

std::vector<Note> Keys::about(std::uint32_t key) const {
  const Key* const found = find(key);
  if (found == nullptr) return {};
  std::vector<Note> out;
  out.push_back({"this process has a " + std::string(found->name) +
                     " with that key: " + hex(found->is.first) + " to " +
                     hex(found->is.first + found->is.length) + ", made",
                 found->born});
  if (found->dead) out.push_back({"and " + std::string(found->how), found->where});
  return out;
}

std::string Keys::reason(const Refused& what) const {
  const Key* const found = find(what.key);
  if (what.why == Fault::kWrap) return "the last address passes 2^64";
  if (found == nullptr) return "nothing in this process has or had that key";
  if (found->dead) return "that key is dead: it was " + std::string(found->how);
  const std::string name(found->name);
  switch (what.why) {
    case Fault::kOwner:
      return "the " + name + " is of another protection domain, or bound to another queue pair";
    case Fault::kRight:
      if ((found->is.rights & what.need) != 0)
        return "the queue pair does not give its peer " + std::string(right_name(what.need));
      return "the " + name + " was made without " + std::string(right_name(what.need));
    case Fault::kBounds: {
      const std::uint64_t end = found->is.first + found->is.length;
      const bool begins_inside = what.addr >= found->is.first && what.addr < end;
      const std::uint64_t good = begins_inside ? std::min(end - what.addr, what.length) : 0;
      return plural(what.length - good, "octet") + " from " + hex(what.addr + good) +
             " on lie outside the " + name;
    }
    default: return "that key was not valid when the request came";
  }
}

std::string Keys::explain(const Refused& what) const {
  return plural(what.length, "octet") + " at " + hex(what.addr) +
         (what.to_peer ? " by rkey " : " by lkey ") + hex(what.shown != 0 ? what.shown : what.key) +
         ": " + reason(what);
}

}  // namespace weft::check
