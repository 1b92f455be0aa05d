// W50: a queue pair is reset with a receive, which is lost.
#include "zoo.h"

static char there[64];

static void move_to(struct ibv_qp* qp, enum ibv_qp_state state) {
  struct ibv_qp_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.qp_state = state;
  must(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "ibv_modify_qp");  // WRONG
}

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, there, sizeof there, IBV_ACCESS_LOCAL_WRITE);
  must(to != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)there, sizeof there, to->lkey};
  struct ibv_recv_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  must(ibv_post_recv(p.server->qp, &wr, &bad) == 0, "ibv_post_recv");
  move_to(p.server->qp, IBV_QPS_ERR);
#ifdef MENDED
  poll_one(p.server->recv_cq);
#endif
  move_to(p.server->qp, IBV_QPS_RESET);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
