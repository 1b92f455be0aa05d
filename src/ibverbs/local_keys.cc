#include "ibverbs/local_keys.h"

#include <unordered_set>

#include "check/observer.h"
#include "ibverbs/errors.h"
#include "os/lock.h"

namespace weft::ibverbs {
namespace {

// Dead ones, too: what uses them has to fail as it does with a dead key.
struct Given {
  os::SharedMutex mutex;
  std::unordered_set<std::uint32_t> lkeys WEFT_GUARDED_BY(mutex);
};
Given& given() {
  static Given* const all = new Given;
  return *all;
}

}  // namespace

std::uint32_t give_lkey(const MemoryRegion& region) {
  if (!checked || observer == nullptr) return region.lkey();
  const std::uint32_t lkey = region.lkey() ^ check::kLkeyMark;
  const os::WriteLock lock(given().mutex);
  given().lkeys.insert(lkey);
  return lkey;
}

bool is_lkey(std::uint32_t key) {
  if (!checked || observer == nullptr) return false;
  const os::ReadLock lock(given().mutex);
  return given().lkeys.contains(key);
}

std::uint32_t engine_key(std::uint32_t key) { return is_lkey(key) ? key ^ check::kLkeyMark : key; }

}  // namespace weft::ibverbs
