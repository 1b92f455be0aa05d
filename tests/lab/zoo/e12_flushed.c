// E12: the memory of a receive is freed before its completion is polled. The twin polls before, and
// a request without a signal has the same number as its receives.
#include "zoo.h"

enum { kSize = 8192 };

static void post_receive(struct ibv_qp* qp, char* here, uint32_t lkey) {
  struct ibv_sge sge = {(uintptr_t)here, 64, lkey};
  struct ibv_recv_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  must(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
}

int main(void) {
  struct pair p = connect_pair(4);  // MADE
  struct ibv_qp* qp = p.client->qp;
  char octets[64] = {0}, theirs[64];
  char* here[2] = {malloc(kSize), malloc(kSize)};
  must(here[0] != NULL && here[1] != NULL, "malloc");
  struct ibv_mr* to[2];
  for (int i = 0; i < 2; ++i) {
    to[i] = ibv_reg_mr(p.client->pd, here[i], kSize, IBV_ACCESS_LOCAL_WRITE);
    must(to[i] != NULL, "ibv_reg_mr");
    post_receive(qp, here[i], to[i]->lkey);
  }
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets, sizeof octets, 0);
  struct ibv_mr* sink = ibv_reg_mr(p.server->pd, theirs, sizeof theirs, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && sink != NULL, "ibv_reg_mr");
  post_receive(p.server->qp, theirs, sink->lkey);
  struct ibv_sge source = {(uintptr_t)octets, sizeof octets, from->lkey};
  struct ibv_send_wr send = request_of(IBV_WR_SEND, &source, 0, 0), *bad;
  send.send_flags = 0;
  must(ibv_post_send(qp, &send, &bad) == 0, "ibv_post_send");
  poll_one(p.server->recv_cq);
#ifdef MENDED
  to_error(qp);
  for (int i = 0; i < 2; ++i) poll_one(p.client->recv_cq);
#endif
  free(here[1]);  // WRONG
#ifndef MENDED
  to_error(qp);
  for (int i = 0; i < 2; ++i) poll_one(p.client->recv_cq);
#endif
  for (int i = 0; i < 2; ++i) ibv_dereg_mr(to[i]);
  free(here[0]);
  ibv_dereg_mr(from);
  ibv_dereg_mr(sink);
  end_pair(&p);
  return 0;
}
