// Functions that later releases of rdma-core added (symbols-later.txt). They say EOPNOTSUPP for
// Weft's objects; others go to the real library, where that has them.
//
// No header here declares them. They take up to six integers or pointers, which the calling
// conventions of our processors pass in registers: handing on all six is handing on what came.

#include <cerrno>

#include "ibverbs/errors.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

using namespace weft::ibverbs;

namespace {

using Word = std::intptr_t;
using Function = Word(Word, Word, Word, Word, Word, Word);

// What a function of each kind answers when it cannot: null, -1 or the errno itself.
Word no_pointer(int error) {
  errno = error;
  return 0;
}
Word minus_one(int error) { return fail_minus(error); }
Word the_errno(int error) { return error; }

Function* real_for(Word handle, const char* name) {
  const auto* object = reinterpret_cast<const void*>(handle);
  const bool foreign = !registry::is_live(object) && !registry::is_buried(object);
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
WEFT_LATER(ibv_reg_mr_ex, no_pointer)
WEFT_LATER(ibv_dm_export_dmabuf_fd, minus_one)
WEFT_LATER(ibv_query_port_speed, the_errno)
WEFT_LATER(ibv_alloc_buf, no_pointer)
WEFT_LATER(ibv_free_buf, the_errno)
WEFT_LATER(ibv_reg_buf_mr, no_pointer)

}  // extern "C"
