// Requests and receives, as the rules of `weft run --check` and the faults of `weft run --faults`
// get to see them.
#include <weft/limits.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ibverbs/devices.h"
#include "ibverbs/local_keys.h"
#include "ibverbs/observed.h"
#include "ibverbs/post.h"

namespace weft::ibverbs {
namespace {

const char* name_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND: return "a Send";
    case IBV_WR_SEND_WITH_IMM: return "a Send with immediate data";
    case IBV_WR_SEND_WITH_INV: return "a Send with invalidate";
    case IBV_WR_RDMA_WRITE: return "an RDMA Write";
    case IBV_WR_RDMA_WRITE_WITH_IMM: return "an RDMA Write with immediate data";
    case IBV_WR_RDMA_READ: return "an RDMA Read";
    case IBV_WR_ATOMIC_CMP_AND_SWP: return "an atomic compare and swap";
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return "an atomic fetch and add";
    case IBV_WR_LOCAL_INV: return "a local invalidation";
    case IBV_WR_BIND_MW: return "a bind";
    default: return "a request";
  }
}

const char* name_of(SendOp op) {
  switch (op) {
    case SendOp::kWrite: return "an RDMA Write";
    case SendOp::kWriteImm: return "an RDMA Write with immediate data";
    case SendOp::kRead: return "an RDMA Read";
    case SendOp::kCmpSwap: return "an atomic compare and swap";
    case SendOp::kFetchAdd: return "an atomic fetch and add";
    case SendOp::kSend: return "a Send";
    default: return "a request";
  }
}

bool is_sink(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// That of <weft/types.h>, which a request of the extended interface has.
std::uint8_t op_of(ibv_wr_opcode opcode) {
  const auto number = [](SendOp op) { return static_cast<std::uint8_t>(op); };
  switch (opcode) {
    case IBV_WR_SEND: return number(SendOp::kSend);
    case IBV_WR_SEND_WITH_IMM: return number(SendOp::kImmediate);
    case IBV_WR_SEND_WITH_INV: return number(SendOp::kSendInvalidate);
    case IBV_WR_RDMA_WRITE: return number(SendOp::kWrite);
    case IBV_WR_RDMA_WRITE_WITH_IMM: return number(SendOp::kWriteImm);
    case IBV_WR_RDMA_READ: return number(SendOp::kRead);
    case IBV_WR_ATOMIC_CMP_AND_SWP: return number(SendOp::kCmpSwap);
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return number(SendOp::kFetchAdd);
    case IBV_WR_LOCAL_INV: return number(SendOp::kLocalInvalidate);
    case IBV_WR_BIND_MW: return number(SendOp::kBindWindow);
    default: return check::Posted::kNoOp;
  }
}

// The octets behind SGEs. Only rules want them.
template <class Sges>
std::vector<check::Octets> octets_of(const Sges& sges) {
  std::vector<check::Octets> out;
  if (!checked) return out;
  for (const auto& sge : sges) {
    if (sge.length != 0)
      out.push_back({sge.addr, sge.length, engine_key(sge.lkey), is_lkey(sge.lkey)});
  }
  return out;
}

// Its SGEs. One with too many of them is refused, and its list is perhaps none. That of some is not
// used.
std::span<const ibv_sge> list_of(const ibv_send_wr& wr) {
  const bool has_list = wr.opcode != IBV_WR_LOCAL_INV && wr.opcode != IBV_WR_BIND_MW &&
                        wr.num_sge > 0 && wr.num_sge <= static_cast<int>(limits::kSgesPerRequest);
  return {wr.sg_list, has_list ? static_cast<std::size_t>(wr.num_sge) : 0};
}
std::span<const ibv_sge> list_of(const ibv_recv_wr& wr) {
  const bool fits = wr.num_sge > 0 && wr.num_sge <= static_cast<int>(limits::kSgesPerRequest);
  return {wr.sg_list, fits ? static_cast<std::size_t>(wr.num_sge) : 0};
}

std::uint64_t octets_behind(std::span<const ibv_sge> sges) {
  std::uint64_t out = 0;
  for (const ibv_sge& sge : sges) out += sge.length;
  return out;
}

// One that is not known is refused, and nothing behind it is looked at.
bool is_known(const ibv_send_wr& wr) { return op_of(wr.opcode) != check::Posted::kNoOp; }
bool is_known(const ibv_recv_wr& /*wr*/) { return true; }

// Those of a list, where somebody wants them.
template <class Request>
std::uint64_t octets_posted(const Request* wr) {
  std::uint64_t out = 0;
  if (observer == nullptr || !observer->wants_octets()) return out;
  for (; wr != nullptr && is_known(*wr); wr = wr->next) out += octets_behind(list_of(*wr));
  return out;
}

check::Posted posted(ibv_qp* handle, const ibv_send_wr& wr) {
  check::Posted out;
  out.qp = handle;
  out.follower = qp_of(handle)->follower.get();
  out.wr_id = wr.wr_id;
  out.opcode = name_of(wr.opcode);
  out.op = op_of(wr.opcode);
  out.signaled = (wr.send_flags & IBV_SEND_SIGNALED) != 0 || qp_of(handle)->signal_all;
  const auto list = list_of(wr);
  out.bytes = octets_behind(list);
  out.sges = list.size();
  out.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (is_sink(wr.opcode)) {
    out.sinks = octets_of(list);
  } else if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
    out.sources = octets_of(list);
  }
  out.sinks_need_remote = wr.opcode == IBV_WR_RDMA_READ && !is_roce();
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      out.remote_addr = wr.wr.rdma.remote_addr;
      out.rkey = wr.wr.rdma.rkey;
      out.has_remote = true;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      out.remote_addr = wr.wr.atomic.remote_addr;
      out.rkey = wr.wr.atomic.rkey;
      out.has_remote = true;
      break;
    default: break;
  }
  out.rkey_is_lkey = out.has_remote && is_lkey(out.rkey);
  return out;
}

// With the engine's lkeys.
template <class Request>
void translate(Request& wr, ibv_sge* sges) {
  const auto list = list_of(wr);
  if (list.empty()) return;
  std::ranges::copy(list, sges);
  for (std::size_t i = 0; i < list.size(); ++i) sges[i].lkey = engine_key(sges[i].lkey);
  wr.sg_list = sges;
}

// True: it is to be lost.
bool tell_posting(ibv_qp* handle, const ibv_send_wr& wr) {
  if (observer == nullptr) return false;
  observer->posting(posted(handle, wr));
  if (wr.opcode == IBV_WR_LOCAL_INV) observer->invalidated(wr.invalidate_rkey, false);
  if (wr.opcode == IBV_WR_BIND_MW)
    observe_key(wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
  return observer->loses(handle, wr.wr_id);
}

void tell_refused(ibv_qp* handle) {
  if (observer != nullptr) observer->not_posted(handle);
}

// Refuses the whole list, or all but its first request.
template <class Queue, class Request>
int refuse(const MayFail& failing, Queue* queue, Request* wr, Request** bad,
           int (*post)(Queue*, Request*, Request**)) {
  Request* refused = wr;
  if (failing.second()) {
    Request first = *wr;
    first.next = nullptr;
    Request* unused = nullptr;
    if (const int error = post(queue, &first, &unused); error != 0) {
      if (bad != nullptr) *bad = wr;
      return error;
    }
    refused = wr->next;
  }
  if (bad != nullptr) *bad = refused;
  return fail_number(failing.error());
}

// The functions of a table that post. `one`: who may do so. `qp`: the handle of the queue pair that
// it is about, or null.
template <class Queue, class Request>
int post_that_may_fail(const char* call, OneThread& one, const void* qp, Queue* queue, Request* wr,
                       Request** bad, int (*post)(Queue*, Request*, Request**)) {
  observe_heir(queue, call);
  const InCall in(call);
  const Alone promised(one, queue, call);
  const MayFail may_fail(call, qp, wr != nullptr && wr->next != nullptr,
                         qp != nullptr ? octets_posted(wr) : 0);
  if (may_fail.error() != 0) return refuse(may_fail, queue, wr, bad, post);
  return post(queue, wr, bad);
}

int tell_and_post(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post_send_told(handle, wr, bad,
                        {tell_posting, tell_refused, checked ? translate<ibv_send_wr> : nullptr});
}

int observed_post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post_that_may_fail("ibv_post_send", qp_of(handle)->one_sends, handle, handle, wr, bad,
                            tell_and_post);
}

check::Follower* follower_of(ibv_qp* handle) { return qp_of(handle)->follower.get(); }
check::Follower* follower_of(ibv_srq* handle) { return srq_of(handle)->follower.get(); }

template <class Queue>
void tell_receives(Queue* queue, const ibv_recv_wr* wr,
                   void (check::Observer::*what)(const check::PostedReceive&)) {
  for (; observer != nullptr && wr != nullptr; wr = wr->next) {
    const auto list = list_of(*wr);
    (observer->*what)({queue, wr->wr_id, octets_of(list),
                       static_cast<std::size_t>(std::max(wr->num_sge, 0)), follower_of(queue),
                       octets_behind(list)});
  }
}

// One by one, with the engine's keys.
template <class Queue>
int post_translated(Queue* queue, ibv_recv_wr* wr, ibv_recv_wr** bad,
                    int (*post)(Queue*, ibv_recv_wr*, ibv_recv_wr**)) {
  if (!checked) return post(queue, wr, bad);
  std::array<ibv_sge, limits::kSgesPerRequest> sges;
  for (; wr != nullptr; wr = wr->next) {
    ibv_recv_wr one = *wr;
    one.next = nullptr;
    translate(one, sges.data());
    ibv_recv_wr* unused = nullptr;
    const int error = post(queue, &one, &unused);
    if (error == 0) continue;
    if (bad != nullptr) *bad = wr;
    return error;
  }
  return 0;
}

// They are told of before, for a receive may be polled before the call is back; and those that were
// refused are taken back.
template <class Queue>
int post_receives_told(Queue* queue, ibv_recv_wr* wr, ibv_recv_wr** bad,
                       int (*post)(Queue*, ibv_recv_wr*, ibv_recv_wr**)) {
  tell_receives(queue, wr, &check::Observer::posting_receive);
  ibv_recv_wr* refused = nullptr;
  const int error = post_translated(queue, wr, &refused, post);
  if (error == 0) return 0;
  tell_receives(queue, refused, &check::Observer::not_posted_receive);
  if (bad != nullptr && refused != nullptr) *bad = refused;
  return error;
}

int tell_and_post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_receives_told(handle, wr, bad, post_recv);
}

int tell_and_post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_receives_told(handle, wr, bad, post_srq_recv);
}

int observed_post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_that_may_fail("ibv_post_recv", qp_of(handle)->one_receives, handle, handle, wr, bad,
                            tell_and_post_recv);
}

int observed_post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_that_may_fail("ibv_post_srq_recv", srq_of(handle)->one_thread, nullptr, handle, wr,
                            bad, tell_and_post_srq_recv);
}

}  // namespace

void observe_request(Qp& qp, BuiltRequest& request) {
  check::Posted out;
  out.qp = handle_of(qp);
  out.follower = qp.follower.get();
  out.wr_id = request.wr.wr_id;
  out.opcode = name_of(request.wr.op);
  out.op = static_cast<std::uint8_t>(request.wr.op);
  out.signaled = qp.signal_all || has(request.wr.flags, SendFlags::kSignaled);
  out.remote_addr = request.wr.remote_addr;
  out.rkey = request.wr.rkey;
  out.has_remote = out.rkey != 0;
  for (const Sge& sge : request.wr.sges) out.bytes += sge.length;
  out.sges = request.wr.sges.size();
  out.is_inline = request.is_inline;
  if (const SendOp op = request.wr.op;
      op == SendOp::kRead || op == SendOp::kCmpSwap || op == SendOp::kFetchAdd) {
    out.sinks = octets_of(request.wr.sges);
  } else if (!request.is_inline) {
    out.sources = octets_of(request.wr.sges);
  }
  out.sinks_need_remote = request.wr.op == SendOp::kRead && !is_roce();
  out.rkey_is_lkey = out.has_remote && is_lkey(out.rkey);
  observer->posting(out);
  if (request.wr.op == SendOp::kLocalInvalidate)
    observer->invalidated(request.wr.invalidate_rkey, false);
  if (request.wr.op == SendOp::kBindWindow) {
    observe_key(request.bind.handle, request.wr.rkey,
                {nullptr, request.wr.remote_addr, request.wr.window_length,
                 static_cast<unsigned>(request.wr.window_access)});
  }
  if (!observer->loses(out.qp, out.wr_id)) return;
  static const Sge nowhere{0, 1, kNoKey};
  request.wr.op = SendOp::kSend;
  request.wr.sges = std::span(&nowhere, 1);
  request.wr.flags = out.signaled ? SendFlags::kSignaled : SendFlags::kNone;
}

void observe_bind(Qp& qp, const ibv_mw_bind& bind) {
  check::Posted out;
  out.qp = handle_of(qp);
  out.follower = qp.follower.get();
  out.wr_id = bind.wr_id;
  out.opcode = name_of(IBV_WR_BIND_MW);
  out.op = op_of(IBV_WR_BIND_MW);
  out.signaled = (bind.send_flags & IBV_SEND_SIGNALED) != 0 || qp.signal_all;
  observer->posting(out);
}

void observe_posts(ibv_context_ops& ops) {
  ops.post_srq_recv = observed_post_srq_recv;
  ops.post_send = observed_post_send;
  ops.post_recv = observed_post_recv;
}

}  // namespace weft::ibverbs
