// Shared by the programs of the zoo and of tests/lab: a device, a connection whose two ends are in
// one process, requests.
//
// A mistake of a program is on a line with the word WRONG; with -DMENDED it is repaired.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void must(int good, const char* what) {
  if (good) return;
  perror(what);
  exit(3);
}

static inline struct ibv_context* open_first(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  must(list != NULL && count > 0, "ibv_get_device_list");
  struct ibv_context* context = ibv_open_device(list[0]);
  must(context != NULL, "ibv_open_device");
  ibv_free_device_list(list);
  return context;
}

// A client and a server end, connected, on one channel.
struct pair {
  struct rdma_event_channel* channel;
  struct rdma_cm_id *listener, *server, *client;
};

// Takes an event, which has to be of this type. The caller acknowledges it.
static inline struct rdma_cm_event* take(struct rdma_event_channel* channel,
                                         enum rdma_cm_event_type type) {
  struct rdma_cm_event* event;
  must(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  if (event->event != type) {
    fprintf(stderr, "got %s, wanted %s\n", rdma_event_str(event->event), rdma_event_str(type));
    exit(3);
  }
  return event;
}

static inline void expect(struct rdma_event_channel* channel, enum rdma_cm_event_type type) {
  rdma_ack_cm_event(take(channel, type));
}

// `cq`: the id's own if null.
static inline void give_qp_on(struct rdma_cm_id* id, unsigned depth, struct ibv_cq* cq) {
  struct ibv_qp_init_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = depth;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  must(rdma_create_qp(id, NULL, &attr) == 0, "rdma_create_qp");
}

// No functions: a report has a few places of an object, and the program's is to be among them.
#define give_qp(id, depth) give_qp_on(id, depth, NULL)
#define connect_pair(depth) connect_pair_on(depth, 0)
#define connect_pair_on(depth, cqe) connect_pair_to(depth, cqe, NULL)

// A channel, and an id that listens at a port of the loopback device: the address.
static inline struct sockaddr_in begin_pair(struct pair* p) {
  struct sockaddr_in at;
  memset(p, 0, sizeof *p);
  memset(&at, 0, sizeof at);
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  p->channel = rdma_create_event_channel();
  must(p->channel != NULL, "rdma_create_event_channel");
  must(rdma_create_id(p->channel, &p->listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_bind_addr(p->listener, (struct sockaddr*)&at) == 0, "rdma_bind_addr");
  must(rdma_listen(p->listener, 1) == 0, "rdma_listen");
  at.sin_port = rdma_get_src_port(p->listener);
  return at;
}

// A request with a signal. For those that have a remote address it comes with a key.
static inline struct ibv_send_wr request_of(enum ibv_wr_opcode opcode, struct ibv_sge* sge,
                                            uint64_t remote, uint32_t rkey) {
  struct ibv_send_wr wr;
  memset(&wr, 0, sizeof wr);
  wr.opcode = opcode;
  wr.sg_list = sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  return wr;
}

// Moves a connected queue pair that rdma_cm does not know from RESET to INIT.
static inline void to_init(struct ibv_qp* qp) {
  struct ibv_qp_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  must(ibv_modify_qp(qp, &attr, mask) == 0, "ibv_modify_qp");
}

static inline void to_error(struct ibv_qp* qp) {
  struct ibv_qp_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.qp_state = IBV_QPS_ERR;
  must(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "ibv_modify_qp");
}

// `cqe`: the client has a completion queue of its own, for so many; 0: it has `cq`, or rdma_cm's.
static inline struct pair connect_pair_to(unsigned depth, int cqe, struct ibv_cq* cq) {
  struct pair p;
  struct sockaddr_in at = begin_pair(&p);
  struct rdma_conn_param param;
  struct rdma_cm_event* request;
  must(rdma_create_id(p.channel, &p.client, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_resolve_addr(p.client, NULL, (struct sockaddr*)&at, 5000) == 0, "rdma_resolve_addr");
  expect(p.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  must(rdma_resolve_route(p.client, 5000) == 0, "rdma_resolve_route");
  expect(p.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  if (cqe != 0) {
    cq = ibv_create_cq(p.client->verbs, cqe, NULL, NULL, 0);
    must(cq != NULL, "ibv_create_cq");
  }
  give_qp_on(p.client, depth, cq);
  memset(&param, 0, sizeof param);
  param.initiator_depth = param.responder_resources = 1;
  must(rdma_connect(p.client, &param) == 0, "rdma_connect");
  request = take(p.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  p.server = request->id;
  rdma_ack_cm_event(request);
  give_qp(p.server, depth);
  must(rdma_accept(p.server, &param) == 0, "rdma_accept");
  expect(p.channel, RDMA_CM_EVENT_ESTABLISHED);
  expect(p.channel, RDMA_CM_EVENT_ESTABLISHED);
  return p;
}

// Polls until there is a completion.
static inline struct ibv_wc poll_one(struct ibv_cq* cq) {
  struct ibv_wc wc;
  int got;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  must(got == 1, "ibv_poll_cq");
  return wc;
}

static inline void end_pair(struct pair* p) {
  rdma_destroy_qp(p->client);
  rdma_destroy_qp(p->server);
  rdma_destroy_id(p->client);
  rdma_destroy_id(p->server);
  rdma_destroy_id(p->listener);
  rdma_destroy_event_channel(p->channel);
}
