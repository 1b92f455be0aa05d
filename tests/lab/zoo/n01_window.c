// N01: a Read by the key of a memory window that was invalidated.
#include "zoo.h"

static char here[64], there[64];

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* into =
      ibv_reg_mr(p.client->pd, here, sizeof here, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_mr* from = ibv_reg_mr(p.server->pd, there, sizeof there, IBV_ACCESS_MW_BIND);
  struct ibv_mw* window = ibv_alloc_mw(p.server->pd, IBV_MW_TYPE_2);
  must(into != NULL && from != NULL && window != NULL, "ibv_reg_mr");
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
  wr.bind_mw.bind_info.mr = from;
  wr.bind_mw.bind_info.addr = (uintptr_t)there;
  wr.bind_mw.bind_info.length = sizeof there;
  wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
  const uint32_t key = wr.bind_mw.rkey;
  must(ibv_post_send(p.server->qp, &wr, &bad) == 0, "ibv_post_send");  // MADE
  poll_one(p.server->send_cq);
  memset(&wr, 0, sizeof wr);
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = key;
#ifndef MENDED
  must(ibv_post_send(p.server->qp, &wr, &bad) == 0, "ibv_post_send");  // WRONG
  poll_one(p.server->send_cq);
#endif
  struct ibv_sge sge = {(uintptr_t)here, sizeof here, into->lkey};
  struct ibv_send_wr read;
  memset(&read, 0, sizeof read);
  read.sg_list = &sge;
  read.num_sge = 1;
  read.opcode = IBV_WR_RDMA_READ;
  read.send_flags = IBV_SEND_SIGNALED;
  read.wr.rdma.remote_addr = (uintptr_t)there;
  read.wr.rdma.rkey = key;
  must(ibv_post_send(p.client->qp, &read, &bad) == 0, "ibv_post_send");
  poll_one(p.client->send_cq);
#ifdef MENDED
  must(ibv_post_send(p.server->qp, &wr, &bad) == 0, "ibv_post_send");
  poll_one(p.server->send_cq);
#endif
  ibv_dealloc_mw(window);
  ibv_dereg_mr(from);
  ibv_dereg_mr(into);
  end_pair(&p);
  return 0;
}
