// W15: two clients write to the same memory at the same time.
#include "zoo.h"

enum { kOctets = 4 << 20, kClients = 2 };
static char octets[kClients][kOctets];

int main(void) {
  struct pair first = connect_pair(4);   // MADE
  struct pair second = connect_pair(4);  // WRONG
  struct pair* pairs[kClients] = {&first, &second};
  struct ibv_mr* from[kClients];
  struct ibv_mr* to = ibv_reg_mr(first.server->pd, octets[0], sizeof octets,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(to != NULL && first.server->pd == second.server->pd, "one protection domain");
  for (int i = 0; i < kClients; i++) {
    from[i] = ibv_reg_mr(pairs[i]->client->pd, octets[0], sizeof octets, 0);
    must(from[i] != NULL, "ibv_reg_mr");
  }
  for (int i = 0; i < kClients; i++) {
    struct ibv_sge sge = {(uintptr_t)octets[0], kOctets, from[i]->lkey};
    struct ibv_send_wr wr, *bad;
    memset(&wr, 0, sizeof wr);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)octets[0];
#ifdef MENDED
    wr.wr.rdma.remote_addr += (uint64_t)i * kOctets;
    sge.addr += (uint64_t)i * kOctets;
#endif
    wr.wr.rdma.rkey = to->rkey;
    must(ibv_post_send(pairs[i]->client->qp, &wr, &bad) == 0, "ibv_post_send");
  }
  for (int i = 0; i < kClients; i++) {
    must(poll_one(pairs[i]->client->send_cq).status == IBV_WC_SUCCESS, "an RDMA Write");
    ibv_dereg_mr(from[i]);
  }
  end_pair(&first);
  end_pair(&second);
  ibv_dereg_mr(to);
  return 0;
}
