// The polling interface of extended CQs: start_poll, next_poll, end_poll and the readers.

#include <cerrno>

#include "ibverbs/completion.h"
#include "ibverbs/objects.h"
#include "ibverbs/observed.h"
#include "ibverbs/registry.h"

namespace weft::ibverbs {
namespace {

bool fetch(Cq& cq) {
  const ObservedPoll alone(cq);
  observe_poll(cq);
  if (cq.engine->poll(std::span(&cq.current, 1)) == 0) return false;
  cq.pub.status = wc_status(cq.current.status);
  cq.pub.wr_id = cq.current.wr_id;
  if (observer != nullptr) observe_completion(cq.current, cq.pub.status);
  return true;
}

// Not analyzed: the mutex is held from here to end_poll().
int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attr) WEFT_NOT_ANALYZED {
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  Cq* cq = cq_of(handle);
  cq->one_thread.promised ? enter(cq->one_thread, handle, "ibv_start_poll") : cq->polling.lock();
  if (fetch(*cq)) return 0;
  // end_poll must not be called after a failure, so the lock ends here.
  cq->one_thread.promised ? leave(cq->one_thread) : cq->polling.unlock();
  return ENOENT;
}

int next_poll(ibv_cq_ex* handle) { return fetch(*cq_of(handle)) ? 0 : ENOENT; }

void end_poll(ibv_cq_ex* handle) WEFT_NOT_ANALYZED {
  Cq* cq = cq_of(handle);
  cq->one_thread.promised ? leave(cq->one_thread) : cq->polling.unlock();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* handle) { return wc_opcode(cq_of(handle)->current.op); }
std::uint32_t read_vendor_err(ibv_cq_ex* handle) { return cq_of(handle)->current.vendor_error; }
std::uint32_t read_byte_len(ibv_cq_ex* handle) { return cq_of(handle)->current.byte_len; }
__be32 read_imm_data(ibv_cq_ex* handle) { return wc_immediate(cq_of(handle)->current); }
std::uint32_t read_qp_num(ibv_cq_ex* handle) { return cq_of(handle)->current.qp_num; }
unsigned read_wc_flags(ibv_cq_ex* handle) { return wc_flags(cq_of(handle)->current.flags); }

std::uint32_t read_src_qp(ibv_cq_ex* handle) { return cq_of(handle)->current.source_qp; }
std::uint8_t read_sl(ibv_cq_ex* handle) { return cq_of(handle)->current.service_level; }

// InfiniBand addressing, which Weft does not have.
std::uint32_t read_no_word(ibv_cq_ex*) { return 0; }
std::uint8_t read_no_octet(ibv_cq_ex*) { return 0; }

// --- under `weft run --check` ---

bool is_datagram(const Cq& cq) {
  const Pin<Qp> qp(std::static_pointer_cast<Qp>(registry::pin_qp_by_number(cq.current.qp_num)));
  return qp && qp->engine->type() == QpType::kUd;
}

// Those fields that the man page of ibv_poll_cq calls valid.
bool has_length(WcOp op) {
  return op == WcOp::kRecv || op == WcOp::kRecvWithImm || op == WcOp::kRead ||
         op == WcOp::kFetchAdd || op == WcOp::kCmpSwap;
}
bool has_immediate(WcFlags flags) {
  return has(flags, WcFlags::kWithImm) || has(flags, WcFlags::kWithInvalidate);
}

// `defined`: of a completion with success.
template <class Defined>
void tell_read(ibv_cq_ex* handle, const char* field, Defined defined) {
  if (observer == nullptr) return;
  const Cq& cq = *cq_of(handle);
  const bool success = handle->status == IBV_WC_SUCCESS;
  if (success && defined(cq)) return;
  const InCall in(field);
  observer->reads_undefined(handle, field, ibv_wc_status_str(handle->status), success);
}
bool always(const Cq&) { return true; }

ibv_wc_opcode observed_opcode(ibv_cq_ex* cq) {
  tell_read(cq, "ibv_wc_read_opcode", always);
  return read_opcode(cq);
}
std::uint32_t observed_byte_len(ibv_cq_ex* cq) {
  tell_read(cq, "ibv_wc_read_byte_len", [](const Cq& of) { return has_length(of.current.op); });
  return read_byte_len(cq);
}
__be32 observed_imm_data(ibv_cq_ex* cq) {
  tell_read(cq, "ibv_wc_read_imm_data",
            [](const Cq& of) { return has_immediate(of.current.flags); });
  return read_imm_data(cq);
}
unsigned observed_wc_flags(ibv_cq_ex* cq) {
  tell_read(cq, "ibv_wc_read_wc_flags", always);
  return read_wc_flags(cq);
}
std::uint32_t observed_src_qp(ibv_cq_ex* cq) {
  tell_read(cq, "ibv_wc_read_src_qp", is_datagram);
  return read_src_qp(cq);
}
std::uint8_t observed_sl(ibv_cq_ex* cq) {
  tell_read(cq, "ibv_wc_read_sl", is_datagram);
  return read_sl(cq);
}
std::uint32_t observed_slid(ibv_cq_ex* cq) {
  tell_read(cq, "ibv_wc_read_slid", is_datagram);
  return read_no_word(cq);
}
std::uint8_t observed_path_bits(ibv_cq_ex* cq) {
  tell_read(cq, "ibv_wc_read_dlid_path_bits", is_datagram);
  return read_no_octet(cq);
}

int observed_start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attr) {
  observe_heir(handle, "ibv_start_poll");
  return start_poll(handle, attr);
}

void set_observed_readers(ibv_cq_ex& cq) {
  cq.start_poll = observed_start_poll;
  cq.read_opcode = observed_opcode;
  cq.read_byte_len = observed_byte_len;
  cq.read_imm_data = observed_imm_data;
  cq.read_src_qp = observed_src_qp;
  cq.read_wc_flags = observed_wc_flags;
  cq.read_slid = observed_slid;
  cq.read_sl = observed_sl;
  cq.read_dlid_path_bits = observed_path_bits;
}

}  // namespace

void set_polling_operations(ibv_cq_ex& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_wc_flags = read_wc_flags;
  cq.read_slid = read_no_word;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_no_octet;
  if (checked) set_observed_readers(cq);
}

}  // namespace weft::ibverbs
