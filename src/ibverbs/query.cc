#include "ibverbs/query.h"

#include <endian.h>
#include <weft/limits.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ibverbs/async.h"
#include "ibverbs/context.h"
#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/ibv_device_memory.h"
#include "ibverbs/likeness.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"
#include "os/descriptor_limit.h"

#undef ibv_query_port

namespace weft::ibverbs {
namespace {

constexpr std::uint8_t kLinkUp = 5;                // phys_state
constexpr std::uint8_t kLinkDisabled = 3;          // likewise
constexpr std::uint8_t kWidth4x = 2;               // active_width
constexpr std::uint8_t kSpeed25Gbps = 32;          // active_speed, per lane
constexpr std::uint32_t kIpBasedGids = 1U << 26U;  // port_cap_flags
constexpr std::uint64_t kSpeedOfPort = 4 * 250;    // of all four lanes, in units of 100 Mbit/s

void fill_identity(ibv_device_attr& attr, const DeviceInfo& device) {
  const std::string_view version_text = version();
  std::copy_n(version_text.data(), std::min(version_text.size(), sizeof attr.fw_ver - 1),
              attr.fw_ver);
  attr.node_guid = node_guid(device);
  attr.sys_image_guid = attr.node_guid;
  attr.vendor_id = kVendorId;
  attr.vendor_part_id = kVendorPartId;
  attr.hw_ver = 0;
  attr.phys_port_cnt = 1;
  attr.max_pkeys = 1;
}

// Queue pairs that this process has descriptors for. One takes two at most: a connected one a
// socket, and one more if rdma_cm of the RoCE-like device has connected it; one of datagrams two.
// Where each connection must have a ring that is one more; with `path = auto` a connection does
// without. The others are for completion queues, for the program and for what else the device
// needs.
int queue_pairs_max(PathMode path) {
  constexpr rlim_t kOthers = 64;
  const rlim_t per_queue_pair = path == PathMode::kRing ? 3 : 2;
  const rlim_t all = os::descriptor_limit();
  const rlim_t others = kOthers + all / limits::kShareOfCompletionQueues;
  const rlim_t left = all > 2 * others ? all - others : all / 2;
  return static_cast<int>(std::min<rlim_t>(left / per_queue_pair, limits::kQueuePairs));
}

ibv_device_attr device_attributes(ibv_context* handle) {
  const Config& config = context_of(handle)->engine->config();
  ibv_device_attr attr{};
  fill_identity(attr, *info_of(handle->device));
  attr.max_mr_size = ~std::uint64_t{0};
  attr.page_size_cap = 4096;
  attr.device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW |
                          IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_SRQ_RESIZE;
  attr.max_qp = queue_pairs_max(config.path);
  attr.max_qp_wr = static_cast<int>(limits::kWorkRequestsPerQueue);
  attr.max_sge = static_cast<int>(limits::kSgesPerRequest);
  attr.max_sge_rd = static_cast<int>(limits::kSgesPerRequest);
  attr.max_cq = static_cast<int>(limits::kCompletionQueues);
  attr.max_cqe = static_cast<int>(limits::kCompletionsPerQueue);
  attr.max_mr = static_cast<int>(limits::kMemoryRegions);
  attr.max_mw = static_cast<int>(limits::kMemoryRegions);
  attr.max_pd = static_cast<int>(limits::kProtectionDomains);
  attr.max_qp_rd_atom = config.ird;
  attr.max_qp_init_rd_atom = config.ord;
  attr.max_res_rd_atom = config.ird * static_cast<int>(limits::kQueuePairs);
  // Between QPs of this device; a CPU's own atomic instructions are not part of the promise.
  attr.atomic_cap = IBV_ATOMIC_HCA;
  if (is_roce()) {
    attr.device_cap_flags |= IBV_DEVICE_RC_RNR_NAK_GEN;
    attr.max_ah = static_cast<int>(limits::kQueuePairs);
  }
  attr.max_srq = static_cast<int>(limits::kSharedReceiveQueues);
  attr.max_srq_wr = static_cast<int>(limits::kWorkRequestsPerQueue);
  attr.max_srq_sge = static_cast<int>(limits::kSgesPerRequest);
  imitate(attr);
  return attr;
}

// Chosen from the interface's MTU as RoCE devices do it: the largest size that leaves room for
// headers.
ibv_mtu active_mtu(const DeviceInfo& device) {
  constexpr std::array<std::pair<int, ibv_mtu>, 4> kSizes = {
      {{4096, IBV_MTU_4096}, {2048, IBV_MTU_2048}, {1024, IBV_MTU_1024}, {512, IBV_MTU_512}}};
  constexpr int kHeaders = 128;
  const int mtu = interface_mtu(device);
  for (const auto& [size, value] : kSizes) {
    if (size + kHeaders <= mtu) return value;
  }
  return IBV_MTU_256;
}

ibv_port_attr port_attributes(const DeviceInfo& device) {
  ibv_port_attr attr{};
  const bool up = device.is_there && !port_is_down();
  attr.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = IBV_MTU_4096;
  attr.gid_tbl_len = static_cast<int>(gid_table_length());
  attr.max_msg_sz = limits::kMessageBytes;
  attr.pkey_tbl_len = 1;
  attr.max_vl_num = 1;
  attr.active_width = kWidth4x;
  attr.active_speed = kSpeed25Gbps;
  attr.phys_state = up ? kLinkUp : kLinkDisabled;
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  if (is_roce()) {
    attr.active_mtu = active_mtu(device);
    attr.port_cap_flags = kIpBasedGids;
    attr.flags = IBV_QPF_GRH_REQUIRED;
  }
  imitate(attr);
  return attr;
}

// `entry_size` is the size of the caller's struct; a newer header may have appended to it.
void fill_gid_entry(ibv_gid_entry* out, const OwnGid& gid, std::uint32_t index,
                    std::size_t entry_size) {
  ibv_gid_entry entry{};
  std::ranges::copy(gid.gid, entry.gid.raw);
  entry.gid_index = index;
  entry.port_num = kPort;
  entry.gid_type = is_roce() ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
  entry.ndev_ifindex = gid.interface;
  std::memset(static_cast<void*>(out), 0, entry_size);
  std::memcpy(static_cast<void*>(out), &entry, std::min(entry_size, sizeof entry));
}

}  // namespace

int query_port(ibv_context* handle, std::uint8_t port, ibv_port_attr* out, std::size_t size_bytes) {
  WEFT_MAY_FAIL(ibv_query_port, fail_number);
  if (port != kPort || out == nullptr) return fail_number(EINVAL);
  static_cast<void>(refresh_devices());  // without memory the last table is shown
  const ibv_port_attr attr = port_attributes(*info_of(handle->device));
  std::memset(static_cast<void*>(out), 0, size_bytes);
  std::memcpy(static_cast<void*>(out), &attr, std::min(size_bytes, sizeof attr));
  return 0;
}

int query_port_speed(std::uint32_t port, std::uint64_t& speed) {
  if (port != kPort) return EINVAL;
  speed = kSpeedOfPort;
  return 0;
}

int query_device(ibv_context* handle, ibv_device_attr* out) {
  WEFT_MAY_FAIL(ibv_query_device, fail_number);
  if (out == nullptr) return fail_number(EINVAL);
  *out = device_attributes(handle);
  return 0;
}

int query_device_ex(ibv_context* handle, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t size_bytes) {
  WEFT_MAY_FAIL(ibv_query_device_ex, fail_number);
  if (input != nullptr && input->comp_mask != 0) return fail_number(EINVAL);
  if (out == nullptr || size_bytes < sizeof(ibv_device_attr)) return fail_number(EINVAL);
  ibv_device_attr_ex attr{};
  attr.orig_attr = device_attributes(handle);
  attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags;
  attr.phys_port_cnt_ex = attr.orig_attr.phys_port_cnt;
  const bool has_dm = likeness == nullptr || likeness->refusal(like::Act::kDmAlloc) == 0;
  attr.max_dm_size = has_dm ? device_memory_bytes() : 0;
  std::memset(static_cast<void*>(out), 0, size_bytes);
  std::memcpy(static_cast<void*>(out), &attr, std::min(size_bytes, sizeof attr));
  return 0;
}

}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

int ibv_query_device(ibv_context* handle, ibv_device_attr* out) {
  if (registry::find<Context>(handle)) return query_device(handle, out);
  return forward_int(WEFT_REAL(ibv_query_device), handle, out);
}

// Called by binaries older than ibv_port_attr.link_layer, and by newer ones when a context has no
// query_port of its own.
int ibv_query_port(ibv_context* handle, std::uint8_t port, _compat_ibv_port_attr* out) {
  constexpr std::size_t kOldSize = offsetof(ibv_port_attr, link_layer);
  if (registry::find<Context>(handle)) {
    return query_port(handle, port, reinterpret_cast<ibv_port_attr*>(out), kOldSize);
  }
  return forward_int(WEFT_REAL(ibv_query_port), handle, port, out);
}

int ibv_query_gid(ibv_context* handle, std::uint8_t port, int index, ibv_gid* gid) {
  if (!registry::find<Context>(handle)) {
    return forward_minus(WEFT_REAL(ibv_query_gid), handle, port, index, gid);
  }
  WEFT_MAY_FAIL(ibv_query_gid, fail_minus);
  if (port != kPort || index < 0 || gid == nullptr) return fail_minus(EINVAL);
  weft::OwnGid found;  // zeros where the table has nothing
  const int error = find_gid(*handle, static_cast<std::uint32_t>(index), found);
  if (error == EINVAL) return fail_minus(EINVAL);
  std::ranges::copy(found.gid, gid->raw);
  return 0;
}

int _ibv_query_gid_ex(ibv_context* handle, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t flags, std::size_t entry_size) {
  if (!registry::find<Context>(handle)) {
    return forward_int(WEFT_REAL(_ibv_query_gid_ex), handle, port, index, entry, flags, entry_size);
  }
  WEFT_MAY_FAIL(ibv_query_gid_ex, fail_number);
  if (port != kPort || flags != 0 || entry == nullptr) return fail_number(EINVAL);
  weft::OwnGid found;
  if (const int error = find_gid(*handle, index, found); error != 0) return fail_number(error);
  fill_gid_entry(entry, found, index, entry_size);
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* handle, ibv_gid_entry* entries, std::size_t max_entries,
                             std::uint32_t flags, std::size_t entry_size) {
  if (!registry::find<Context>(handle)) {
    auto* real = WEFT_REAL(_ibv_query_gid_table);
    return real != nullptr ? real(handle, entries, max_entries, flags, entry_size) : -EINVAL;
  }
  if (flags != 0) return -EINVAL;
  if (entries == nullptr) return -EINVAL;
  std::size_t count = 0;
  for (std::uint32_t index = 0; index < gid_table_length(); ++index) {
    weft::OwnGid found;
    if (find_gid(*handle, index, found) != 0) continue;
    if (count == max_entries) return -EINVAL;  // it has to have room for all
    auto* const place = reinterpret_cast<char*>(entries) + count++ * entry_size;
    fill_gid_entry(reinterpret_cast<ibv_gid_entry*>(place), found, index, entry_size);
  }
  return static_cast<ssize_t>(count);
}

int ibv_query_pkey(ibv_context* handle, std::uint8_t port, int index, __be16* pkey) {
  if (!registry::find<Context>(handle)) {
    return forward_minus(WEFT_REAL(ibv_query_pkey), handle, port, index, pkey);
  }
  WEFT_MAY_FAIL(ibv_query_pkey, fail_minus);
  if (port != kPort || index != 0 || pkey == nullptr) return fail_minus(EINVAL);
  *pkey = htobe16(kPkey);
  return 0;
}

int ibv_get_pkey_index(ibv_context* handle, std::uint8_t port, __be16 pkey) {
  if (!registry::find<Context>(handle)) {
    return forward_minus(WEFT_REAL(ibv_get_pkey_index), handle, port, pkey);
  }
  if (port != kPort || pkey != htobe16(kPkey)) return fail_minus(EINVAL);
  return 0;
}

}  // extern "C"
