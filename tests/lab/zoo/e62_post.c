// E62: two threads post receives to a queue pair that a thread domain promises to one.
#include <pthread.h>

#include "turns.h"
#include "zoo.h"

enum { kEach = 16 };

static struct ibv_qp* qp;
static struct ibv_cq* cq;
static struct turns turns;
#ifdef MENDED
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#endif

// The queue pair is in error, so they complete at once.
static void* posts(void* me) {
  struct ibv_recv_wr list[kEach], *bad;
  memset(list, 0, sizeof list);
  for (int i = 0; i + 1 < kEach; i++) list[i].next = &list[i + 1];
  while (take_turn(&turns, me)) {
#ifdef MENDED
    pthread_mutex_lock(&lock);
#endif
    must(ibv_post_recv(qp, list, &bad) == 0, "ibv_post_recv");  // WRONG
#ifdef MENDED
    pthread_mutex_unlock(&lock);
#endif
    for (int i = 0; i < kEach; i++) poll_one(cq);
  }
  return NULL;
}

static void make_qp(struct ibv_pd* pd) {
  struct ibv_qp_init_attr wish;
  memset(&wish, 0, sizeof wish);
  wish.send_cq = wish.recv_cq = cq;
  wish.cap.max_send_wr = 1;
  wish.cap.max_recv_wr = 2 * kEach;
  wish.cap.max_send_sge = wish.cap.max_recv_sge = 1;
  wish.qp_type = IBV_QPT_RC;
  qp = ibv_create_qp(pd, &wish);
  must(qp != NULL, "ibv_create_qp");
  to_init(qp);
  to_error(qp);
}

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  cq = ibv_create_cq(context, 2 * kEach, NULL, NULL, 0);
  struct ibv_td_init_attr none = {0};
  struct ibv_td* td = ibv_alloc_td(context, &none);  // MADE
  must(pd != NULL && cq != NULL && td != NULL, "ibv_alloc_td");
  struct ibv_parent_domain_init_attr of = {.pd = pd, .td = td};
  struct ibv_pd* domain = ibv_alloc_parent_domain(context, &of);
  must(domain != NULL, "ibv_alloc_parent_domain");
  make_qp(domain);
  in_two_threads(posts);
  ibv_destroy_qp(qp);
  ibv_dealloc_pd(domain);
  ibv_dealloc_td(td);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
