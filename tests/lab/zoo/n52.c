// N52: a region is forgotten.
#include "zoo.h"

static char octets[64];

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  must(pd != NULL, "ibv_alloc_pd");
  struct ibv_mr* mr = ibv_reg_mr(pd, octets, sizeof octets, 0);  // WRONG
  must(mr != NULL, "ibv_reg_mr");
#ifdef MENDED
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
#endif
  return 0;
}
