// Traffic whose faults `weft run --record` writes down and `--replay` repeats.
// replay_program threads|steps|datagrams
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "zoo/zoo.h"

enum { kPairs = 4, kRounds = 300, kBytes = 64 };

// A connection that its thread uses alone, and what became of it.
struct lane {
  struct pair pair;
  struct ibv_mr* mr;
  pthread_t thread;
  char story[4096];
};
static struct lane lanes[kPairs];

static void tell(struct lane* lane, const char* what, int round) {
  const size_t used = strlen(lane->story);
  snprintf(lane->story + used, sizeof lane->story - used, " %s %d", what, round);
}

// One Write. 0, or the errno of its post; `status` is that of its completion.
static int write_one(struct lane* lane, enum ibv_wc_status* status) {
  struct ibv_sge sge = {(uintptr_t)lane->mr->addr, 8, lane->mr->lkey};
  const uintptr_t to = (uintptr_t)lane->mr->addr + kBytes / 2;
  struct ibv_send_wr wr = request_of(IBV_WR_RDMA_WRITE, &sge, to, lane->mr->rkey), *bad;
  const int error = ibv_post_send(lane->pair.client->qp, &wr, &bad);
  if (error == 0) *status = poll_one(lane->pair.client->send_cq).status;
  return error;
}

static void* run(void* of) {
  struct lane* lane = of;
  enum ibv_wc_status status = IBV_WC_SUCCESS;
  for (int round = 1; round <= kRounds && status == IBV_WC_SUCCESS; ++round) {
    const int error = write_one(lane, &status);
    if (error != 0) tell(lane, strerrorname_np(error), round);
    if (error == 0 && status != IBV_WC_SUCCESS) tell(lane, ibv_wc_status_str(status), round);
    sched_yield();
  }
  return NULL;
}

static void make(struct lane* lane) {
  lane->pair = connect_pair(4);
  lane->mr = ibv_reg_mr(lane->pair.client->pd, calloc(1, kBytes), kBytes,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(lane->mr != NULL, "ibv_reg_mr");
}

// Each thread has its own connection: their calls fall together as it happens.
static int threads(void) {
  for (int i = 0; i < kPairs; ++i) make(&lanes[i]);
  for (int i = 0; i < kPairs; ++i) pthread_create(&lanes[i].thread, NULL, run, &lanes[i]);
  for (int i = 0; i < kPairs; ++i) pthread_join(lanes[i].thread, NULL);
  for (int i = 0; i < kPairs; ++i) printf("%d:%s\n", i, lanes[i].story);
  return 0;
}

// One Write after another, until something breaks the connection: how many went well.
static int steps(void) {
  make(&lanes[0]);
  enum ibv_wc_status status = IBV_WC_SUCCESS;
  int good = 0;
  while (write_one(&lanes[0], &status) == 0 && status == IBV_WC_SUCCESS) ++good;
  printf("%d went well\n", good);
  return 0;
}

// A queue pair of datagrams.
static int datagrams(void) {
  struct ibv_context* context = open_first();
  struct ibv_cq* cq = ibv_create_cq(context, 4, NULL, NULL, 0);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD};
  init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
  must(ibv_create_qp(ibv_alloc_pd(context), &init) != NULL, "ibv_create_qp");
  return 0;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(what, "threads") == 0) return threads();
  if (strcmp(what, "steps") == 0) return steps();
  return datagrams();
}
