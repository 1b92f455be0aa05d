// E20: more Reads than were asked for, and another thread polls. The twin's thread posts until the
// queue is full, again and again, which is no mistake.
#include "zoo.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

enum { kDepth = 3, kReads = 400, kSize = 256 };
static char here[kSize], there[kSize];
static int reads = kDepth + 1;

static void* poll_all(void* cq) {
  for (int i = 0; i < reads; ++i) must(poll_one(cq).status == IBV_WC_SUCCESS, "ibv_poll_cq");
  return NULL;
}

int main(void) {
  struct pair p = connect_pair(kDepth);  // MADE
  struct ibv_mr* into =
      ibv_reg_mr(p.client->pd, here, kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_mr* from = ibv_reg_mr(p.server->pd, there, kSize, IBV_ACCESS_REMOTE_READ);
  must(into != NULL && from != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)here, kSize, into->lkey};
  struct ibv_send_wr wr = request_of(IBV_WR_RDMA_READ, &sge, (uintptr_t)there, from->rkey), *bad;
  pthread_t poller;
#ifdef MENDED
  reads = kReads;
  must(pthread_create(&poller, NULL, poll_all, p.client->send_cq) == 0, "pthread_create");
  for (int i = 0; i < reads; ++i) {
    int error;
    while ((error = ibv_post_send(p.client->qp, &wr, &bad)) == ENOMEM) sched_yield();
    must(error == 0, "ibv_post_send");
  }
#else
  for (int i = 0; i < reads; ++i)
    must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");  // WRONG
  must(pthread_create(&poller, NULL, poll_all, p.client->send_cq) == 0, "pthread_create");
#endif
  pthread_join(poller, NULL);
  ibv_dereg_mr(from);
  ibv_dereg_mr(into);
  end_pair(&p);
  return 0;
}
