// E02: a completion queue is destroyed twice.
#include "zoo.h"

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_cq* cq = ibv_create_cq(context, 4, NULL, NULL, 0);  // MADE
  must(cq != NULL, "ibv_create_cq");
  ibv_destroy_cq(cq);  // DESTROYED
#ifndef MENDED
  ibv_destroy_cq(cq);  // WRONG
#endif
  ibv_close_device(context);
  return 0;
}
