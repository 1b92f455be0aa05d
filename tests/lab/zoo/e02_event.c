// E02: a program waits for an event of a channel that was destroyed.
#include "zoo.h"

int main(void) {
  struct rdma_event_channel* channel = rdma_create_event_channel();  // MADE
  struct rdma_cm_event* event = NULL;
  must(channel != NULL, "rdma_create_event_channel");
  rdma_destroy_event_channel(channel);  // DESTROYED
#ifndef MENDED
  rdma_get_cm_event(channel, &event);  // WRONG
#endif
  return event != NULL;
}
