// E12: the memory of a Write is given back to the heap before its completion is polled.
#include "zoo.h"

static char there[64];

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  char* here = malloc(sizeof there);
  memset(here, 1, sizeof there);
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, here, sizeof there, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, there, sizeof there,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, sizeof there, from->lkey};
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = (uintptr_t)there;
  wr.wr.rdma.rkey = to->rkey;
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");  // POSTED
#ifdef MENDED
  poll_one(p.client->send_cq);
  free(here);
#else
  free(here);  // WRONG
  poll_one(p.client->send_cq);
#endif
  // On iWARP a Write is complete before it has arrived.
  while (*(volatile char*)&there[sizeof there - 1] == 0) {
  }
  ibv_dereg_mr(to);
  ibv_dereg_mr(from);
  end_pair(&p);
  return 0;
}
