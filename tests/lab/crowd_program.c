// Connections on which Sends come before their receives, and channels that come and go, in threads
// of their own, for a second and a half; while `weft run --faults` breaks them.
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "zoo/zoo.h"

enum { kPairs = 10, kBytes = 4096, kPatienceMs = 5000 };
static struct pair crowd_of[kPairs];
static atomic_bool over;

// The next event, which has to be of this type. False: it is another, or there is none: the
// connection broke while it was being made.
static bool comes(struct pair* p, enum rdma_cm_event_type type) {
  struct pollfd ready = {.fd = p->channel->fd, .events = POLLIN};
  struct rdma_cm_event* event;
  if (poll(&ready, 1, kPatienceMs) != 1) return false;
  must(rdma_get_cm_event(p->channel, &event) == 0, "rdma_get_cm_event");
  const bool good = event->event == type;
  if (good && type == RDMA_CM_EVENT_CONNECT_REQUEST) p->server = event->id;
  rdma_ack_cm_event(event);
  return good;
}

static bool connect_to(struct pair* p, struct sockaddr_in* at) {
  struct rdma_conn_param param;
  memset(&param, 0, sizeof param);
  param.initiator_depth = param.responder_resources = 1;
  must(rdma_create_id(p->channel, &p->client, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  if (rdma_resolve_addr(p->client, NULL, (struct sockaddr*)at, 5000) != 0) return false;
  if (!comes(p, RDMA_CM_EVENT_ADDR_RESOLVED)) return false;
  if (rdma_resolve_route(p->client, 5000) != 0) return false;
  if (!comes(p, RDMA_CM_EVENT_ROUTE_RESOLVED)) return false;
  give_qp(p->client, 16);
  if (rdma_connect(p->client, &param) != 0) return false;
  if (!comes(p, RDMA_CM_EVENT_CONNECT_REQUEST)) return false;
  give_qp(p->server, 16);
  if (rdma_accept(p->server, &param) != 0) return false;
  return comes(p, RDMA_CM_EVENT_ESTABLISHED) && comes(p, RDMA_CM_EVENT_ESTABLISHED);
}

// One that broke too early is left as it is, and another one is made.
static struct pair make_pair(void) {
  for (;;) {
    struct pair p;
    struct sockaddr_in at = begin_pair(&p);
    if (connect_to(&p, &at)) return p;
  }
}

static void* send_early(void* which) {
  for (int i = 0; !atomic_load(&over); i = (i + 1) % (kPairs / 2)) {
    struct pair* p = &crowd_of[2 * i + (which != NULL)];
    struct ibv_mr* mr = p->client->context;
    struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
    struct ibv_send_wr wr = request_of(IBV_WR_SEND, &sge, 0, 0), *bad;
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
    struct ibv_wc wc;
    if (ibv_post_send(p->client->qp, &wr, &bad) == 0) sched_yield();
    ibv_post_recv(p->server->qp, &receive, &bad_receive);
    while (ibv_poll_cq(p->client->send_cq, 1, &wc) > 0) {
    }
    while (ibv_poll_cq(p->server->recv_cq, 1, &wc) > 0) {
    }
  }
  return NULL;
}

static void* make_channels(void* none) {
  while (!atomic_load(&over)) rdma_destroy_event_channel(rdma_create_event_channel());
  return none;
}

int main(void) {
  for (int i = 0; i < kPairs; i++) {
    struct pair* p = &crowd_of[i];
    *p = make_pair();
    p->client->context = ibv_reg_mr(p->client->pd, aligned_alloc(4096, kBytes), kBytes,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(p->client->context != NULL, "ibv_reg_mr");
  }
  pthread_t threads[4];
  pthread_create(&threads[0], NULL, send_early, NULL);
  pthread_create(&threads[1], NULL, send_early, &over);
  pthread_create(&threads[2], NULL, make_channels, NULL);
  pthread_create(&threads[3], NULL, make_channels, NULL);
  usleep(1500000);
  atomic_store(&over, true);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  printf("done\n");
  return 0;
}
