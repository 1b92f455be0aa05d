// Which requests can be posted: each on a new connection of the device to itself, by rdma_cm.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "probe_device.h"

enum { kBytes = 4096, kPatienceMs = 5000, kMostSges = 64, kMark = 0x5a };

struct pair {
  struct rdma_event_channel* channel;
  struct rdma_cm_id* listener;
  struct rdma_cm_id* client;
  struct rdma_cm_id* server;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;  // source, sink and target
  struct ibv_mw* mw;
  char* memory;
};

// The next event, whatever it is; -1: none came, or one that says failure.
static int next_event(struct pair* c) {
  struct pollfd ready = {.fd = c->channel->fd, .events = POLLIN};
  if (poll(&ready, 1, kPatienceMs) != 1) return errno = ETIMEDOUT, -1;
  struct rdma_cm_event* event = NULL;
  if (rdma_get_cm_event(c->channel, &event) != 0) return -1;
  const int kind = (int)event->event;
  const int status = event->status;
  if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) c->server = event->id;
  rdma_ack_cm_event(event);
  if (status != 0) return errno = status < 0 ? -status : ECONNREFUSED, -1;
  return kind;
}

static bool expect(struct pair* c, enum rdma_cm_event_type kind) {
  return next_event(c) == (int)kind;
}

static bool give_qp(struct pair* c, struct rdma_cm_id* id, uint32_t sges) {
  struct ibv_qp_init_attr attr = {
      .send_cq = c->cq,
      .recv_cq = c->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = sges, .max_recv_sge = 1}};
  return rdma_create_qp(id, c->pd, &attr) == 0;
}

static bool reach(struct pair* c, const struct sockaddr* own) {
  return rdma_create_id(c->channel, &c->listener, NULL, RDMA_PS_TCP) == 0 &&
         rdma_bind_addr(c->listener, (struct sockaddr*)own) == 0 &&
         rdma_listen(c->listener, 1) == 0 &&
         rdma_create_id(c->channel, &c->client, NULL, RDMA_PS_TCP) == 0;
}

static bool resolve(struct pair* c, const struct sockaddr* own) {
  struct sockaddr_storage to;
  memcpy(&to, own,
         own->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
  const uint16_t port = rdma_get_src_port(c->listener);
  if (own->sa_family == AF_INET) {
    ((struct sockaddr_in*)&to)->sin_port = port;
  } else {
    ((struct sockaddr_in6*)&to)->sin6_port = port;
  }
  return rdma_resolve_addr(c->client, NULL, (struct sockaddr*)&to, kPatienceMs) == 0 &&
         expect(c, RDMA_CM_EVENT_ADDR_RESOLVED) &&
         rdma_resolve_route(c->client, kPatienceMs) == 0 && expect(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static bool join(struct pair* c, uint32_t sges) {
  struct rdma_conn_param param = {
      .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
  if (!give_qp(c, c->client, sges) || rdma_connect(c->client, &param) != 0) return false;
  if (!expect(c, RDMA_CM_EVENT_CONNECT_REQUEST) || !give_qp(c, c->server, 1)) return false;
  struct ibv_sge into = {(uintptr_t)c->memory, kBytes, c->mr->lkey};
  struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1}, *bad;
  if (ibv_post_recv(c->server->qp, &receive, &bad) != 0) return false;
  return rdma_accept(c->server, &param) == 0 && expect(c, RDMA_CM_EVENT_ESTABLISHED) &&
         expect(c, RDMA_CM_EVENT_ESTABLISHED);
}

static void end_id(struct rdma_cm_id* id) {
  if (id == NULL) return;
  if (id->qp != NULL) rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

static void close_pair(struct pair* c) {
  if (c->client != NULL && c->client->qp != NULL) rdma_disconnect(c->client);
  end_id(c->client);
  end_id(c->server);
  if (c->mw != NULL) ibv_dealloc_mw(c->mw);
  if (c->mr != NULL) ibv_dereg_mr(c->mr);
  end_id(c->listener);
  if (c->cq != NULL) ibv_destroy_cq(c->cq);
  if (c->pd != NULL) ibv_dealloc_pd(c->pd);
  if (c->channel != NULL) rdma_destroy_event_channel(c->channel);
  free(c->memory);
}

static bool open_pair(struct pair* c, const struct sockaddr* own, uint32_t sges) {
  *c = (struct pair){.channel = rdma_create_event_channel(), .memory = aligned_alloc(4096, kBytes)};
  if (c->channel == NULL || c->memory == NULL || !reach(c, own) || !resolve(c, own)) return false;
  memset(c->memory, 0, kBytes);
  struct ibv_context* device = c->client->verbs;
  c->pd = ibv_alloc_pd(device);
  c->cq = ibv_create_cq(device, 32, NULL, NULL, 0);
  if (c->pd == NULL || c->cq == NULL) return false;
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  c->mr =
      ibv_reg_mr(c->pd, c->memory, kBytes, access | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
  if (c->mr == NULL) c->mr = ibv_reg_mr(c->pd, c->memory, kBytes, access);
  return c->mr != NULL && join(c, sges);
}

// Whether rdma_cm takes this address for this device.
static bool is_of_device(const struct probe* p, struct sockaddr* address) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* id = NULL;
  bool is = false;
  if (channel != NULL && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0) {
    is =
        rdma_bind_addr(id, address) == 0 && id->verbs != NULL &&
        strcmp(ibv_get_device_name(id->verbs->device), ibv_get_device_name(p->device->device)) == 0;
    rdma_destroy_id(id);
  }
  if (channel != NULL) rdma_destroy_event_channel(channel);
  return is;
}

static bool find_address(const struct probe* p, struct sockaddr_storage* out) {
  struct ifaddrs* all = NULL;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (struct ifaddrs* one = all; one != NULL && !found; one = one->ifa_next) {
    if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET) continue;
    found = is_of_device(p, one->ifa_addr);
    if (found) memcpy(out, one->ifa_addr, sizeof(struct sockaddr_in));
  }
  freeifaddrs(all);
  return found;
}

static bool read_address(const char* text, struct sockaddr_storage* out) {
  struct sockaddr_in* v4 = (struct sockaddr_in*)out;
  struct sockaddr_in6* v6 = (struct sockaddr_in6*)out;
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    return true;
  }
  v6->sin6_family = AF_INET6;
  return inet_pton(AF_INET6, text, &v6->sin6_addr) == 1;
}

// False: the address that was given is none of the device.
static bool use_given(const struct probe* p, struct sockaddr_storage* out) {
  if (!read_address(p->address, out)) {
    fprintf(stderr, "weft-probe: --address: '%s' is no address of IPv4 or IPv6\n", p->address);
    return false;
  }
  if (is_of_device(p, (struct sockaddr*)out)) return true;
  fprintf(stderr, "weft-probe: --address: %s is no address of %s\n", p->address,
          ibv_get_device_name(p->device->device));
  return false;
}

static const char* status_name(int status) {
  return status < 0 ? "no completion" : ibv_wc_status_str((enum ibv_wc_status)status);
}

// Waits for the completion of the request with this number.
static int completion_of(struct pair* c, uint64_t wr_id) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (;;) {
    struct ibv_wc wc;
    if (ibv_poll_cq(c->cq, 1, &wc) == 1 && wc.wr_id == wr_id) return (int)wc.status;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - start.tv_sec) * 1000 > kPatienceMs) return -1;
  }
}

static void prepare(struct pair* c, enum ibv_wr_opcode opcode, struct ibv_send_wr* wr) {
  wr->opcode = opcode;
  wr->wr.rdma.remote_addr = (uintptr_t)c->memory + kBytes / 2;
  wr->wr.rdma.rkey = c->mr->rkey;
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr->wr.atomic.remote_addr = (uintptr_t)c->memory + kBytes / 2;
    wr->wr.atomic.rkey = c->mr->rkey;
    wr->wr.atomic.compare_add = 0;
    wr->wr.atomic.swap = 1;
  }
  if (opcode == IBV_WR_BIND_MW && c->mw != NULL) {
    wr->num_sge = 0;
    wr->bind_mw.mw = c->mw;
    wr->bind_mw.rkey = ibv_inc_rkey(c->mw->rkey);
    wr->bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = c->mr,
                                                      .addr = (uintptr_t)c->memory,
                                                      .length = kBytes,
                                                      .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  }
}

// The errno of a post. Some drivers return it negative.
static int errno_of_post(int result) { return result == -1 ? errno : abs(result); }

struct request {
  const char* key;
  enum ibv_wr_opcode opcode;
  uint32_t bytes;
  bool post_only;  // it has nothing that it could invalidate, so how it ends says nothing
};

static void probe_request(const struct sockaddr* own, const struct request* r) {
  begin(r->key);
  struct pair c;
  if (!open_pair(&c, own, 1)) {
    remark("%s: no connection to itself: %s", r->key, strerror(errno));
    close_pair(&c);
    return;
  }
  if (r->opcode == IBV_WR_BIND_MW) {
    c.mw = ibv_alloc_mw(c.pd, IBV_MW_TYPE_2);
    if (c.mw == NULL) {  // mw.TYPE_2 says so
      close_pair(&c);
      return;
    }
  }
  struct ibv_sge from = {(uintptr_t)c.memory, r->bytes, c.mr->lkey};
  struct ibv_send_wr wr = {.wr_id = 1,
                           .sg_list = &from,
                           .num_sge = r->bytes != 0 ? 1 : 0,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad = NULL;
  prepare(&c, r->opcode, &wr);
  const int error = ibv_post_send(c.client->qp, &wr, &bad);
  if (error != 0) {
    say_outcome(r->key, errno_of_post(error));
  } else {
    const int status = completion_of(&c, 1);
    if (status == IBV_WC_SUCCESS || r->post_only) {
      say_outcome(r->key, 0);
    } else {
      remark("%s is taken, and ends with: %s", r->key, status_name(status));
    }
  }
  close_pair(&c);
}

// Reads into one SGE more than the device promises for them.
static void probe_read_sges(struct probe* p, const struct sockaddr* own) {
  const int most = p->attr.max_sge_rd;
  if (most < 1 || most >= p->attr.max_sge || most >= kMostSges) return;
  struct pair c;
  const uint32_t count = (uint32_t)most + 1;
  if (open_pair(&c, own, count)) {
    struct ibv_sge into[kMostSges];
    for (uint32_t i = 0; i < count; i++)
      into[i] = (struct ibv_sge){(uintptr_t)c.memory + 8UL * i, 8, c.mr->lkey};
    memset(c.memory + kBytes / 2, kMark, 8 * (size_t)count);
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = into,
                             .num_sge = (int)count,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad = NULL;
    prepare(&c, IBV_WR_RDMA_READ, &wr);
    const int error = ibv_post_send(c.client->qp, &wr, &bad);
    const int status = error == 0 ? completion_of(&c, 1) : IBV_WC_SUCCESS;
    if (error == 0 && status == IBV_WC_SUCCESS && c.memory[8 * count - 1] != kMark) {
      remark("post.read_sge_beyond is taken and completes, but not all SGEs are filled");
    } else if (status == IBV_WC_SUCCESS) {
      say_outcome("post.read_sge_beyond", errno_of_post(error));
    } else {
      remark("post.read_sge_beyond is taken, and ends with: %s", status_name(status));
    }
  } else {
    remark("post.read_sge_beyond: no connection to itself: %s", strerror(errno));
  }
  close_pair(&c);
}

bool probe_requests(struct probe* p) {
  struct sockaddr_storage own;
  memset(&own, 0, sizeof own);
  if (p->address != NULL) {
    if (!use_given(p, &own)) return false;
  } else if (!find_address(p, &own)) {
    remark("no requests were tried: rdma_cm has no address of this device; --address gives one");
    fprintf(stderr, "weft-probe: no requests were tried: no address of the device was found\n");
    return true;
  }
  static const struct request requests[] = {
      {"post.SEND", IBV_WR_SEND, 8, false},
      {"post.SEND_WITH_IMM", IBV_WR_SEND_WITH_IMM, 8, false},
      {"post.SEND_WITH_IMM_only", IBV_WR_SEND_WITH_IMM, 0, false},
      {"post.SEND_WITH_INV", IBV_WR_SEND_WITH_INV, 8, true},
      {"post.RDMA_WRITE", IBV_WR_RDMA_WRITE, 8, false},
      {"post.RDMA_WRITE_WITH_IMM", IBV_WR_RDMA_WRITE_WITH_IMM, 8, false},
      {"post.RDMA_READ", IBV_WR_RDMA_READ, 8, false},
      {"post.ATOMIC_CMP_AND_SWP", IBV_WR_ATOMIC_CMP_AND_SWP, 8, false},
      {"post.ATOMIC_FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, false},
      {"post.LOCAL_INV", IBV_WR_LOCAL_INV, 0, true},
      {"post.BIND_MW", IBV_WR_BIND_MW, 0, false}};
  const struct sockaddr* address = (const struct sockaddr*)&own;
  for (unsigned i = 0; i < sizeof requests / sizeof requests[0]; i++)
    probe_request(address, &requests[i]);
  probe_read_sges(p, address);
  return true;
}
