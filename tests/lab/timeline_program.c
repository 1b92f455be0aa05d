// A client and a server that wait for one thing each, for `weft run --timeline`.
//
//   timeline_program server MODE | client MODE ADDRESS | objects
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "zoo/zoo.h"

enum { kRounds = 5, kMost = 1 << 18, kDeep = 8, kThreads = 3 };
// A message waits 50 ms for its receive; all else may take as long as outweighs a busy machine.
static const long kLateNs = 50000000, kBusyNs = 200000000;

struct end {
  struct rdma_event_channel* channel;
  struct rdma_cm_id* id;
  struct ibv_mr* mr;
  uint64_t remote;
  uint32_t rkey;
};

struct memory {
  uint64_t addr;
  uint32_t rkey;
};

// The program does something else than look after its connection.
static void works(long ns) {
  const struct timespec t = {0, ns};
  nanosleep(&t, NULL);
}

static void prepare(struct end* e) {
  give_qp(e->id, 32);
  e->mr = ibv_reg_mr(e->id->pd, aligned_alloc(4096, kMost), kMost,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  must(e->mr != NULL, "ibv_reg_mr");
}

static void post(struct end* e, enum ibv_wr_opcode opcode, uint32_t length) {
  struct ibv_sge sge = {(uintptr_t)e->mr->addr, length, e->mr->lkey};
  struct ibv_send_wr wr = request_of(opcode, &sge, e->remote, e->rkey), *bad;
  must(ibv_post_send(e->id->qp, &wr, &bad) == 0, "ibv_post_send");
}

static void post_receive(struct end* e) {
  struct ibv_sge sge = {(uintptr_t)e->mr->addr, 64, e->mr->lkey};
  struct ibv_recv_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  must(ibv_post_recv(e->id->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void done(struct ibv_cq* cq) { must(poll_one(cq).status == IBV_WC_SUCCESS, "a completion"); }

// --- the server: one connection ---

static void answers(struct end* e, bool late, bool busy) {
  for (int i = 0; i < kRounds; i++) {
    if (late) works(kLateNs);
    if (late) post_receive(e);
    done(e->id->recv_cq);
    if (!late && i + 1 < kRounds) post_receive(e);
    if (busy) works(kBusyNs);
    post(e, IBV_WR_SEND, 8);
    done(e->id->send_cq);
  }
}

// A thread that is being cancelled takes what the client writes, until it is all there.
static void* polls_cancelled(void* self) {
  struct end* e = self;
  volatile char* there = e->mr->addr;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  pthread_cancel(pthread_self());
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  struct ibv_wc wc;
  while (*there == 0) ibv_poll_cq(e->id->recv_cq, 1, &wc);
  pthread_testcancel();
  return NULL;
}

static void in_thread(void* (*work)(void*), void* self) {
  pthread_t thread;
  must(pthread_create(&thread, NULL, work, self) == 0, "pthread_create");
  pthread_join(thread, NULL);
}

static void serve(const char* mode, int connections) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* listener;
  must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7471)};
  const char* port = getenv("TIMELINE_PORT");
  if (port != NULL) at.sin_port = htons((uint16_t)atoi(port));
  must(rdma_bind_addr(listener, (struct sockaddr*)&at) == 0, "rdma_bind_addr");
  must(rdma_listen(listener, 8) == 0, "rdma_listen");
  const bool late = strcmp(mode, "late") == 0;
  const bool busy = strcmp(mode, "busy") == 0;
  const bool cancelled = strcmp(mode, "cancelled") == 0;
  for (int left = connections; left != 0;) {
    struct rdma_cm_event* event;
    must(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
    const enum rdma_cm_event_type type = event->event;
    struct end e = {channel, event->id, NULL, 0, 0};
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      prepare(&e);
      if (busy) post_receive(&e);
      e.id->context = e.mr;
      struct memory memory = {(uintptr_t)e.mr->addr, e.mr->rkey};
      struct rdma_conn_param param;
      memset(&param, 0, sizeof param);
      param.private_data = &memory;
      param.private_data_len = sizeof memory;
      param.initiator_depth = param.responder_resources = 1;
      param.rnr_retry_count = 7;
      must(rdma_accept(e.id, &param) == 0, "rdma_accept");
    } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
      e.mr = e.id->context;
      if (late || busy) answers(&e, late, busy);
      if (cancelled) in_thread(polls_cancelled, &e);
    } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
      rdma_disconnect(e.id);
      rdma_destroy_qp(e.id);
      left--;
    }
  }
}

// --- the client ---

static void asks(struct end* e) {
  for (int i = 0; i < kRounds; i++) {
    post_receive(e);
    post(e, IBV_WR_SEND, 8);
    done(e->id->send_cq);
    done(e->id->recv_cq);
  }
}

static void keeps_deep(struct end* e) {
  int posted = 0;
  for (int got = 0; got < 5 * kDeep;) {
    for (; posted < 5 * kDeep && posted - got < kDeep; posted++) post(e, IBV_WR_RDMA_WRITE, kMost);
    struct ibv_wc wc;
    got += ibv_poll_cq(e->id->send_cq, 1, &wc);
  }
}

static void one_by_one(struct end* e, enum ibv_wr_opcode opcode, bool late) {
  for (int i = 0; i < kRounds; i++) {
    post(e, opcode, 64);
    if (late) works(kBusyNs);
    done(e->id->send_cq);
  }
}

static void register_once(void* self) {
  struct end* e = self;
  struct ibv_mr* mr = ibv_reg_mr(e->id->pd, e->mr->addr, 4096, IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  must(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
}

static pthread_key_t key_of_last;

static void* ends(void* self) {
  pthread_setspecific(key_of_last, self);
  return NULL;
}

// Threads that call verbs in their last destructors, one after the other.
static void register_last(struct end* e) {
  must(pthread_key_create(&key_of_last, register_once) == 0, "pthread_key_create");
  for (int i = 0; i < kRounds; i++) in_thread(ends, e);
}

// Objects that are destroyed leave no memory behind.
static void objects(void) {
  enum { kWarm = 1000, kMore = 4000, kOctets = 64 };
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  must(pd != NULL, "ibv_alloc_pd");
  void* memory = aligned_alloc(4096, 4096);
  size_t before = 0;
  for (int i = 0; i < kWarm + kMore; i++) {
    if (i == kWarm) before = mallinfo2().uordblks;
    struct ibv_mr* mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
    must(mr != NULL, "ibv_reg_mr");
    must(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  }
  must(mallinfo2().uordblks < before + (size_t)kMore * kOctets, "memory grows");
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}

static void connect_to(struct end* e, const char* address) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7471)};
  const char* port = getenv("TIMELINE_PORT");
  if (port != NULL) at.sin_port = htons((uint16_t)atoi(port));
  must(inet_pton(AF_INET, address, &at.sin_addr) == 1, "inet_pton");
  e->channel = rdma_create_event_channel();
  must(rdma_create_id(e->channel, &e->id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_resolve_addr(e->id, NULL, (struct sockaddr*)&at, 5000) == 0, "rdma_resolve_addr");
  expect(e->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  must(rdma_resolve_route(e->id, 5000) == 0, "rdma_resolve_route");
  expect(e->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  prepare(e);
  struct rdma_conn_param param;
  memset(&param, 0, sizeof param);
  param.initiator_depth = param.responder_resources = 1;
  param.rnr_retry_count = 7;
  must(rdma_connect(e->id, &param) == 0, "rdma_connect");
  struct rdma_cm_event* event = take(e->channel, RDMA_CM_EVENT_ESTABLISHED);
  struct memory memory;
  memcpy(&memory, event->param.conn.private_data, sizeof memory);
  rdma_ack_cm_event(event);
  e->remote = memory.addr;
  e->rkey = memory.rkey;
}

static const char* address_of_server;

static void* writes_in_thread(void* unused) {
  struct end e;
  connect_to(&e, address_of_server);
  one_by_one(&e, IBV_WR_RDMA_WRITE, false);
  rdma_disconnect(e.id);
  return unused;
}

static void call(const char* mode, const char* address) {
  address_of_server = address;
  if (strcmp(mode, "threads") == 0) {
    pthread_t threads[kThreads];
    for (int i = 0; i < kThreads; i++)
      must(pthread_create(&threads[i], NULL, writes_in_thread, NULL) == 0, "pthread_create");
    for (int i = 0; i < kThreads; i++) pthread_join(threads[i], NULL);
    return;
  }
  struct end e;
  connect_to(&e, address);
  if (strcmp(mode, "depth1") == 0) one_by_one(&e, IBV_WR_RDMA_READ, false);
  if (strcmp(mode, "unpolled") == 0) one_by_one(&e, IBV_WR_RDMA_WRITE, true);
  if (strcmp(mode, "killed") == 0) {
    one_by_one(&e, IBV_WR_RDMA_WRITE, false);
    raise(SIGKILL);
  }
  if (strcmp(mode, "link") == 0) keeps_deep(&e);
  if (strcmp(mode, "last") == 0) register_last(&e);
  if (strcmp(mode, "cancelled") == 0) {
    memset(e.mr->addr, 1, 64);
    one_by_one(&e, IBV_WR_RDMA_WRITE, false);
  }
  if (strcmp(mode, "late") == 0 || strcmp(mode, "busy") == 0) asks(&e);
  rdma_disconnect(e.id);
  rdma_destroy_qp(e.id);
}

int main(int argc, char** argv) {
  if (argc > 2 && strcmp(argv[1], "server") == 0) {
    serve(argv[2], strcmp(argv[2], "threads") == 0 ? kThreads : 1);
    return 0;
  }
  if (argc > 3 && strcmp(argv[1], "client") == 0) {
    call(argv[2], argv[3]);
    return 0;
  }
  if (argc > 1 && strcmp(argv[1], "objects") == 0) {
    objects();
    return 0;
  }
  fprintf(stderr, "timeline_program server MODE | client MODE ADDRESS | objects\n");
  return 2;
}
