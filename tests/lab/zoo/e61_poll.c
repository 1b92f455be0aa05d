// E61: a child polls the completion queue of its parent. Its own is another one.
#include <sys/wait.h>
#include <unistd.h>

#include "zoo.h"

static void poll_once(struct ibv_cq* cq) {
  struct ibv_wc wc;
  must(ibv_poll_cq(cq, 1, &wc) <= 0, "ibv_poll_cq");  // WRONG
}

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_cq* cq = ibv_create_cq(context, 4, NULL, NULL, 0);  // MADE
  must(cq != NULL, "ibv_create_cq");
  const pid_t child = fork();
  must(child >= 0, "fork");
  if (child == 0) {
#ifdef MENDED
    struct ibv_context* own = open_first();
    cq = ibv_create_cq(own, 4, NULL, NULL, 0);
    must(cq != NULL, "ibv_create_cq");
    poll_once(cq);
    ibv_destroy_cq(cq);
    ibv_close_device(own);
#else
    poll_once(cq);
#endif
    _exit(0);
  }
  int status = 0;
  must(waitpid(child, &status, 0) == child && status == 0, "waitpid");
  poll_once(cq);
  ibv_destroy_cq(cq);
  ibv_close_device(context);
  return 0;
}
