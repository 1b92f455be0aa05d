// E02: an id is made on an event channel that was destroyed.
#include "zoo.h"

int main(void) {
  struct rdma_event_channel* channel = rdma_create_event_channel();  // MADE
  struct rdma_cm_id* id = NULL;
  must(channel != NULL, "rdma_create_event_channel");
  rdma_destroy_event_channel(channel);  // DESTROYED
#ifndef MENDED
  rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);  // WRONG
#endif
  return id != NULL;
}
