// Shake 4: takes it that the octets behind a message are as it left them. Those that the peer has
// written there are, where it may write.
#include "zoo.h"

#include <unistd.h>

enum { kRounds = 10, kSize = 64, kPlace = 48, kNote = 8 };
static char octets[2][kSize] __attribute__((aligned(64)));

static void post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, unsigned from, unsigned length,
                      uint32_t lkey) {
  struct ibv_sge sge = {(uintptr_t)octets[0] + from, length, lkey};
  struct ibv_send_wr* bad;
  wr->sg_list = &sge;
  wr->num_sge = 1;
  wr->send_flags = IBV_SEND_SIGNALED;
  must(ibv_post_send(qp, wr, &bad) == 0, "ibv_post_send");
}

int main(void) {
  struct pair p = connect_pair(2);
  unsigned rights = IBV_ACCESS_LOCAL_WRITE;
#ifdef MENDED
  rights |= IBV_ACCESS_REMOTE_WRITE;
#endif
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, octets[0], kSize, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, octets[1], kSize, rights);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  memcpy(octets[0], "hello", 5);
  memset(octets[0] + kPlace, 'n', kNote);
  for (int i = 0; i < kRounds; ++i) {
    memset(octets[1], 0, kSize);
    struct ibv_sge sink = {(uintptr_t)octets[1], kSize, to->lkey};
    struct ibv_recv_wr recv = {.sg_list = &sink, .num_sge = 1}, *bad;
    struct ibv_send_wr message = {.opcode = IBV_WR_SEND};
    must(ibv_post_recv(p.server->qp, &recv, &bad) == 0, "ibv_post_recv");
    post_send(p.client->qp, &message, 0, 5, from->lkey);
    poll_one(p.client->send_cq);
#ifdef MENDED
    struct ibv_send_wr note = {.opcode = IBV_WR_RDMA_WRITE};
    note.wr.rdma.remote_addr = (uintptr_t)octets[1] + kPlace;
    note.wr.rdma.rkey = to->rkey;
    post_send(p.client->qp, &note, kPlace, kNote, from->lkey);
    poll_one(p.client->send_cq);
    // All of it: the last octet may be there first.
    while (memcmp(octets[1] + kPlace, octets[0] + kPlace, kNote) != 0) usleep(100);
#else
    memset(octets[1] + kPlace, 'n', kNote);  // WRONG: the receive may be written to yet
#endif
    const struct ibv_wc wc = poll_one(p.server->recv_cq);
    must(wc.status == IBV_WC_SUCCESS, "ibv_poll_cq");
    if (memcmp(octets[1] + kPlace, octets[0] + kPlace, kNote) != 0) {
      fprintf(stderr, "round %d: the note is gone\n", i);
      return 1;
    }
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}
