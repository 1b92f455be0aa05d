// E12: unmaps the memory of a Write before its completion was polled, by a call that nobody sees.
#include "zoo.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kSize = 4096 };
static char sink[kSize];

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  char* memory = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(memory != MAP_FAILED, "mmap");
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, memory, kSize, 0);
  struct ibv_mr* to =
      ibv_reg_mr(p.server->pd, sink, kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  memset(memory, 7, kSize);
  struct ibv_sge source = {(uintptr_t)memory, kSize, from->lkey};
  struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
  send.send_flags = IBV_SEND_SIGNALED;
  send.wr.rdma.remote_addr = (uintptr_t)sink;
  send.wr.rdma.rkey = to->rkey;
  must(ibv_post_send(p.client->qp, &send, &bad) == 0, "ibv_post_send");  // WRONG
#ifdef MENDED
  poll_one(p.client->send_cq);
#endif
  while (((volatile char*)sink)[kSize - 1] != 7) {
    struct ibv_wc wc;
    ibv_poll_cq(p.server->recv_cq, 1, &wc);
  }
  syscall(SYS_munmap, memory, kSize);
#ifndef MENDED
  poll_one(p.client->send_cq);
#endif
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
