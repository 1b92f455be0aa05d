// E02: an event channel is destroyed twice.
#include "zoo.h"

int main(void) {
  struct rdma_event_channel* channel = rdma_create_event_channel();  // MADE
  must(channel != NULL, "rdma_create_event_channel");
  rdma_destroy_event_channel(channel);  // DESTROYED
#ifndef MENDED
  rdma_destroy_event_channel(channel);  // WRONG
#endif
  return 0;
}
