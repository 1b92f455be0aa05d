// For `weft faults sweep`: where the completion queue cannot be made, the region stays behind.
#include "zoo.h"

static char octets[64];

static int use(struct ibv_context* context) {
  int status = 1;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  struct ibv_pd* pd = ibv_alloc_pd(context);
  if (pd == NULL) return status;
  mr = ibv_reg_mr(pd, octets, sizeof octets, 0);  // MADE
  if (mr == NULL) goto without_mr;
  cq = ibv_create_cq(context, 4, NULL, NULL, 0);  // WRONG
#ifdef MENDED
  if (cq == NULL) goto without_cq;
#else
  if (cq == NULL) return status;
#endif
  status = 0;
  ibv_destroy_cq(cq);
#ifdef MENDED
without_cq:
#endif
  ibv_dereg_mr(mr);
without_mr:
  ibv_dealloc_pd(pd);
  return status;
}

int main(void) {
  struct ibv_context* context = open_first();
  const int status = use(context);
  ibv_close_device(context);
  return status;
}
