#include "ibverbs/wr_builder.h"

#include <endian.h>
#include <weft/limits.h>

#include <cerrno>
#include <cstring>

#include "ibverbs/devices.h"
#include "ibverbs/errors.h"
#include "ibverbs/likeness.h"
#include "ibverbs/local_keys.h"
#include "ibverbs/observed.h"
#include "ibverbs/post.h"
#include "ibverbs/windows.h"
#include "os/guarded.h"

namespace weft::ibverbs {
namespace {

void note(Qp& qp, int error) {
  if (qp.builder.error == 0) qp.builder.error = error;
}

// Puts something into the builder. False, and the batch is lost: there is no memory.
template <class Grow>
bool grown(Qp& qp, Grow grow) {
  const Status done = os::guarded([&]() -> Status {
    grow();
    return {};
  });
  if (!done) note(qp, errno_of(done));
  return done.has_value();
}

BuiltRequest& begin(ibv_qp_ex* handle, SendOp op) {
  Qp& qp = *qp_of(handle);
  const bool has_place = grown(qp, [&] { qp.builder.requests.emplace_back(); });
  BuiltRequest& request = has_place ? qp.builder.requests.back() : qp.builder.without_place;
  if (!has_place) request = {};
  request.wr.op = op;
  request.wr.wr_id = handle->wr_id;
  request.wr.flags = send_flags(handle->wr_flags);
  request.first_sge = qp.builder.sges.size();
  request.first_byte = qp.builder.bytes.size();
  return request;
}

BuiltRequest& begin_remote(ibv_qp_ex* handle, SendOp op, std::uint32_t rkey, std::uint64_t addr) {
  BuiltRequest& request = begin(handle, op);
  request.wr.rkey = rkey;
  request.wr.remote_addr = addr;
  return request;
}

std::uint64_t wide_immediate(__be32 imm_data) {
  return static_cast<std::uint64_t>(be32toh(imm_data)) << 32U;
}

void wr_atomic_cmp_swp(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t addr,
                       std::uint64_t compare, std::uint64_t swap) {
  BuiltRequest& request = begin(handle, SendOp::kCmpSwap);
  request.wr.rkey = rkey;
  request.wr.remote_addr = addr;
  request.wr.compare_add = compare;
  request.wr.swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t addr,
                         std::uint64_t add) {
  BuiltRequest& request = begin(handle, SendOp::kFetchAdd);
  request.wr.rkey = rkey;
  request.wr.remote_addr = addr;
  request.wr.compare_add = add;
}

// Whether the engine takes this bind, which fill_bind() has found right in itself.
bool may_bind(const Qp& qp, const BuiltRequest& request) {
  const bool is_type1 = request.bind.window->type() == MemoryWindow::Type::kType1;
  return request.bind.domain == qp.pd->engine.get() &&
         !(is_type1 && has(request.wr.window_access, Access::kZeroBased));
}

void wr_bind_mw(ibv_qp_ex* handle, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  BuiltRequest& request = begin(handle, SendOp::kBindWindow);
  Qp& qp = *qp_of(handle);
  int error = fill_bind(request.wr, request.bind, mw, rkey, *info);
  if (error == 0 && !may_bind(qp, request)) error = EINVAL;
  if (error != 0) note(qp, error);
}

void wr_local_inv(ibv_qp_ex* handle, std::uint32_t rkey) {
  begin(handle, SendOp::kLocalInvalidate).wr.invalidate_rkey = rkey;
}

void wr_rdma_read(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t addr) {
  begin_remote(handle, SendOp::kRead, rkey, addr);
}

void wr_rdma_write(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t addr) {
  begin_remote(handle, SendOp::kWrite, rkey, addr);
}

void wr_rdma_write_imm(ibv_qp_ex* handle, std::uint32_t rkey, std::uint64_t addr, __be32 imm) {
  begin_remote(handle, SendOp::kWriteImm, rkey, addr).wr.imm_data = wide_immediate(imm);
}

void wr_send(ibv_qp_ex* handle) { begin(handle, SendOp::kSend); }

void wr_send_imm(ibv_qp_ex* handle, __be32 imm) {
  begin(handle, SendOp::kImmediate).wr.imm_data = wide_immediate(imm);
}

void wr_send_inv(ibv_qp_ex* handle, std::uint32_t rkey) {
  begin(handle, SendOp::kSendInvalidate).wr.invalidate_rkey = rkey;
}

// Segmentation offload, XRC addressing, atomic writes: refused by wr_complete.
void wr_send_tso(ibv_qp_ex* handle, void*, std::uint16_t, std::uint16_t) {
  note(*qp_of(handle), EOPNOTSUPP);
}
void wr_set_xrc_srqn(ibv_qp_ex* handle, std::uint32_t) { note(*qp_of(handle), EOPNOTSUPP); }
void wr_atomic_write(ibv_qp_ex* handle, std::uint32_t, std::uint64_t, const void*) {
  note(*qp_of(handle), EOPNOTSUPP);
}
void wr_future(ibv_qp_ex* handle) { note(*qp_of(handle), EOPNOTSUPP); }

// The request that a setter is about; null, and a mistake noted, when there is none, or the batch
// is lost already.
BuiltRequest* last(Qp& qp) {
  if (qp.builder.error != 0) return nullptr;
  if (!qp.builder.requests.empty()) return &qp.builder.requests.back();
  note(qp, EINVAL);
  return nullptr;
}

void wr_set_ud_addr(ibv_qp_ex* handle, ibv_ah* ah, std::uint32_t number, std::uint32_t key) {
  Qp& qp = *qp_of(handle);
  if (qp.engine->type() != QpType::kUd) return note(qp, EOPNOTSUPP);
  BuiltRequest* request = last(qp);
  if (request == nullptr) return;
  if (ah == nullptr) return note(qp, EINVAL);
  request->peer = ah_of(ah)->to(number, key);
  request->has_peer = true;
}

void wr_set_sge_list(ibv_qp_ex* handle, std::size_t count, const ibv_sge* list) {
  Qp& qp = *qp_of(handle);
  BuiltRequest* request = last(qp);
  if (request == nullptr) return;
  const bool has_room = grown(qp, [&] {
    for (std::size_t i = 0; i < count; ++i)
      qp.builder.sges.push_back({list[i].addr, list[i].length, list[i].lkey});
  });
  if (has_room) request->sges = count;
}

void wr_set_sge(ibv_qp_ex* handle, std::uint32_t lkey, std::uint64_t addr, std::uint32_t length) {
  const ibv_sge sge{addr, length, lkey};
  wr_set_sge_list(handle, 1, &sge);
}

void wr_set_inline_data_list(ibv_qp_ex* handle, std::size_t count, const ibv_data_buf* list) {
  Qp& qp = *qp_of(handle);
  BuiltRequest* request = last(qp);
  if (request == nullptr) return;
  request->is_inline = true;
  request->wr.flags = request->wr.flags | SendFlags::kInline;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const std::uint8_t*>(list[i].addr);
    std::vector<std::uint8_t>& bytes = qp.builder.bytes;
    if (!grown(qp, [&] { bytes.insert(bytes.end(), from, from + list[i].length); })) return;
    request->bytes += list[i].length;
  }
}

void wr_set_inline_data(ibv_qp_ex* handle, void* addr, std::size_t length) {
  const ibv_data_buf data{addr, length};
  wr_set_inline_data_list(handle, 1, &data);
}

// Not analyzed: the mutex is held from here to finish().
void wr_start(ibv_qp_ex* handle) WEFT_NOT_ANALYZED { qp_of(handle)->builder.open.lock(); }

void observed_start(ibv_qp_ex* handle) {
  observe_heir(handle, "ibv_wr_start");
  enter(qp_of(handle)->one_sends, handle, "ibv_wr_start");
  wr_start(handle);
}

// Ends the batch. Its requests go at once: a bind holds its window and its region, and the program
// may destroy both next.
void finish(WrBuilder& builder) WEFT_NOT_ANALYZED {
  builder.requests.clear();
  builder.without_place = {};
  builder.sges.clear();
  builder.bytes.clear();
  builder.error = 0;
  builder.open.unlock();
}

void wr_abort(ibv_qp_ex* handle) {
  leave(qp_of(handle)->one_sends);
  finish(qp_of(handle)->builder);
}

std::uint64_t octets_built(const WrBuilder& builder, const BuiltRequest& request) {
  if (request.is_inline) return request.bytes;
  std::uint64_t out = 0;
  for (const Sge& sge : std::span(builder.sges).subspan(request.first_sge, request.sges))
    out += sge.length;
  return out;
}

// Whether the engine takes a request with such a payload: the rules of its posts.
bool is_payload_legal(QpType type, const QpAttributes& now, const BuiltRequest& request,
                      std::uint64_t octets) {
  const SendOp op = request.wr.op;
  const bool is_inline = has(request.wr.flags, SendFlags::kInline);
  if (op == SendOp::kLocalInvalidate || op == SendOp::kBindWindow) return type != QpType::kUd;
  if (op == SendOp::kFetchAdd || op == SendOp::kCmpSwap) {
    const bool one_word = request.sges == 1 && octets == sizeof(std::uint64_t);
    return one_word && !is_inline && now.ord != 0 && type != QpType::kUd;
  }
  if (op == SendOp::kRead && (is_inline || now.ord == 0)) return false;
  if (is_inline && octets > now.caps.max_inline_bytes) return false;
  if (type != QpType::kUd) return octets <= limits::kMessageBytes;
  constexpr std::uint64_t kDatagramMost = 4096;  // the largest MTU
  return (op == SendOp::kSend || op == SendOp::kImmediate) && octets <= kDatagramMost;
}

int check_one(const Qp& qp, const QpAttributes& now, const BuiltRequest& request) {
  const QpType type = qp.engine->type();
  if (request.sges > now.caps.max_send_sge) return EINVAL;
  if (request.bytes > now.caps.max_inline_bytes) return EINVAL;
  const int error = request.wr.op == SendOp::kRead ? refused_read(request.sges) : 0;
  if (error != 0) return error;
  if (type == QpType::kUd && !request.has_peer) return EINVAL;
  const std::uint64_t octets = octets_built(qp.builder, request);
  // See post_send: Immediate Data is a message of its own.
  if (request.wr.op == SendOp::kImmediate && octets > 0 && !is_roce()) return EOPNOTSUPP;
  return is_payload_legal(type, now, request, octets) ? 0 : EINVAL;
}

// Finds requests that the engine would refuse, before anything is posted. 0 or an errno.
int check(const Qp& qp) {
  const WrBuilder& builder = qp.builder;
  if (builder.error != 0) return builder.error;
  const QpAttributes now = qp.posts_to->query();
  if (now.caps.max_send_wr - now.sq_taken < builder.requests.size()) return ENOMEM;
  for (const BuiltRequest& request : builder.requests) {
    if (const int error = check_one(qp, now, request); error != 0) return error;
  }
  return 0;
}

// `weft run --check`: to those of the engine.
void translate_keys(WrBuilder& builder, const BuiltRequest& request) {
  for (Sge& sge : std::span(builder.sges).subspan(request.first_sge, request.sges))
    sge.lkey = engine_key(sge.lkey);
}

int post(Qp& qp) {
  WrBuilder& builder = qp.builder;
  for (BuiltRequest& request : builder.requests) {
    Sge inline_sge;
    if (request.is_inline) {
      inline_sge.addr = reinterpret_cast<std::uintptr_t>(builder.bytes.data() + request.first_byte);
      inline_sge.length = static_cast<std::uint32_t>(request.bytes);
      request.wr.sges = std::span(&inline_sge, 1);
    } else {
      request.wr.sges = std::span(builder.sges).subspan(request.first_sge, request.sges);
    }
    if (request.wr.op == SendOp::kImmediate && !is_roce()) request.wr.sges = {};
    if (request.has_peer) request.wr.peer = &request.peer;
    if (observer != nullptr) observe_request(qp, request);
    if (observer != nullptr && !request.is_inline) translate_keys(builder, request);
    if (const Status queued = qp.posts_to->queue_send(request.wr); !queued) {
      if (observer != nullptr) observer->not_posted(handle_of(qp));
      qp.posts_to->ring();
      return errno_of(queued.error());
    }
  }
  qp.posts_to->ring();
  return 0;
}

int check_and_post(Qp& qp) {
  const int error = check(qp);
  if (error == 0) return post(qp);
  if (observer != nullptr) observer->refuses_batch(handle_of(qp));
  return error;
}

int wr_refuse(ibv_qp_ex* handle) {
  observe_dead("ibv_wr_complete", handle);
  leave(qp_of(handle)->one_sends);
  finish(qp_of(handle)->builder);
  return fail_number(EINVAL);
}

// Those that it posts, where somebody wants them.
std::uint64_t built_octets(const WrBuilder& builder) {
  std::uint64_t out = 0;
  if (observer == nullptr || !observer->wants_octets()) return out;
  for (const BuiltRequest& request : builder.requests) {
    out += request.bytes;
    for (const Sge& sge : std::span(builder.sges).subspan(request.first_sge, request.sges))
      out += sge.length;
  }
  return out;
}

int wr_complete(ibv_qp_ex* handle) {
  Qp& qp = *qp_of(handle);
  const MayFail may_fail("ibv_wr_complete", handle, false, built_octets(qp.builder));
  int error = may_fail.error();
  if (error == 0) error = check_and_post(qp);
  leave(qp.one_sends);
  finish(qp.builder);
  return fail_number(error);
}

}  // namespace

void refuse_batches(Qp& qp) { qp.pub.wr_complete = wr_refuse; }

void set_builder_operations(Qp& qp) {
  ibv_qp_ex& ops = qp.pub;
  ops.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  ops.wr_atomic_fetch_add = wr_atomic_fetch_add;
  ops.wr_bind_mw = wr_bind_mw;
  ops.wr_local_inv = wr_local_inv;
  ops.wr_rdma_read = wr_rdma_read;
  ops.wr_rdma_write = wr_rdma_write;
  ops.wr_rdma_write_imm = wr_rdma_write_imm;
  ops.wr_send = wr_send;
  ops.wr_send_imm = wr_send_imm;
  ops.wr_send_inv = wr_send_inv;
  ops.wr_send_tso = wr_send_tso;
  ops.wr_set_ud_addr = wr_set_ud_addr;
  ops.wr_set_xrc_srqn = wr_set_xrc_srqn;
  ops.wr_set_inline_data = wr_set_inline_data;
  ops.wr_set_inline_data_list = wr_set_inline_data_list;
  ops.wr_set_sge = wr_set_sge;
  ops.wr_set_sge_list = wr_set_sge_list;
  ops.wr_start = checked ? observed_start : wr_start;
  ops.wr_complete = wr_complete;
  ops.wr_abort = wr_abort;
  ops.wr_atomic_write = wr_atomic_write;
  for (auto& op : qp.future_ops) op = wr_future;
}

}  // namespace weft::ibverbs
