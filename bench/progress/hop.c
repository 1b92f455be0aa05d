// One thread that sends itself messages of 64 bytes over a connection and polls: each message is
// one hop, both ends of it. `weft_hop N` sends N; two runs under callgrind, with different N, show
// what a hop takes (hop.py). An ordinary verbs program.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 64, kDepth = 16 };

static void demand(int good, const char* what) {
  if (good) return;
  perror(what);
  exit(1);
}

static struct rdma_cm_id* endpoint(const char* port, int passive) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP};
  if (passive) hints.ai_flags = RAI_PASSIVE;
  struct rdma_addrinfo* found = NULL;
  demand(rdma_getaddrinfo("127.0.0.1", port, &hints, &found) == 0, "rdma_getaddrinfo");
  struct ibv_qp_init_attr attributes = {.cap = {.max_send_wr = kDepth,
                                                .max_recv_wr = kDepth,
                                                .max_send_sge = 1,
                                                .max_recv_sge = 1,
                                                .max_inline_data = kBytes},
                                        .sq_sig_all = 1};
  struct rdma_cm_id* id = NULL;
  demand(rdma_create_ep(&id, found, NULL, &attributes) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(found);
  return id;
}

static void* connect_active(void* id) {
  demand(rdma_connect(id, NULL) == 0, "rdma_connect");
  return NULL;
}

static void post_receive(struct rdma_cm_id* id, char* memory, struct ibv_mr* region) {
  demand(rdma_post_recv(id, NULL, memory, kBytes, region) == 0, "rdma_post_recv");
}

static void poll_one(struct ibv_cq* queue) {
  struct ibv_wc wc;
  int got = 0;
  while (got == 0) got = ibv_poll_cq(queue, 1, &wc);
  demand(got == 1 && wc.status == IBV_WC_SUCCESS, "ibv_poll_cq");
}

int main(int argc, char** argv) {
  if (argc != 3 || atol(argv[1]) <= 0) {
    fprintf(stderr, "usage: weft_hop MESSAGES PORT\n");
    return 2;
  }
  struct rdma_cm_id* listener = endpoint(argv[2], 1);
  demand(rdma_listen(listener, 1) == 0, "rdma_listen");
  struct rdma_cm_id* ends[2] = {endpoint(argv[2], 0), NULL};
  pthread_t thread;
  demand(pthread_create(&thread, NULL, connect_active, ends[0]) == 0, "pthread_create");
  demand(rdma_get_request(listener, &ends[1]) == 0, "rdma_get_request");
  demand(rdma_accept(ends[1], NULL) == 0, "rdma_accept");
  pthread_join(thread, NULL);

  static char memory[2][kBytes];
  struct ibv_mr* regions[2];
  for (int end = 0; end < 2; ++end) {
    regions[end] = rdma_reg_msgs(ends[end], memory[end], kBytes);
    demand(regions[end] != NULL, "rdma_reg_msgs");
    post_receive(ends[end], memory[end], regions[end]);
  }
  char message[kBytes] = {0};
  for (long left = atol(argv[1]); left > 0; --left) {
    struct rdma_cm_id* from = ends[left & 1];
    struct rdma_cm_id* to = ends[(left & 1) ^ 1];
    const int end = (int)(left & 1) ^ 1;
    memcpy(message, &left, sizeof(left));
    demand(rdma_post_send(from, NULL, message, kBytes, NULL, IBV_SEND_INLINE) == 0,
           "rdma_post_send");
    poll_one(from->send_cq);
    poll_one(to->recv_cq);
    demand(memcmp(memory[end], &left, sizeof(left)) == 0, "the message");
    post_receive(to, memory[end], regions[end]);
  }
  rdma_disconnect(ends[0]);
  for (int end = 0; end < 2; ++end) {
    rdma_dereg_mr(regions[end]);
    rdma_destroy_ep(ends[end]);
  }
  rdma_destroy_ep(listener);
  return 0;
}
