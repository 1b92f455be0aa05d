#include "ibverbs/shaken_overflow.h"

#include "ibverbs/async.h"
#include "ibverbs/registry.h"
#include "ibverbs/shaken_state.h"

namespace weft::ibverbs {

void shake_overflow(Cq& cq) {
  const ibv_cq* const handle = handle_of(cq);
  for (const std::uint32_t number : shaker().qp_numbers()) {
    const Pin<Qp> qp(std::static_pointer_cast<Qp>(registry::pin_qp_by_number(number)));
    if (!qp) continue;
    const ibv_qp& pub = qp->pub.qp_base;
    if (pub.send_cq == handle || pub.recv_cq == handle)
      static_cast<void>(qp->engine->modify(QpState::kError));
  }
  raise_async(IBV_EVENT_CQ_ERR, handle);
}

}  // namespace weft::ibverbs
