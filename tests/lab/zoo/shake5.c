// Shake 5: asks errno why ibv_post_send failed, instead of looking at what it returned.
#include "zoo.h"

#include <errno.h>

static char octets[64];

int main(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* mr = ibv_reg_mr(p.client->pd, octets, sizeof octets, 0);
  must(mr != NULL, "ibv_reg_mr");
  struct ibv_sge many[64];
  for (int i = 0; i < 64; ++i) many[i] = (struct ibv_sge){(uintptr_t)octets, 1, mr->lkey};
  struct ibv_send_wr send = {.sg_list = many, .num_sge = 64, .opcode = IBV_WR_SEND}, *bad;
  int error = ibv_post_send(p.client->qp, &send, &bad);
#ifndef MENDED
  error = errno;  // WRONG
#endif
  ibv_dereg_mr(mr);
  end_pair(&p);
  if (error != EINVAL) fprintf(stderr, "ibv_post_send: %s\n", strerror(error));
  return error != EINVAL;
}
