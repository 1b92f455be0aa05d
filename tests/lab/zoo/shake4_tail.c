// Shake 4: takes it that a receive has zeros behind the octets of its message.
#include "zoo.h"

enum { kRounds = 10, kSize = 64 };
static char octets[2][kSize];

int main(void) {
  struct pair p = connect_pair(kRounds);
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets[0], kSize, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, octets[1], kSize, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  memcpy(octets[0], "hello", 5);
  for (int i = 0; i < kRounds; ++i) {
    memset(octets[1], 0, kSize);
    struct ibv_sge source = {(uintptr_t)octets[0], 5, from->lkey};
    struct ibv_sge sink = {(uintptr_t)octets[1], kSize, to->lkey};
    struct ibv_recv_wr recv = {.sg_list = &sink, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1}, *bad_send;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    must(ibv_post_recv(p.server->qp, &recv, &bad_recv) == 0, "ibv_post_recv");
    must(ibv_post_send(p.client->qp, &send, &bad_send) == 0, "ibv_post_send");
    const struct ibv_wc wc = poll_one(p.server->recv_cq);
    must(wc.status == IBV_WC_SUCCESS, "ibv_poll_cq");
    poll_one(p.client->send_cq);
#ifdef MENDED
    const size_t length = wc.byte_len;
#else
    const size_t length = strnlen(octets[1], kSize);  // WRONG
#endif
    if (length != 5) {
      fprintf(stderr, "%zu octets\n", length);
      return 1;
    }
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
