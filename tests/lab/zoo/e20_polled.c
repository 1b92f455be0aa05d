// E20: more Reads than were asked for, polled only then. The twin posts until the queue is full,
// which is no mistake.
#include "zoo.h"

#include <errno.h>

enum { kDepth = 3, kReads = 20, kSize = 1 << 16 };
static char here[kSize], there[kSize];

int main(void) {
  struct pair p = connect_pair(kDepth);  // MADE
  struct ibv_mr* into =
      ibv_reg_mr(p.client->pd, here, kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_mr* from = ibv_reg_mr(p.server->pd, there, kSize, IBV_ACCESS_REMOTE_READ);
  must(into != NULL && from != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, kSize, into->lkey};
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = (uintptr_t)there;
  wr.wr.rdma.rkey = from->rkey;
#ifdef MENDED
  int posted = 0;
  for (int polled = 0; polled < kReads; ++polled) {
    while (posted < kReads) {
      const int error = ibv_post_send(p.client->qp, &wr, &bad);
      if (error == ENOMEM) break;
      must(error == 0, "ibv_post_send");
      ++posted;
    }
    must(poll_one(p.client->send_cq).status == IBV_WC_SUCCESS, "ibv_poll_cq");
  }
#else
  for (int i = 0; i < kDepth + 1; ++i)
    must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");  // WRONG
  for (int i = 0; i < kDepth + 1; ++i) poll_one(p.client->send_cq);
#endif
  ibv_dereg_mr(from);
  ibv_dereg_mr(into);
  end_pair(&p);
  return 0;
}
