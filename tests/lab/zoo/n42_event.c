// N42: a program asks to be told when its shared receive queue runs dry, and does not listen.
#include "zoo.h"

int main(void) {
  struct ibv_context* context = open_first();  // WRONG
  struct ibv_pd* pd = ibv_alloc_pd(context);
  must(pd != NULL, "ibv_alloc_pd");
  struct ibv_srq_init_attr wish;
  memset(&wish, 0, sizeof wish);
  wish.attr.max_wr = 4;
  wish.attr.max_sge = 1;
  struct ibv_srq* srq = ibv_create_srq(pd, &wish);  // MADE
  must(srq != NULL, "ibv_create_srq");
  struct ibv_srq_attr limit;
  memset(&limit, 0, sizeof limit);
  limit.srq_limit = 2;  // and no receive is posted
  must(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0, "ibv_modify_srq");
#ifdef MENDED
  struct ibv_async_event event;
  must(ibv_get_async_event(context, &event) == 0, "ibv_get_async_event");
  must(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED, "IBV_EVENT_SRQ_LIMIT_REACHED");
  ibv_ack_async_event(&event);
  ibv_destroy_srq(srq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
#endif
  return 0;
}
