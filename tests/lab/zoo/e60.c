// E60: two Sends for one receive. The second one ends the connection.
#include "zoo.h"

static char here[64], there[64];

int main(void) {
  struct pair p = connect_pair(4);  // WRONG
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, here, sizeof here, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, there, sizeof there, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  struct ibv_sge source = {(uintptr_t)here, sizeof here, from->lkey};
  struct ibv_sge sink = {(uintptr_t)there, sizeof there, to->lkey};
  struct ibv_recv_wr receive, *bad_receive;
  struct ibv_send_wr wr, *bad;
#ifdef MENDED
  const int receives = 2;
#else
  const int receives = 1;
#endif
  memset(&receive, 0, sizeof receive);
  receive.sg_list = &sink;
  receive.num_sge = 1;
  for (int i = 0; i < receives; ++i)
    must(ibv_post_recv(p.server->qp, &receive, &bad_receive) == 0, "ibv_post_recv");
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &source;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  for (int i = 0; i < 2; ++i) must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  for (int i = 0; i < receives; ++i) poll_one(p.server->recv_cq);
#ifdef MENDED
  for (int i = 0; i < 2; ++i) poll_one(p.client->send_cq);
#else
  expect(p.channel, RDMA_CM_EVENT_DISCONNECTED);
#endif
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
