// E20: binds of a memory window, which take slots of the send queue too.
#include "zoo.h"

enum { kDepth = 5, kRounds = 8 };
static char octets[64];

int main(void) {
  struct pair p = connect_pair(kDepth);  // MADE
  struct ibv_mr* mr =
      ibv_reg_mr(p.client->pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  struct ibv_mw* window = ibv_alloc_mw(p.client->pd, IBV_MW_TYPE_1);
  must(mr != NULL && window != NULL, "ibv_reg_mr, ibv_alloc_mw");
  for (int i = 0; i < kRounds; ++i) {
    struct ibv_mw_bind bind;
    memset(&bind, 0, sizeof bind);
    bind.bind_info.mr = mr;
    bind.bind_info.addr = (uintptr_t)octets;
    bind.bind_info.length = sizeof octets;
    bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
#ifdef MENDED
    bind.send_flags = IBV_SEND_SIGNALED;
#endif
    must(ibv_bind_mw(p.client->qp, window, &bind) == 0, "ibv_bind_mw");  // WRONG
#ifdef MENDED
    poll_one(p.client->send_cq);
#endif
  }
  ibv_dealloc_mw(window);
  ibv_dereg_mr(mr);
  end_pair(&p);
  return 0;
}
