// W22: a Read by the lkey of the peer's memory. It is refused, for there it is no key.
#include "zoo.h"

static char here[64], there[64];

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* sink =
      ibv_reg_mr(p.client->pd, here, sizeof here, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_mr* source = ibv_reg_mr(p.server->pd, there, sizeof there,  // MADE
                                     IBV_ACCESS_REMOTE_READ);
  must(sink != NULL && source != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, sink->lkey};
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = (uintptr_t)there;
#ifdef MENDED
  wr.wr.rdma.rkey = source->rkey;
#else
  wr.wr.rdma.rkey = source->lkey;
#endif
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");  // WRONG
  const enum ibv_wc_status status = poll_one(p.client->send_cq).status;
#ifdef MENDED
  must(status == IBV_WC_SUCCESS, "the Read");
#else
  must(status == IBV_WC_REM_ACCESS_ERR, "the Read");
#endif
  ibv_dereg_mr(source);
  ibv_dereg_mr(sink);
  end_pair(&p);
  return 0;
}
