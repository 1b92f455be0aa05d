// A program that meets refusals under `weft run --like`. like_program
// requests|shared|builder|objects
#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "zoo/zoo.h"

enum { kBytes = 4096, kMost = 64 };

static void prepare(struct ibv_send_wr* wr, struct ibv_sge* sge, struct ibv_mr* mr,
                    enum ibv_wr_opcode opcode, int sges) {
  memset(wr, 0, sizeof *wr);
  *sge = (struct ibv_sge){(uintptr_t)mr->addr, 8, mr->lkey};
  wr->opcode = opcode;
  wr->sg_list = sge;
  wr->num_sge = sges;
  wr->send_flags = IBV_SEND_SIGNALED;
  wr->wr.rdma.remote_addr = (uintptr_t)mr->addr + kBytes / 2;
  wr->wr.rdma.rkey = mr->rkey;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr->wr.atomic.remote_addr = (uintptr_t)mr->addr + kBytes / 2;
    wr->wr.atomic.rkey = mr->rkey;
  }
}

// A list whose second request is refused: the first is carried out, the third is not looked at.
static int requests(void) {
  struct pair p = connect_pair(8);
  struct ibv_mr* mr = ibv_reg_mr(p.client->pd, aligned_alloc(4096, kBytes), kBytes,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  must(mr != NULL, "ibv_reg_mr");
  struct ibv_send_wr wr[3], *bad = NULL;
  struct ibv_sge sge[3], two[2];
  prepare(&wr[0], &sge[0], mr, IBV_WR_RDMA_WRITE, 1);
  prepare(&wr[1], &sge[1], mr, IBV_WR_ATOMIC_FETCH_AND_ADD, 1);
  prepare(&wr[2], &sge[2], mr, IBV_WR_RDMA_WRITE, 1);
  for (int i = 0; i < 3; i++) wr[i].wr_id = (uint64_t)i + 1;
  wr[0].next = &wr[1];
  wr[1].next = &wr[2];
  const int error = ibv_post_send(p.client->qp, wr, &bad);
  printf("list: %s bad %d next %d\n", strerrorname_np(error), bad == NULL ? -1 : (int)(bad - wr),
         wr[0].next == &wr[1] && wr[1].next == &wr[2]);
  struct ibv_wc wc;
  while (ibv_poll_cq(p.client->send_cq, 1, &wc) == 0) {
  }
  printf("completed: %d %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
  poll(NULL, 0, 50);
  printf("others: %d\n", ibv_poll_cq(p.client->send_cq, 1, &wc));
  prepare(&wr[0], two, mr, IBV_WR_RDMA_READ, 2);
  two[1] = two[0];
  printf("read: %s\n", strerrorname_np(ibv_post_send(p.client->qp, wr, &bad)));
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  must(ibv_query_qp(p.client->qp, &attr, IBV_QP_CAP, &init) == 0, "ibv_query_qp");
  printf("granted: %u %u, inline %u\n", attr.cap.max_send_wr, init.cap.max_recv_wr,
         attr.cap.max_inline_data);
  return 0;
}

// Two threads post the same list, whose last request is refused. None of the others may be lost.
static struct ibv_send_wr shared_list[3];
static struct ibv_sge shared_sges[3];
enum { kRounds = 20000 };

static void* post_shared(void* id) {
  struct ibv_qp* qp = ((struct rdma_cm_id*)id)->qp;
  struct ibv_cq* cq = ((struct rdma_cm_id*)id)->send_cq;
  long wrong = 0, done = 0;
  for (int i = 0; i < kRounds; i++) {
    struct ibv_send_wr* bad = NULL;
    const int error = ibv_post_send(qp, shared_list, &bad);
    wrong += error != EINVAL || bad != &shared_list[2];
    struct ibv_wc wc;
    for (int got = 0; got < 2;) {
      if (ibv_poll_cq(cq, 1, &wc) == 0) continue;
      got++;
      done += wc.status == IBV_WC_SUCCESS;
    }
  }
  return (void*)(wrong + (done != 2L * kRounds));
}

static int shared(void) {
  struct pair p[2] = {connect_pair(8), connect_pair(8)};
  pthread_t threads[2];
  struct ibv_mr* mr = ibv_reg_mr(p[0].client->pd, aligned_alloc(4096, kBytes), kBytes,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  for (int i = 0; i < 3; i++) {
    prepare(&shared_list[i], &shared_sges[i], mr,
            i < 2 ? IBV_WR_RDMA_WRITE : IBV_WR_ATOMIC_FETCH_AND_ADD, 1);
    shared_list[i].next = i < 2 ? &shared_list[i + 1] : NULL;
  }
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, post_shared, p[i].client);
  long wrong = 0;
  for (int i = 0; i < 2; i++) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    wrong += (long)result;
  }
  printf("wrong: %ld\n", wrong);
  return 0;
}

// Queue pairs for ibv_wr_... with these operations.
static int builder(void) {
  struct ibv_context* device = open_first();
  struct ibv_cq* cq = ibv_create_cq(device, 4, NULL, NULL, 0);
  const uint64_t operations[] = {IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_RDMA_WRITE,
                                 IBV_QP_EX_WITH_RDMA_READ};
  for (int i = 0; i < 3; i++) {
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {1, 1, 1, 1, 0},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = ibv_alloc_pd(device),
        .send_ops_flags = operations[i]};
    errno = 0;
    printf("%s\n", ibv_create_qp_ex(device, &attr) != NULL ? "made" : strerrorname_np(errno));
  }
  return 0;
}

// Makes objects of each kind until one is refused.
static int objects(void) {
  struct ibv_context* device = open_first();
  int count = 0;
  struct ibv_pd* pds[kMost];
  while (count < kMost && (pds[count] = ibv_alloc_pd(device)) != NULL) count++;
  printf("pd: %d %s\n", count, strerrorname_np(errno));
  must(count > 0, "ibv_alloc_pd");
  // One that goes makes room for another.
  ibv_dealloc_pd(pds[--count]);
  pds[count] = ibv_alloc_pd(device);
  printf("pd again: %d\n", pds[count] != NULL);
  struct ibv_cq* cq = NULL;
  for (count = 0; count < kMost; count++) {
    struct ibv_cq* next = ibv_create_cq(device, 4, NULL, NULL, 0);
    if (next == NULL) break;
    cq = next;
  }
  printf("cq: %d %s\n", count, strerrorname_np(errno));
  struct ibv_qp_init_attr attr = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
  for (count = 0; count < kMost && ibv_create_qp(pds[0], &attr) != NULL; count++) {
  }
  printf("qp: %d %s\n", count, strerrorname_np(errno));
  static char memory[kBytes];
  for (count = 0; count < kMost && ibv_reg_mr(pds[0], memory, kBytes, 0) != NULL; count++) {
  }
  printf("mr: %d %s\n", count, strerrorname_np(errno));
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "requests") == 0) return requests();
  if (argc == 2 && strcmp(argv[1], "shared") == 0) return shared();
  if (argc == 2 && strcmp(argv[1], "builder") == 0) return builder();
  return argc == 2 && strcmp(argv[1], "objects") == 0 ? objects() : 2;
}
