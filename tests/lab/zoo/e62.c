// E62: a second thread polls a completion queue that was promised to one.
#include <pthread.h>

#include "zoo.h"

static void* polls(void* queue) {
  struct ibv_cq_ex* cq = queue;
  struct ibv_poll_cq_attr attr = {0};
  if (ibv_start_poll(cq, &attr) == 0) ibv_end_poll(cq);  // WRONG
  return NULL;
}

static void in_thread(struct ibv_cq_ex* cq) {
  pthread_t thread;
  must(pthread_create(&thread, NULL, polls, cq) == 0, "pthread_create");
  pthread_join(thread, NULL);
}

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_cq_init_attr_ex wish;
  memset(&wish, 0, sizeof wish);
  wish.cqe = 4;
  wish.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  wish.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  struct ibv_cq_ex* cq = ibv_create_cq_ex(context, &wish);  // MADE
  struct ibv_pd* pd = ibv_alloc_pd(context);
  must(pd != NULL && cq != NULL, "ibv_create_cq_ex");
  struct ibv_qp_init_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 2;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  struct ibv_qp* qp = ibv_create_qp(pd, &attr);
  must(qp != NULL, "ibv_create_qp");
  to_init(qp);
  struct ibv_recv_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  for (int i = 0; i < 2; i++) must(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
  to_error(qp);
  struct ibv_poll_cq_attr poll = {0};
  while (ibv_start_poll(cq, &poll) != 0) {
  }
#ifdef MENDED
  ibv_end_poll(cq);
  in_thread(cq);
#else
  in_thread(cq);
  ibv_end_poll(cq);
#endif
  ibv_destroy_qp(qp);
  ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
