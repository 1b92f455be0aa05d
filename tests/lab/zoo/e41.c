// E41: an id is destroyed while the event that named it is not acknowledged. It hangs, until a
// signal ends it.
#include <unistd.h>

#include "zoo.h"

int main(void) {
  struct sockaddr_in at;
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* id;
  struct rdma_cm_event* event;
  memset(&at, 0, sizeof at);
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(1);
  must(channel != NULL, "rdma_create_event_channel");
  must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");  // MADE
  must(rdma_resolve_addr(id, NULL, (struct sockaddr*)&at, 5000) == 0, "rdma_resolve_addr");
  event = take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
#ifdef MENDED
  rdma_ack_cm_event(event);
#else
  (void)event;
  alarm(4);
#endif
  rdma_destroy_id(id);  // WRONG
  rdma_destroy_event_channel(channel);
  return 0;
}
