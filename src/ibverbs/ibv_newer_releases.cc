// Functions that later releases of rdma-core added (symbols-later.txt): ibv_reg_mr_ex and
// ibv_query_port_speed do their work; the rest say EOPNOTSUPP for Weft's objects, which is how
// their man pages have a device answer that lacks the feature. Foreign objects go to the real
// library, where that has the function.
//
// No header here declares them. Those that only refuse take up to six integers or pointers, which
// the calling conventions of our processors pass in registers: handing on all six is handing on
// what came.

#include <cerrno>

#include "ibverbs/errors.h"
#include "ibverbs/ibv_newer_releases.h"
#include "ibverbs/query.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

using namespace weft::ibverbs;

namespace {

using Word = std::intptr_t;
using Function = Word(Word, Word, Word, Word, Word, Word);

// The answer of a function that cannot do its work, by kind: null, -1 or the errno itself.
Word no_pointer(int error) {
  errno = error;
  return 0;
}
Word minus_one(int error) { return fail_minus(error); }
Word the_errno(int error) { return error; }

Function* real_for(Word handle, const char* name) {
  const auto* object = reinterpret_cast<const void*>(handle);
  const bool foreign = !registry::is_live(object) && !registry::is_quarantined(object);
  return foreign ? reinterpret_cast<Function*>(real_ibverbs().symbol(name)) : nullptr;
}

}  // namespace

#define WEFT_LATER(name, failure)                                          \
  Word name(Word a, Word b, Word c, Word d, Word e, Word f);               \
  Word name(Word a, Word b, Word c, Word d, Word e, Word f) {              \
    Function* real = real_for(a, #name);                                   \
    return real != nullptr ? real(a, b, c, d, e, f) : failure(EOPNOTSUPP); \
  }

extern "C" {

WEFT_LATER(ibv_alloc_dmah, no_pointer)
WEFT_LATER(ibv_dealloc_dmah, the_errno)
WEFT_LATER(ibv_dm_export_dmabuf_fd, minus_one)
WEFT_LATER(ibv_alloc_buf, no_pointer)
WEFT_LATER(ibv_free_buf, the_errno)
WEFT_LATER(ibv_reg_buf_mr, no_pointer)
WEFT_LATER(ibv_export_buf_dmabuf_fd, minus_one)
WEFT_LATER(ibv_create_comp_cntr, no_pointer)
WEFT_LATER(ibv_destroy_comp_cntr, the_errno)
WEFT_LATER(ibv_set_comp_cntr, the_errno)
WEFT_LATER(ibv_set_err_comp_cntr, the_errno)
WEFT_LATER(ibv_inc_comp_cntr, the_errno)
WEFT_LATER(ibv_inc_err_comp_cntr, the_errno)
WEFT_LATER(ibv_read_comp_cntr, the_errno)
WEFT_LATER(ibv_read_err_comp_cntr, the_errno)
WEFT_LATER(ibv_qp_attach_comp_cntr, the_errno)
WEFT_LATER(_ibv_query_comp_cntr_caps, the_errno)

ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, MrInitAttr* attr);
int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed);

ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, MrInitAttr* attr) {
  if (!registry::find<Pd>(pd)) return forward_null(WEFT_REAL(ibv_reg_mr_ex), pd, attr);
  if (attr == nullptr) return fail_null(EINVAL);
  // Memory of other devices (DMA-buf) and hints for a bus: there is neither.
  if ((attr->comp_mask & ~(kMrIova | kMrAddr)) != 0) return fail_null(EOPNOTSUPP);
  if ((attr->comp_mask & kMrAddr) == 0) return fail_null(EINVAL);
  const std::uint64_t iova =
      (attr->comp_mask & kMrIova) != 0 ? attr->iova : reinterpret_cast<std::uintptr_t>(attr->addr);
  return ibv_reg_mr_iova2(pd, attr->addr, attr->length, iova, static_cast<unsigned>(attr->access));
}

// In units of 100 Mbit/s.
int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) {
  if (!registry::find<Context>(context)) {
    return forward_int(WEFT_REAL(ibv_query_port_speed), context, port, speed);
  }
  if (speed == nullptr) return EINVAL;
  return query_port_speed(port, *speed);
}

}  // extern "C"
