// E62: two threads poll a completion queue that a thread domain promises to one.
#include <pthread.h>

#include "turns.h"
#include "zoo.h"

static struct ibv_cq* cq;
static struct turns turns;
#ifdef MENDED
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#endif

static void* polls(void* me) {
  struct ibv_wc wc;
  while (take_turn(&turns, me)) {
#ifdef MENDED
    pthread_mutex_lock(&lock);
#endif
    must(ibv_poll_cq(cq, 1, &wc) == 0, "ibv_poll_cq");  // WRONG
#ifdef MENDED
    pthread_mutex_unlock(&lock);
#endif
  }
  return NULL;
}

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_td_init_attr none = {0};
  struct ibv_td* td = ibv_alloc_td(context, &none);
  must(pd != NULL && td != NULL, "ibv_alloc_td");
  struct ibv_parent_domain_init_attr of = {.pd = pd, .td = td};
  struct ibv_cq_init_attr_ex wish;
  memset(&wish, 0, sizeof wish);
  wish.cqe = 4;
  wish.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  wish.parent_domain = ibv_alloc_parent_domain(context, &of);
  must(wish.parent_domain != NULL, "ibv_alloc_parent_domain");
  struct ibv_cq_ex* queue = ibv_create_cq_ex(context, &wish);  // MADE
  must(queue != NULL, "ibv_create_cq_ex");
  cq = ibv_cq_ex_to_cq(queue);
  in_two_threads(polls);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(wish.parent_domain);
  ibv_dealloc_td(td);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
