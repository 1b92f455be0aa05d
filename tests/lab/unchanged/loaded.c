// A library whose constructor makes an id while another thread makes some.
#include "loaded.h"

#include <stddef.h>
#include <unistd.h>

__attribute__((constructor)) static void start(void) {
  struct rdma_cm_id* id = NULL;
  atomic_store(&loads, 1);
  usleep(100000);  // the other one most likely makes some meanwhile
  if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0) rdma_destroy_id(id);
}
