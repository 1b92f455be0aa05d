// For `weft faults sweep`: the program waits for a completion of what it could not post.
#include "zoo.h"

static char here[64];

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* mr = ibv_reg_mr(p.client->pd, here, sizeof here, IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, mr->lkey};
  struct ibv_recv_wr receive, *bad_receive;
  struct ibv_send_wr wr, *bad;
  memset(&receive, 0, sizeof receive);
  receive.sg_list = &sge;
  receive.num_sge = 1;
  must(ibv_post_recv(p.server->qp, &receive, &bad_receive) == 0, "ibv_post_recv");
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  int error = ibv_post_send(p.client->qp, &wr, &bad);  // WRONG
#ifdef MENDED
  must(error == 0, "ibv_post_send");
#else
  if (error != 0) fprintf(stderr, "ibv_post_send failed\n");
#endif
  poll_one(p.client->send_cq);
  poll_one(p.server->recv_cq);
  ibv_dereg_mr(mr);
  end_pair(&p);
  return 0;
}
