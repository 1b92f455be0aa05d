// For `weft faults sweep`: a program that makes its calls in threads, beside a fork's child, or
// with another program after it.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zoo.h"

static char bad_place;

// Null: all calls were good.
static void* use(void* failed) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (list == NULL) return failed;
  struct ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (context == NULL) return failed;
  struct ibv_pd* pd = ibv_alloc_pd(context);
  if (pd != NULL) ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return pd != NULL ? NULL : failed;
}

static int in_threads(void) {
  pthread_t threads[4];
  int status = 0;
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, use, &bad_place);
  for (int i = 0; i < 4; ++i) {
    void* result;
    pthread_join(threads[i], &result);
    if (result != NULL) status = 7;
  }
  return status;
}

// The child's calls do not count. If one of the parent's has failed, the child aborts.
static int beside_a_child(void) {
  const int bad = use(&bad_place) != NULL;
  if (fork() == 0) {
    if (bad) abort();
    exit(use(&bad_place) != NULL ? 8 : 0);
  }
  int status;
  wait(&status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(int argc, char** argv) {
  const char* form = argc > 1 ? argv[1] : "plain";
  if (strcmp(form, "threads") == 0) return in_threads();
  if (strcmp(form, "fork") == 0) return beside_a_child();
  if (use(&bad_place) != NULL) return 5;
  if (strcmp(form, "exec") == 0) execl(argv[0], argv[0], "plain", (char*)NULL);
  return 0;
}
