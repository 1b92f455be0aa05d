// Shake 6: posts one receive more to a shared receive queue than it asked for.
#include "zoo.h"

enum { kAsked = 5 };
static char octets[64];

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  must(pd != NULL, "ibv_alloc_pd");
  struct ibv_mr* mr = ibv_reg_mr(pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
#ifdef MENDED
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = kAsked + 1, .max_sge = 1}};
#else
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = kAsked, .max_sge = 1}};  // WRONG
#endif
  struct ibv_srq* srq = ibv_create_srq(pd, &attr);
  must(srq != NULL, "ibv_create_srq");
  struct ibv_sge sge = {(uintptr_t)octets, sizeof octets, mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  for (int i = 0; i < kAsked + 1; ++i)
    must(ibv_post_srq_recv(srq, &wr, &bad) == 0, "ibv_post_srq_recv");
  ibv_destroy_srq(srq);
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
