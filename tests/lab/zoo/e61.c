// E61: a server has its children destroy the region that they share with it.
#include <sys/wait.h>
#include <unistd.h>

#include "zoo.h"

static char octets[64];

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  must(pd != NULL, "ibv_alloc_pd");
  struct ibv_mr* mr = ibv_reg_mr(pd, octets, sizeof octets, 0);  // MADE
  must(mr != NULL, "ibv_reg_mr");
  const pid_t child = fork();
  must(child >= 0, "fork");
  if (child == 0) {
#ifndef MENDED
    ibv_dereg_mr(mr);  // WRONG
#endif
    ibv_close_device(context);  // the child's own copy of the descriptors
    exit(0);
  }
  must(waitpid(child, NULL, 0) == child, "waitpid");
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return 0;
}
