// Shake 3: takes it that a Write is there once its last octet is.
#include <unistd.h>

#include "zoo.h"

enum { kRounds = 20, kBytes = 256 };
static char sources[kBytes], sinks[kBytes];

#ifdef MENDED
static char token[1];
#endif

static void post(struct rdma_cm_id* id, struct ibv_mr* from, struct ibv_mr* to) {
  struct ibv_sge sge = {(uintptr_t)from->addr, kBytes, from->lkey};
  const uintptr_t at = (uintptr_t)to->addr;
  struct ibv_send_wr wr = request_of(IBV_WR_RDMA_WRITE, &sge, at, to->rkey), *bad;
  must(ibv_post_send(id->qp, &wr, &bad) == 0, "ibv_post_send");
}

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* here = ibv_reg_mr(p.client->pd, sources, kBytes, 0);
  struct ibv_mr* there =
      ibv_reg_mr(p.server->pd, sinks, kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(here != NULL && there != NULL, "ibv_reg_mr");
#ifdef MENDED
  struct ibv_mr* tokens = ibv_reg_mr(p.server->pd, token, 1, IBV_ACCESS_LOCAL_WRITE);
  must(tokens != NULL, "ibv_reg_mr");
#endif
  int wrong = 0;
  for (int i = 1; i <= kRounds; ++i) {
#ifdef MENDED
    // A Send behind it is received when the Write is placed.
    struct ibv_sge sge = {(uintptr_t)token, 1, tokens->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
    must(ibv_post_recv(p.server->qp, &receive, &bad_receive) == 0, "ibv_post_recv");
#endif
    memset(sources, i, kBytes);
    post(p.client, here, there);
    must(poll_one(p.client->send_cq).status == IBV_WC_SUCCESS, "the Write");
#ifdef MENDED
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    must(ibv_post_send(p.client->qp, &send, &bad) == 0, "ibv_post_send");
    must(poll_one(p.server->recv_cq).status == IBV_WC_SUCCESS, "the receive");
    must(poll_one(p.client->send_cq).status == IBV_WC_SUCCESS, "the Send");
#else
    while (((volatile char*)sinks)[kBytes - 1] != i) {  // WRONG
    }
    usleep(100);  // it has something else to do first
#endif
    if (((volatile char*)sinks)[0] != i) {
      fprintf(stderr, "round %d: the first octet is %d\n", i, sinks[0]);
      ++wrong;
    }
  }
  ibv_dereg_mr(here);
  ibv_dereg_mr(there);
#ifdef MENDED
  ibv_dereg_mr(tokens);
#endif
  end_pair(&p);
  return wrong != 0;
}
