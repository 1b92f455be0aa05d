// The polling interface of extended CQs: start_poll, next_poll, end_poll and the readers.

#include <cerrno>

#include "ibverbs/completion.h"
#include "ibverbs/objects.h"
#include "ibverbs/observed.h"

namespace weft::ibverbs {
namespace {

bool fetch(Cq& cq) {
  const ObservedPoll alone(cq);
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
  if (!cq->single_threaded) cq->polling.lock();
  if (fetch(*cq)) return 0;
  // end_poll must not be called after a failure, so the lock ends here.
  if (!cq->single_threaded) cq->polling.unlock();
  return ENOENT;
}

int next_poll(ibv_cq_ex* handle) { return fetch(*cq_of(handle)) ? 0 : ENOENT; }

void end_poll(ibv_cq_ex* handle) WEFT_NOT_ANALYZED {
  Cq* cq = cq_of(handle);
  if (!cq->single_threaded) cq->polling.unlock();
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
}

}  // namespace weft::ibverbs
