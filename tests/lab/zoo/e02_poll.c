// E02: a completion queue is polled after its end, by an inline function of <infiniband/verbs.h>.
#include "zoo.h"

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_cq* cq = ibv_create_cq(context, 4, NULL, NULL, 0);  // MADE
  struct ibv_wc wc;
  must(cq != NULL, "ibv_create_cq");
#ifdef MENDED
  ibv_poll_cq(cq, 1, &wc);
#endif
  ibv_destroy_cq(cq);  // DESTROYED
#ifndef MENDED
  ibv_poll_cq(cq, 1, &wc);  // WRONG
#endif
  ibv_close_device(context);
  return 0;
}
