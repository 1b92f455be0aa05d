// Shake 4: asks a completion with an error for its opcode, to learn which queue it is of.
#include "zoo.h"

enum { kEach = 4 };
static char octets[64];

int main(void) {
  struct pair p = connect_pair(kEach);
  struct ibv_mr* mr = ibv_reg_mr(p.client->pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)octets, sizeof octets, mr->lkey};
  struct ibv_qp_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.qp_state = IBV_QPS_ERR;
  must(ibv_modify_qp(p.client->qp, &attr, IBV_QP_STATE) == 0, "ibv_modify_qp");
  for (unsigned i = 0; i < kEach; ++i) {
    struct ibv_recv_wr recv = {.wr_id = 100 + i, .sg_list = &sge, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad_send;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    must(ibv_post_recv(p.client->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
    must(ibv_post_send(p.client->qp, &send, &bad_send) == 0, "ibv_post_send");
  }
  int receives = 0;
  for (int i = 0; i < 2 * kEach; ++i) {
    const struct ibv_wc wc = poll_one(i < kEach ? p.client->recv_cq : p.client->send_cq);
    must(wc.status != IBV_WC_SUCCESS, "ibv_poll_cq");
#ifdef MENDED
    receives += wc.wr_id >= 100;
#else
    receives += (wc.opcode & IBV_WC_RECV) != 0;  // WRONG
#endif
  }
  ibv_dereg_mr(mr);
  end_pair(&p);
  if (receives != kEach) fprintf(stderr, "%d receives\n", receives);
  return receives != kEach;
}
