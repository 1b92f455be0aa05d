#include "exs/rdma/named_memory.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>

#include "base/bytes.h"

namespace weft::exs {
namespace {

constexpr std::uint32_t kNameMagic = 0x4558534d;  // "EXSM"
constexpr std::size_t kExportsMax = 4096;

}  // namespace

int NamedMemory::export_memory(const std::shared_ptr<Device>& device,
                               const std::shared_ptr<Region>& region, void* addr,
                               std::size_t length, int rights, exs_mname_t& name) try {
  if (exported_.size() >= kExportsMax) return ENOMEM;
  // The local right only where a remote one needs it: read-only memory may be exported for reading.
  constexpr int kChanges = EXS_MEXPORT_WRITE | EXS_MEXPORT_ATOMIC;
  int access = (rights & kChanges) != 0 ? IBV_ACCESS_LOCAL_WRITE : 0;
  if ((rights & EXS_MEXPORT_READ) != 0) access |= IBV_ACCESS_REMOTE_READ;
  if ((rights & EXS_MEXPORT_WRITE) != 0) access |= IBV_ACCESS_REMOTE_WRITE;
  if ((rights & EXS_MEXPORT_ATOMIC) != 0) access |= IBV_ACCESS_REMOTE_ATOMIC;
  Mr mr = Mr::create(device, addr, length, access);
  if (!mr) return errno;
  name = {};
  ByteWriter out(name.bytes);
  out.be32(kNameMagic);
  out.be32(mr.rkey());
  out.be64(reinterpret_cast<std::uintptr_t>(addr));
  out.be64(length);
  exported_.push_back({name, std::move(mr), region});
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int NamedMemory::unexport(const exs_mname_t& name) {
  const auto it = std::ranges::find_if(exported_, [&](const Exported& one) {
    return std::ranges::equal(one.name.bytes, name.bytes);
  });
  if (it == exported_.end()) return EINVAL;
  it->region->detach();
  exported_.erase(it);
  return 0;
}

void NamedMemory::release() {
  for (const Exported& one : exported_) one.region->detach();
  exported_.clear();
}

int NamedMemory::import_name(const exs_mname_t& name) {
  ByteReader in(name.bytes);
  if (in.be32() != kNameMagic) return -EINVAL;
  Remote out;
  out.rkey = in.be32();
  out.addr = in.be64();
  out.length = in.be64();
  if (out.length > ~out.addr) return -EINVAL;
  for (std::size_t i = 0; i < remotes_.size(); ++i) {
    if (!remotes_[i]) {
      remotes_[i] = out;
      return static_cast<int>(i);
    }
  }
  if (remotes_.size() == kExportsMax) return -ENOMEM;
  remotes_.emplace_back(out);
  return static_cast<int>(remotes_.size()) - 1;
}

int NamedMemory::unimport(int handle) {
  if (remote(handle) == nullptr) return EINVAL;
  remotes_[static_cast<std::size_t>(handle)].reset();
  return 0;
}

const NamedMemory::Remote* NamedMemory::remote(int handle) const {
  if (handle < 0 || static_cast<std::size_t>(handle) >= remotes_.size()) return nullptr;
  const auto& slot = remotes_[static_cast<std::size_t>(handle)];
  return slot ? &*slot : nullptr;
}

}  // namespace weft::exs
