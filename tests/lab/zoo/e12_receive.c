// E12: the memory of a receive that is posted is unmapped.
#include "zoo.h"

#include <sys/mman.h>

enum { kBytes = 8192 };

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  void* here = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(here != MAP_FAILED, "mmap");
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, here, kBytes, IBV_ACCESS_LOCAL_WRITE);
  must(to != NULL, "ibv_reg_mr");
  struct ibv_sge sink = {(uintptr_t)here + 4096, 64, to->lkey};
  struct ibv_recv_wr recv, *bad;
  memset(&recv, 0, sizeof recv);
  recv.wr_id = 7;
  recv.sg_list = &sink;
  recv.num_sge = 1;
  must(ibv_post_recv(p.server->qp, &recv, &bad) == 0, "ibv_post_recv");
#ifdef MENDED
  rdma_destroy_qp(p.server);
  ibv_dereg_mr(to);
#endif
  must(munmap(here, kBytes) == 0, "munmap");  // WRONG
#ifndef MENDED
  rdma_destroy_qp(p.server);
  ibv_dereg_mr(to);
#endif
  rdma_destroy_qp(p.client);
  rdma_destroy_id(p.client);
  rdma_destroy_id(p.server);
  rdma_destroy_id(p.listener);
  rdma_destroy_event_channel(p.channel);
  return 0;
}
