#include "ibverbs/likeness.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "check/observer.h"
#include "ibverbs/errors.h"
#include "os/guarded.h"
#include "os/guest_output.h"
#include "os/say.h"

namespace weft::ibverbs {

constinit const like::Profile* likeness = nullptr;

namespace {

using like::Act;
using like::Number;
using like::Size;

// Never destroyed: threads of the program may call on while it exits.
__attribute__((constructor)) void start_imitating() {
  const char* text = secure_getenv("WEFT_LIKE");
  if (text == nullptr || text[0] == '\0') return;
  auto profile = like::parse(text);
  if (!profile) return os::say("weft: WEFT_LIKE: %s\n", profile.error().c_str());
  likeness = new like::Profile(std::move(*profile));
  static_cast<void>(os::may_say());
}

const char* device_name() {
  const auto found = likeness->lines().find("device");
  return found != likeness->lines().end() ? found->second.c_str() : "the profile";
}

std::array<std::atomic<bool>, static_cast<std::size_t>(Act::kCount)> said_of_acts;

bool first_time(Act what) {
  return !said_of_acts[static_cast<std::size_t>(what)].exchange(true, std::memory_order_relaxed);
}

template <class T>
void lower(T& value, Number limit) {
  const auto other = likeness->number(limit);
  if (other && *other < static_cast<std::uint64_t>(value)) value = static_cast<T>(*other);
}

// The largest of 256, 512, ... that is at most so many octets.
ibv_mtu mtu_of(std::uint64_t bytes) {
  int out = IBV_MTU_256;
  while (out < IBV_MTU_4096 && (std::uint64_t{256} << static_cast<unsigned>(out)) <= bytes) ++out;
  return static_cast<ibv_mtu>(out);
}

ibv_atomic_cap atomic_cap_of(like::Atomics atomics) {
  return atomics == like::Atomics::kNone  ? IBV_ATOMIC_NONE
         : atomics == like::Atomics::kHca ? IBV_ATOMIC_HCA
                                          : IBV_ATOMIC_GLOB;
}

Act act_of(const ibv_send_wr& wr) {
  switch (wr.opcode) {
    case IBV_WR_SEND_WITH_IMM:
      return wr.num_sge > 0 ? Act::kPostSendWithImm : Act::kPostSendWithImmOnly;
    case IBV_WR_SEND_WITH_INV: return Act::kPostSendWithInv;
    case IBV_WR_RDMA_WRITE: return Act::kPostRdmaWrite;
    case IBV_WR_RDMA_WRITE_WITH_IMM: return Act::kPostRdmaWriteWithImm;
    case IBV_WR_RDMA_READ: return Act::kPostRdmaRead;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return Act::kPostAtomicCmpAndSwp;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return Act::kPostAtomicFetchAndAdd;
    case IBV_WR_LOCAL_INV: return Act::kPostLocalInv;
    case IBV_WR_BIND_MW: return Act::kPostBindMw;
    default: return Act::kPostSend;
  }
}

int refused_request(const ibv_send_wr& wr) {
  if (const int error = refused(act_of(wr)); error != 0) return error;
  if (wr.opcode != IBV_WR_RDMA_READ || wr.num_sge < 0) return 0;
  return refused_read(static_cast<std::size_t>(wr.num_sge));
}

// The functions ibv_wr_...: those of requests that the device refuses are refused here, as by
// drivers, and not when they are called.
int refused_builder(const ibv_qp_init_attr_ex& attr) {
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) == 0) return 0;
  if (const int error = refused(Act::kQpBuilder); error != 0) return error;
  constexpr struct {
    std::uint64_t flag;
    Act act;
  } kOperations[] = {{IBV_QP_EX_WITH_SEND, Act::kPostSend},
                     {IBV_QP_EX_WITH_RDMA_WRITE, Act::kPostRdmaWrite},
                     {IBV_QP_EX_WITH_SEND_WITH_IMM, Act::kPostSendWithImm},
                     {IBV_QP_EX_WITH_SEND_WITH_INV, Act::kPostSendWithInv},
                     {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, Act::kPostRdmaWriteWithImm},
                     {IBV_QP_EX_WITH_RDMA_READ, Act::kPostRdmaRead},
                     {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, Act::kPostAtomicCmpAndSwp},
                     {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, Act::kPostAtomicFetchAndAdd},
                     {IBV_QP_EX_WITH_LOCAL_INV, Act::kPostLocalInv},
                     {IBV_QP_EX_WITH_BIND_MW, Act::kPostBindMw}};
  for (const auto& operation : kOperations) {
    if ((attr.send_ops_flags & operation.flag) != 0 && refused(operation.act) != 0)
      return EOPNOTSUPP;
  }
  return 0;
}

int (*next_post_send)(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) = nullptr;

int fail_post(int error, ibv_send_wr* at, ibv_send_wr** bad) {
  if (bad != nullptr) *bad = at;
  if (observer == nullptr) return fail_number(error);
  observer->in_call("ibv_post_send");
  static_cast<void>(fail_number(error));
  observer->in_call(nullptr);
  return error;
}

// Posts the first `count` requests of a list. It is not cut for that: other threads may post the
// same list.
int post_first(ibv_qp* qp, ibv_send_wr* wr, std::size_t count, ibv_send_wr** bad) {
  std::vector<ibv_send_wr> copies;
  copies.reserve(count);
  for (const ibv_send_wr* one = wr; copies.size() < count; one = one->next) copies.push_back(*one);
  for (std::size_t i = 0; i + 1 < count; ++i) copies[i].next = &copies[i + 1];
  copies.back().next = nullptr;
  ibv_send_wr* refused_copy = nullptr;
  const int error = next_post_send(qp, copies.data(), &refused_copy);
  if (error == 0 || bad == nullptr) return error;
  *bad = wr;
  for (const ibv_send_wr* copy = copies.data(); copy != refused_copy && copy != nullptr;
       copy = copy->next) {
    *bad = (*bad)->next;
  }
  return error;
}

// Requests before the first that is refused are posted, as by any device.
int imitating_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  std::size_t before = 0;
  for (ibv_send_wr* one = wr; one != nullptr; one = one->next, ++before) {
    const int error = refused_request(*one);
    if (error == 0) continue;
    if (before != 0) {
      const auto posted =
          os::guarded([&]() -> Result<int> { return post_first(qp, wr, before, bad); });
      if (!posted) return fail_post(errno_of(posted.error()), wr, bad);
      if (*posted != 0) return *posted;
    }
    return fail_post(error, one, bad);
  }
  return next_post_send(qp, wr, bad);
}

}  // namespace

int refused(Act what) noexcept {
  if (likeness == nullptr) return 0;
  const int error = likeness->refusal(what);
  if (error != 0 && first_time(what)) {
    os::tell_user("weft: as %s, %.*s is refused: %s\n", device_name(),
                  static_cast<int>(like::name_of(what).size()), like::name_of(what).data(),
                  strerrorname_np(error));
  }
  return error;
}

int refused(Act beyond, Number limit, std::uint64_t asked) noexcept {
  if (likeness == nullptr) return 0;
  const auto most = likeness->number(limit);
  if (!most || asked <= *most) return 0;
  const int said = likeness->refusal(beyond);
  const int error = said != 0 || likeness->lines().contains(like::name_of(beyond)) ? said : EINVAL;
  if (error != 0 && first_time(beyond)) {
    os::tell_user("weft: as %s, %.*s is refused: %s: %llu were asked for, and %.*s is %llu\n",
                  device_name(), static_cast<int>(like::name_of(beyond).size()),
                  like::name_of(beyond).data(), strerrorname_np(error),
                  static_cast<unsigned long long>(asked),
                  static_cast<int>(like::name_of(limit).size()), like::name_of(limit).data(),
                  static_cast<unsigned long long>(*most));
  }
  return error;
}

int refused_one_more(Number limit, std::size_t count) noexcept {
  if (likeness == nullptr) return 0;
  const auto most = likeness->number(limit);
  if (!most || count < *most) return 0;
  static std::array<std::atomic<bool>, static_cast<std::size_t>(Number::kCount)> said;
  if (!said[static_cast<std::size_t>(limit)].exchange(true, std::memory_order_relaxed)) {
    os::tell_user("weft: as %s, one more is refused: ENOMEM: %.*s is %llu\n", device_name(),
                  static_cast<int>(like::name_of(limit).size()), like::name_of(limit).data(),
                  static_cast<unsigned long long>(*most));
  }
  return ENOMEM;
}

int refused_qp(const ibv_qp_init_attr_ex& attr) noexcept {
  if (likeness == nullptr) return 0;
  const Act type = attr.qp_type == IBV_QPT_UD   ? Act::kQpUd
                   : attr.qp_type == IBV_QPT_UC ? Act::kQpUc
                                                : Act::kQpRc;
  int error = refused(type);
  if (error == 0) error = refused_builder(attr);
  const ibv_qp_cap& cap = attr.cap;
  const struct {
    Act beyond;
    Number limit;
    std::uint32_t asked;
  } wishes[] = {{Act::kQpSendWrBeyond, Number::kMaxQpWr, cap.max_send_wr},
                {Act::kQpRecvWrBeyond, Number::kMaxQpWr, cap.max_recv_wr},
                {Act::kQpSendSgeBeyond, Number::kMaxSge, cap.max_send_sge},
                {Act::kQpRecvSgeBeyond, Number::kMaxSge, cap.max_recv_sge},
                {Act::kQpInlineBeyond, Number::kMaxInline, cap.max_inline_data}};
  for (const auto& wish : wishes) {
    if (error == 0) error = refused(wish.beyond, wish.limit, wish.asked);
  }
  return error;
}

int refused_srq(const ibv_srq_attr& attr) noexcept {
  int error = refused(Act::kSrqCreate);
  if (error == 0) error = refused(Act::kSrqWrBeyond, Number::kMaxSrqWr, attr.max_wr);
  if (error == 0) error = refused(Act::kSrqSgeBeyond, Number::kMaxSrqSge, attr.max_sge);
  return error;
}

int refused_read(std::size_t sges) noexcept {
  return refused(Act::kPostReadSgeBeyond, Number::kMaxSgeRd, sges);
}

int refused_access(unsigned flags) noexcept {
  if (likeness == nullptr) return 0;
  constexpr struct {
    unsigned flag;
    Act act;
  } kActs[] = {{IBV_ACCESS_LOCAL_WRITE, Act::kMrLocalWrite},
               {IBV_ACCESS_REMOTE_WRITE, Act::kMrRemoteWrite},
               {IBV_ACCESS_REMOTE_READ, Act::kMrRemoteRead},
               {IBV_ACCESS_REMOTE_ATOMIC, Act::kMrRemoteAtomic},
               {IBV_ACCESS_MW_BIND, Act::kMrMwBind},
               {IBV_ACCESS_ZERO_BASED, Act::kMrZeroBased},
               {IBV_ACCESS_ON_DEMAND, Act::kMrOnDemand},
               {IBV_ACCESS_RELAXED_ORDERING, Act::kMrRelaxedOrdering}};
  for (const auto& right : kActs) {
    if ((flags & right.flag) == 0) continue;
    if (const int error = refused(right.act); error != 0) return error;
  }
  return 0;
}

int refused_window(ibv_mw_type type) noexcept {
  return refused(type == IBV_MW_TYPE_1 ? Act::kMwType1 : Act::kMwType2);
}

void imitate(ibv_device_attr& attr) noexcept {
  if (likeness == nullptr) return;
  lower(attr.max_mr_size, Number::kMaxMrSize);
  lower(attr.max_qp, Number::kMaxQp);
  lower(attr.max_qp_wr, Number::kMaxQpWr);
  lower(attr.max_sge, Number::kMaxSge);
  lower(attr.max_sge_rd, Number::kMaxSgeRd);
  lower(attr.max_cq, Number::kMaxCq);
  lower(attr.max_cqe, Number::kMaxCqe);
  lower(attr.max_mr, Number::kMaxMr);
  lower(attr.max_mw, Number::kMaxMw);
  lower(attr.max_pd, Number::kMaxPd);
  lower(attr.max_qp_rd_atom, Number::kMaxQpRdAtom);
  lower(attr.max_qp_init_rd_atom, Number::kMaxQpInitRdAtom);
  lower(attr.max_res_rd_atom, Number::kMaxResRdAtom);
  lower(attr.max_ah, Number::kMaxAh);
  lower(attr.max_srq, Number::kMaxSrq);
  lower(attr.max_srq_wr, Number::kMaxSrqWr);
  lower(attr.max_srq_sge, Number::kMaxSrqSge);
  if (const auto flags = likeness->number(Number::kDeviceCapFlags))
    attr.device_cap_flags &= static_cast<unsigned>(*flags);
  if (const auto atomics = likeness->atomics())
    attr.atomic_cap = std::min(attr.atomic_cap, atomic_cap_of(*atomics));
}

void imitate(ibv_port_attr& attr) noexcept {
  if (likeness == nullptr) return;
  if (const auto mtu = likeness->number(Number::kPortMaxMtu))
    attr.max_mtu = std::min(attr.max_mtu, mtu_of(*mtu));
  if (const auto mtu = likeness->number(Number::kPortActiveMtu))
    attr.active_mtu = std::min(attr.active_mtu, mtu_of(*mtu));
  attr.active_mtu = std::min(attr.active_mtu, attr.max_mtu);
  lower(attr.gid_tbl_len, Number::kPortGidTblLen);
  lower(attr.max_msg_sz, Number::kPortMaxMsgSz);
}

void imitate(ibv_qp_cap& granted, const ibv_qp_cap& asked) noexcept {
  if (likeness == nullptr) return;
  granted.max_send_wr =
      likeness->granted(Size::kSendWr, std::max(asked.max_send_wr, 1U), granted.max_send_wr);
  granted.max_recv_wr =
      likeness->granted(Size::kRecvWr, std::max(asked.max_recv_wr, 1U), granted.max_recv_wr);
  const auto most = likeness->number(Number::kMaxInline);
  const auto least = likeness->number(Number::kInlineOfNone);
  if (!most && !least) return;
  const std::uint64_t wanted = std::max<std::uint64_t>(asked.max_inline_data, least.value_or(0));
  granted.max_inline_data = static_cast<std::uint32_t>(
      std::min({wanted, most.value_or(wanted), std::uint64_t{granted.max_inline_data}}));
}

std::uint32_t imitate(Size size, std::uint32_t asked, std::uint32_t granted) noexcept {
  return likeness == nullptr ? granted : likeness->granted(size, asked, granted);
}

void imitate(ibv_context_ops& ops) noexcept {
  if (likeness == nullptr) return;
  next_post_send = ops.post_send;
  ops.post_send = imitating_post_send;
}

}  // namespace weft::ibverbs
