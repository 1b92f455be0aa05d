// Address handles: where a datagram goes. Of a RoCE-like device only; an iWARP device has none.

#include <weft/limits.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

namespace weft::ibverbs {
namespace {

constexpr std::uint8_t kHopLimit = 64;

// As many as ibv_query_device says (max_ah).
std::atomic<std::uint32_t> handles{0};

// One more of them. It counts no more unless it is kept.
class CountedHandle {
 public:
  CountedHandle() : fits_(handles.fetch_add(1) < limits::kQueuePairs) {}
  ~CountedHandle() {
    if (!kept_) handles.fetch_sub(1);
  }
  CountedHandle(const CountedHandle&) = delete;
  CountedHandle& operator=(const CountedHandle&) = delete;
  [[nodiscard]] bool fits() const { return fits_; }
  void keep() { kept_ = true; }

 private:
  const bool fits_;
  bool kept_ = false;
};

bool is_multicast(const Gid& gid) {
  constexpr std::uint8_t kV6 = 0xff, kV4 = 0xe0, kV4Mask = 0xf0;
  const bool v4 = std::all_of(gid.begin(), gid.begin() + 10, [](auto o) { return o == 0; }) &&
                  gid[10] == 0xff && gid[11] == 0xff;
  return gid[0] == kV6 || (v4 && (gid[12] & kV4Mask) == kV4);
}

// 0 or an errno. As every RoCE device: without a GID there is no way, a LID is none.
int check(const ibv_context& context, const ibv_ah_attr& attr, OwnGid& own) {
  if (attr.is_global == 0 || attr.port_num != kPort) return EINVAL;
  if (const int error = find_gid(context, attr.grh.sgid_index, own); error != 0) return error;
  Gid gid;
  std::copy_n(attr.grh.dgid.raw, gid.size(), gid.begin());
  if (is_multicast(gid)) return EOPNOTSUPP;
  return address_of(gid, 0) ? 0 : EINVAL;
}

ibv_ah* create_ah(ibv_pd* handle, const ibv_ah_attr& attr) {
  return or_null([&]() -> ibv_ah* {
    if (!is_roce()) return fail_null(EOPNOTSUPP);
    const auto pd = registry::find<Pd>(handle);
    if (!pd) return fail_null(EINVAL);
    auto ah = std::make_unique<Ah>();
    if (const int error = check(*handle->context, attr, ah->own); error != 0) {
      return fail_null(error);
    }
    if (!ah->pd.take(pd.object())) return fail_null(EINVAL);
    std::copy_n(attr.grh.dgid.raw, ah->gid.size(), ah->gid.begin());
    ah->traffic_class = attr.grh.traffic_class;
    ah->hop_limit = attr.grh.hop_limit;
    ah->pub.context = handle->context;
    ah->pub.pd = handle;
    CountedHandle counted;
    if (!counted.fits()) return fail_null(ENOMEM);
    ibv_ah* const out = registry::adopt(std::move(ah));
    counted.keep();
    return out;
  });
}

// The way back to the sender of a datagram. 0 or an errno.
int way_back(const ibv_context& context, const ibv_wc& wc, const ibv_grh* grh, std::uint8_t port,
             ibv_ah_attr& attr) {
  if (port != kPort || (wc.wc_flags & IBV_WC_GRH) == 0 || grh == nullptr) return EINVAL;
  const auto* octets = reinterpret_cast<const std::uint8_t*>(grh);
  const auto sender = sender_of_datagram({octets, sizeof *grh});
  if (!sender) return EINVAL;
  attr = {};
  attr.port_num = port;
  attr.sl = wc.sl;
  attr.is_global = 1;
  std::copy(sender->gid.begin(), sender->gid.end(), attr.grh.dgid.raw);
  attr.grh.sgid_index = index_of_gid(context, sender->own.gid);
  attr.grh.traffic_class = sender->traffic_class;
  attr.grh.hop_limit = kHopLimit;
  return 0;
}

}  // namespace
}  // namespace weft::ibverbs

using namespace weft::ibverbs;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (!registry::find<Pd>(pd)) return forward_null(WEFT_REAL(ibv_create_ah), pd, attr);
  WEFT_MAY_FAIL(ibv_create_ah, fail_null);
  return attr != nullptr ? create_ah(pd, *attr) : fail_null(EINVAL);
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  if (!registry::find<Pd>(pd)) {
    return forward_null(WEFT_REAL(ibv_create_ah_from_wc), pd, wc, grh, port_num);
  }
  WEFT_MAY_FAIL(ibv_create_ah_from_wc, fail_null);
  if (!is_roce()) return fail_null(EOPNOTSUPP);
  ibv_ah_attr attr{};
  const int error = wc != nullptr ? way_back(*pd->context, *wc, grh, port_num, attr) : EINVAL;
  return error == 0 ? create_ah(pd, attr) : fail_null(error);
}

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* attr) {
  if (!registry::find<Context>(context)) {
    return forward_int(WEFT_REAL(ibv_init_ah_from_wc), context, port_num, wc, grh, attr);
  }
  if (!is_roce()) return fail_number(EOPNOTSUPP);
  if (wc == nullptr || attr == nullptr) return fail_number(EINVAL);
  return fail_number(way_back(*context, *wc, grh, port_num, *attr));
}

int ibv_destroy_ah(ibv_ah* handle) {
  const auto ah = registry::find<Ah>(handle);
  if (!ah) return forward_int(WEFT_REAL(ibv_destroy_ah), handle);
  if (!registry::quarantine(handle, ah)) return fail_number(EINVAL);
  handles.fetch_sub(1);
  ah->pd.reset();
  return 0;
}

}  // extern "C"
