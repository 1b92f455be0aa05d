// Connections that threads use at the same time, each with a story of its own: what failed, and in
// which round. For rules about one queue pair.
// objects_program LANES ADDRESS...    the addresses of the listeners, in turn
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "zoo/zoo.h"

enum { kMostLanes = 16, kMostListeners = 4, kRounds = 200, kRoom = 4096 };

struct lane {
  struct rdma_cm_id *client, *server;
  struct ibv_mr *source, *sink;
  pthread_t thread;
  bool sent;  // a request with a completion has ended
  char story[8192];
};
static struct lane lanes[kMostLanes];
static struct rdma_event_channel* channel;

static void tell(struct lane* lane, const char* what, int round) {
  const size_t used = strlen(lane->story);
  snprintf(lane->story + used, sizeof lane->story - used, " %s %d", what, round);
}

static struct rdma_cm_id* listen_on(struct sockaddr_in* at) {
  struct rdma_cm_id* out;
  must(rdma_create_id(channel, &out, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_bind_addr(out, (struct sockaddr*)at) == 0, "rdma_bind_addr");
  must(rdma_listen(out, kMostLanes) == 0, "rdma_listen");
  at->sin_port = rdma_get_src_port(out);
  return out;
}

static struct ibv_mr* memory_of(struct rdma_cm_id* id) {
  struct ibv_mr* mr = ibv_reg_mr(id->pd, calloc(1, kRoom), kRoom, IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  return mr;
}

static void connect_to(struct lane* lane, struct sockaddr_in* at) {
  struct rdma_conn_param param;
  memset(&param, 0, sizeof param);
  must(rdma_create_id(channel, &lane->client, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_resolve_addr(lane->client, NULL, (struct sockaddr*)at, 5000) == 0, "resolve_addr");
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  must(rdma_resolve_route(lane->client, 5000) == 0, "rdma_resolve_route");
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  give_qp(lane->client, 16);
  must(rdma_connect(lane->client, &param) == 0, "rdma_connect");
  struct rdma_cm_event* request = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  lane->server = request->id;
  rdma_ack_cm_event(request);
  give_qp(lane->server, 16);
  must(rdma_accept(lane->server, &param) == 0, "rdma_accept");
  expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  expect(channel, RDMA_CM_EVENT_ESTABLISHED);
  lane->source = memory_of(lane->client);
  lane->sink = memory_of(lane->server);
}

// A post that fails is tried once more.
static bool receive(struct lane* lane, int round) {
  struct ibv_sge sge = {(uintptr_t)lane->sink->addr, kRoom, lane->sink->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  const int error = ibv_post_recv(lane->server->qp, &wr, &bad);
  if (error == 0) return true;
  tell(lane, strerrorname_np(error), round);
  return ibv_post_recv(lane->server->qp, &wr, &bad) == 0;
}

static bool transmit(struct lane* lane, int round) {
  struct ibv_sge sge = {(uintptr_t)lane->source->addr, 500U + 100U * (unsigned)(round % 8),
                        lane->source->lkey};
  struct ibv_send_wr wr = request_of(IBV_WR_SEND, &sge, 0, 0), *bad;
  if (round % 4 != 0) wr.send_flags = 0;
  lane->sent = round % 4 != 0;
  const int error = ibv_post_send(lane->client->qp, &wr, &bad);
  if (error == 0) return true;
  tell(lane, strerrorname_np(error), round);
  return ibv_post_send(lane->client->qp, &wr, &bad) == 0;
}

// Until the message is there, and its completion where it has one. False: one of them failed.
static bool complete(struct lane* lane) {
  struct ibv_wc wc;
  for (bool came = false; !came || !lane->sent;) {
    if (ibv_poll_cq(lane->client->send_cq, 1, &wc) != 0) {
      if (wc.status != IBV_WC_SUCCESS) return false;
      lane->sent = true;
    }
    if (!came && ibv_poll_cq(lane->server->recv_cq, 1, &wc) != 0) {
      if (wc.status != IBV_WC_SUCCESS) return false;
      came = true;
    }
  }
  return true;
}

static void* run(void* of) {
  struct lane* lane = of;
  for (int round = 1; round <= kRounds; ++round) {
    if (receive(lane, round) && transmit(lane, round) && complete(lane)) continue;
    tell(lane, "ended", round);
    break;
  }
  return NULL;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 0, listeners = argc - 2;
  must(count > 0 && count <= kMostLanes && listeners > 0 && listeners <= kMostListeners, "usage");
  struct sockaddr_in at[kMostListeners];
  memset(at, 0, sizeof at);
  channel = rdma_create_event_channel();
  must(channel != NULL, "rdma_create_event_channel");
  for (int i = 0; i < listeners; ++i) {
    at[i].sin_family = AF_INET;
    must(inet_pton(AF_INET, argv[i + 2], &at[i].sin_addr) == 1, argv[i + 2]);
    listen_on(&at[i]);
  }
  for (int i = 0; i < count; ++i) connect_to(&lanes[i], &at[i % listeners]);
  for (int i = 0; i < count; ++i) pthread_create(&lanes[i].thread, NULL, run, &lanes[i]);
  for (int i = 0; i < count; ++i) pthread_join(lanes[i].thread, NULL);
  for (int i = 0; i < count; ++i) printf("%d:%s\n", i, lanes[i].story);
  return 0;
}
