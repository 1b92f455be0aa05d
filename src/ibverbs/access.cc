#include "ibverbs/access.h"

namespace weft::ibverbs {
namespace {

struct Pair {
  unsigned flag;
  Access right;
};
constexpr Pair kRights[] = {
    {IBV_ACCESS_LOCAL_WRITE, Access::kLocalWrite},
    {IBV_ACCESS_REMOTE_WRITE, Access::kRemoteWrite},
    {IBV_ACCESS_REMOTE_READ, Access::kRemoteRead},
    {IBV_ACCESS_REMOTE_ATOMIC, Access::kRemoteAtomic},
    {IBV_ACCESS_MW_BIND, Access::kBindWindow},
    {IBV_ACCESS_ZERO_BASED, Access::kZeroBased},
    {kIbvAccessUnchecked, Access::kUnchecked},
};
static_assert((kIbvAccessUnchecked & static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE)) != 0);

Access translate(unsigned flags) {
  Access access = Access::kNone;
  for (const Pair& pair : kRights) {
    if ((flags & pair.flag) != 0) access = access | pair.right;
  }
  return access;
}

constexpr unsigned kRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kOfRegions = IBV_ACCESS_LOCAL_WRITE | kRemote | IBV_ACCESS_MW_BIND |
                                IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                                static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);

}  // namespace

std::optional<Access> region_access(unsigned flags) {
  if ((flags & ~kOfRegions) != 0) return std::nullopt;
  // A zero-based region is one registered with IOVA 0; the right itself belongs to windows.
  return translate(flags & ~static_cast<unsigned>(IBV_ACCESS_ZERO_BASED));
}

std::optional<Access> window_access(unsigned flags) {
  // A window gives remote access only; drivers take the local right and ignore it.
  flags &= ~static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE);
  if ((flags & ~(kRemote | IBV_ACCESS_ZERO_BASED)) != 0) return std::nullopt;
  return translate(flags);
}

bool is_access(unsigned flags) { return (flags & ~(kOfRegions | IBV_ACCESS_ON_DEMAND)) == 0; }

Access qp_access(unsigned flags) { return translate(flags & kRemote); }

}  // namespace weft::ibverbs
