// Completions as programs see them, and the operations of CQs that contexts reach through their
// table.
#pragma once

#include <infiniband/verbs.h>
#include <weft/types.h>

namespace weft::ibverbs {

[[nodiscard]] ibv_wc_status wc_status(WcStatus status);
[[nodiscard]] ibv_wc_opcode wc_opcode(WcOp op);
[[nodiscard]] unsigned wc_flags(WcFlags flags);
// Immediate data, or the invalidated key where there is one: what the union of ibv_wc holds.
[[nodiscard]] std::uint32_t wc_immediate(const WorkCompletion& completion);

int poll_cq(ibv_cq* handle, int count, ibv_wc* out);
// `told`: of each one, before the call is over.
int poll_cq_told(ibv_cq* handle, int count, ibv_wc* out,
                 void (*told)(const WorkCompletion& from, ibv_wc& to));
int req_notify_cq(ibv_cq* handle, int solicited_only);
ibv_cq_ex* create_cq_ex(ibv_context* handle, ibv_cq_init_attr_ex* attr);

// Sets start_poll and all that follows in the struct.
void set_polling_operations(ibv_cq_ex& cq);

}  // namespace weft::ibverbs
