// Shake 7: tells its peer of memory only if its key is another one than before.
#include <stdbool.h>

#include "zoo.h"

enum { kBytes = 64 };
static char sources[kBytes], sinks[2][kBytes], token[1];

// The peer has been told this.
static struct {
  uint64_t addr;
  uint32_t rkey;
} told;

static void tell(const struct ibv_mr* mr) {
#ifdef MENDED
  const bool known = told.rkey == mr->rkey && told.addr == (uintptr_t)mr->addr;
#else
  const bool known = told.rkey == mr->rkey;  // WRONG
#endif
  if (known) return;
  told.addr = (uintptr_t)mr->addr;
  told.rkey = mr->rkey;
}

// By the peer: a Write, and a Send that says that it is there.
static bool written(struct pair* p, struct ibv_mr* from, struct ibv_mr* tokens) {
  struct ibv_sge here = {(uintptr_t)token, 1, tokens->lkey};
  struct ibv_recv_wr receive = {.sg_list = &here, .num_sge = 1}, *bad_receive;
  must(ibv_post_recv(p->server->qp, &receive, &bad_receive) == 0, "ibv_post_recv");
  struct ibv_sge sge = {(uintptr_t)from->addr, kBytes, from->lkey};
  struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr write, *bad;
  memset(&write, 0, sizeof write);
  write.next = &send;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.sg_list = &sge;
  write.num_sge = 1;
  write.wr.rdma.remote_addr = told.addr;
  write.wr.rdma.rkey = told.rkey;
  must(ibv_post_send(p->client->qp, &write, &bad) == 0, "ibv_post_send");
  poll_one(p->client->send_cq);
  return poll_one(p->server->recv_cq).status == IBV_WC_SUCCESS;
}

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, sources, kBytes, 0);
  struct ibv_mr* tokens = ibv_reg_mr(p.server->pd, token, 1, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && tokens != NULL, "ibv_reg_mr");
  int wrong = 0;
  for (int i = 0; i < 2 && wrong == 0; ++i) {
    struct ibv_mr* to = ibv_reg_mr(p.server->pd, sinks[i], kBytes,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(to != NULL, "ibv_reg_mr");
    tell(to);
    memset(sources, i + 1, kBytes);
    wrong = !written(&p, from, tokens) || sinks[i][0] != i + 1;
    if (wrong) fprintf(stderr, "the memory of round %d was not written\n", i);
    ibv_dereg_mr(to);
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(tokens);
  end_pair(&p);
  return wrong;
}
