// A program whose calls and completions `weft run --faults` lets fail.
// faults_program writes|extended|receives|registers|events|connects|broken|caps|messages|
//   large|lists|losses|replies|ids|ends|sleeps
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#include "zoo/zoo.h"

enum { kBytes = 4096, kRequests = 6 };

static struct ibv_mr* memory_of(struct rdma_cm_id* id) {
  struct ibv_mr* mr = ibv_reg_mr(id->pd, aligned_alloc(4096, kBytes), kBytes,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  return mr;
}

static int post_write(struct rdma_cm_id* id, struct ibv_mr* mr, uint64_t wr_id) {
  struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
  const uintptr_t to = (uintptr_t)mr->addr + kBytes / 2;
  struct ibv_send_wr wr = request_of(IBV_WR_RDMA_WRITE, &sge, to, mr->rkey), *bad;
  wr.wr_id = wr_id;
  return ibv_post_send(id->qp, &wr, &bad);
}

static void print_state(struct ibv_qp* qp) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  must(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
  printf("state %s\n", attr.qp_state == IBV_QPS_ERR ? "ERR" : "another");
}

static int writes(void) {
  struct pair p = connect_pair(16);
  struct ibv_mr* mr = memory_of(p.client);
  for (uint64_t i = 1; i <= kRequests; i++) must(post_write(p.client, mr, i) == 0, "ibv_post_send");
  struct ibv_wc wc;
  for (int got = 0; got < kRequests;) {
    if (ibv_poll_cq(p.client->send_cq, 1, &wc) == 0) continue;
    printf("%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
    got++;
  }
  print_state(p.client->qp);
  if (post_write(p.client, mr, 7) == 0) {
    while (ibv_poll_cq(p.client->send_cq, 1, &wc) == 0) {
    }
    printf("%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
  }
  return 0;
}

// The same by a CQ of ibv_create_cq_ex.
static int extended(void) {
  struct pair p = connect_pair(16);
  struct ibv_context* device = p.client->verbs;
  struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
  struct ibv_cq_ex* cq = ibv_create_cq_ex(device, &cq_attr);
  must(cq != NULL, "ibv_create_cq_ex");
  rdma_destroy_qp(p.client);
  struct rdma_cm_id* id;
  must(rdma_create_id(p.channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                           .sin_port = rdma_get_src_port(p.listener)};
  must(rdma_resolve_addr(id, NULL, (struct sockaddr*)&at, 5000) == 0, "rdma_resolve_addr");
  struct rdma_cm_event* event;
  struct rdma_conn_param param;
  memset(&param, 0, sizeof param);
  for (int established = 0; established < 2;) {
    must(rdma_get_cm_event(p.channel, &event) == 0, "rdma_get_cm_event");
    const enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id* of = event->id;
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
      must(rdma_resolve_route(id, 5000) == 0, "rdma_resolve_route");
    } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
      struct ibv_qp_init_attr attr = {.send_cq = ibv_cq_ex_to_cq(cq),
                                      .recv_cq = ibv_cq_ex_to_cq(cq),
                                      .qp_type = IBV_QPT_RC,
                                      .cap = {8, 8, 1, 1, 0}};
      must(rdma_create_qp(id, p.client->pd, &attr) == 0, "rdma_create_qp");
      must(rdma_connect(id, &param) == 0, "rdma_connect");
    } else if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      give_qp(of, 8);
      must(rdma_accept(of, &param) == 0, "rdma_accept");
    } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
      established++;
    }
  }
  struct ibv_mr* mr = memory_of(id);
  for (uint64_t i = 1; i <= 3; i++) must(post_write(id, mr, i) == 0, "ibv_post_send");
  struct ibv_poll_cq_attr none = {0};
  for (int got = 0; got < 3;) {
    if (ibv_start_poll(cq, &none) != 0) continue;
    printf("%d: %s\n", (int)cq->wr_id, ibv_wc_status_str(cq->status));
    ibv_end_poll(cq);
    got++;
  }
  print_state(id->qp);
  return 0;
}

static int receives(void) {
  struct pair p = connect_pair(16);
  struct ibv_mr* to = memory_of(p.server);
  struct ibv_mr* from = memory_of(p.client);
  struct ibv_sge sge = {(uintptr_t)to->addr, 64, to->lkey};
  for (uint64_t i = 1; i <= 4; i++) {
    struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_recv(p.server->qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  struct ibv_sge out = {(uintptr_t)from->addr, 8, from->lkey};
  for (int i = 0; i < 4; i++) {
    struct ibv_send_wr wr = {.sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  }
  for (int got = 0; got < 4;) {
    struct ibv_wc wc;
    if (ibv_poll_cq(p.server->recv_cq, 1, &wc) == 0) continue;
    printf("%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
    got++;
  }
  print_state(p.server->qp);
  return 0;
}

// Which of a hundred registrations fail.
static int registers(void) {
  struct ibv_pd* pd = ibv_alloc_pd(open_first());
  static char memory[kBytes];
  for (int i = 1; i <= 100; i++) {
    if (ibv_reg_mr(pd, memory, kBytes, 0) == NULL) printf("%d %s\n", i, strerrorname_np(errno));
  }
  return 0;
}

static const char* port_state(struct ibv_context* device) {
  struct ibv_port_attr port;
  must(ibv_query_port(device, 1, &port) == 0, "ibv_query_port");
  return port.state == IBV_PORT_ACTIVE ? "up" : "down";
}

// The first asynchronous event, with what it names and how things are then.
static int events(void) {
  struct pair p = connect_pair(8);
  struct ibv_context* device = p.client->verbs;
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
  struct ibv_srq* srq = ibv_create_srq(p.client->pd, &attr);
  must(srq != NULL, "ibv_create_srq");
  struct pollfd ready = {.fd = device->async_fd, .events = POLLIN};
  must(poll(&ready, 1, 10000) == 1, "no event");
  struct ibv_async_event event;
  must(ibv_get_async_event(device, &event) == 0, "ibv_get_async_event");
  const void* of = event.element.qp;
  printf("%d of %s, port %s\n", (int)event.event_type,
         of == p.client->qp ? "qp"
         : of == p.client->send_cq || of == p.client->recv_cq || of == p.server->send_cq ||
                 of == p.server->recv_cq
             ? "cq"
         : of == srq                   ? "srq"
         : event.element.port_num == 1 ? "port"
                                       : "another",
         port_state(device));
  print_state(p.client->qp);
  ibv_ack_async_event(&event);
  return 0;
}

// A connection to oneself, event by event.
static int connects(void) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id *listener, *client;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_bind_addr(listener, (struct sockaddr*)&at) == 0, "rdma_bind_addr");
  must(rdma_listen(listener, 4) == 0, "rdma_listen");
  at.sin_port = rdma_get_src_port(listener);
  must(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_resolve_addr(client, NULL, (struct sockaddr*)&at, 5000) == 0, "rdma_resolve_addr");
  struct rdma_conn_param param;
  memset(&param, 0, sizeof param);
  int established = 0, tries = 1;
  struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
  while (poll(&ready, 1, 1000) == 1) {
    struct rdma_cm_event* event;
    must(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
    const enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id* id = event->id;
    printf("%s %s %d\n", id == client ? "client" : "server", rdma_event_str(type), event->status);
    if (type == RDMA_CM_EVENT_REJECTED && event->param.conn.private_data_len != 0) {
      printf("it says %.*s\n", event->param.conn.private_data_len,
             (const char*)event->param.conn.private_data);
    }
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
      must(rdma_resolve_route(client, 5000) == 0, "rdma_resolve_route");
    } else if (type == RDMA_CM_EVENT_ADDR_ERROR && tries-- > 0) {  // once more
      at.sin_port = rdma_get_src_port(listener);
      must(rdma_resolve_addr(client, NULL, (struct sockaddr*)&at, 5000) == 0, "once more");
    } else if (type == RDMA_CM_EVENT_ROUTE_ERROR && tries-- > 0) {
      must(rdma_resolve_route(client, 5000) == 0, "once more");
    } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
      give_qp(client, 4);
      must(rdma_connect(client, &param) == 0, "rdma_connect");
    } else if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      give_qp(id, 4);
      must(rdma_accept(id, &param) == 0, "rdma_accept");
    } else if (type == RDMA_CM_EVENT_ESTABLISHED && ++established == 2) {
      break;
    }
  }
  if (client->qp != NULL) print_state(client->qp);
  rdma_destroy_ep(client);
  return 0;
}

// A connection that breaks while nobody does anything.
static int broken(void) {
  struct pair p = connect_pair(8);
  struct pollfd ready = {.fd = p.channel->fd, .events = POLLIN};
  must(poll(&ready, 1, 10000) == 1, "no event");
  struct rdma_cm_event* event = take(p.channel, RDMA_CM_EVENT_DISCONNECTED);
  printf("disconnected\n");
  rdma_ack_cm_event(event);
  print_state(p.client->qp);
  return 0;
}

// A QP is as large as without faults.
static int caps(void) {
  struct ibv_context* context = open_first();
  struct ibv_cq* cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  init.cap = (struct ibv_qp_cap){5, 5, 1, 1, 0};
  must(ibv_create_qp(ibv_alloc_pd(context), &init) != NULL, "ibv_create_qp");
  printf("%u %u %u\n", init.cap.max_send_wr, init.cap.max_send_sge, init.cap.max_inline_data);
  return 0;
}

// Messages, one after another, until one fails: how many have come whole.
enum { kMessages = 300, kMessage = 2048 };
static int messages(void) {
  struct pair p = connect_pair(16);
  struct ibv_mr* from = memory_of(p.client);
  struct ibv_mr* to = memory_of(p.server);
  struct ibv_sge source = {(uintptr_t)from->addr, kMessage, from->lkey};
  struct ibv_sge sink = {(uintptr_t)to->addr, kMessage, to->lkey};
  struct ibv_wc wc[2];
  int came = 0;
  for (bool good = true; good && came < kMessages;) {
    struct ibv_recv_wr recv = {.sg_list = &sink, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    send.send_flags = IBV_SEND_SIGNALED;
    memset(from->addr, came + 1, kMessage);
    if (ibv_post_recv(p.server->qp, &recv, &bad_recv) != 0) break;
    if (ibv_post_send(p.client->qp, &send, &bad) != 0) break;
    int got[2] = {0, 0};
    while (got[0] == 0 || got[1] == 0) {
      if (got[0] == 0) got[0] = ibv_poll_cq(p.client->send_cq, 1, &wc[0]);
      if (got[1] == 0) got[1] = ibv_poll_cq(p.server->recv_cq, 1, &wc[1]);
    }
    good = wc[0].status == IBV_WC_SUCCESS && wc[1].status == IBV_WC_SUCCESS;
    if (wc[1].status != IBV_WC_SUCCESS) {
      printf("receive: %s\n", ibv_wc_status_str(wc[1].status));
      break;
    }
    came++;
    must(memcmp(from->addr, to->addr, kMessage) == 0, "another message than was sent");
  }
  printf("%d came\n", came);
  // The client hears of it, too, with what it posts next.
  if (came < kMessages) {
    do {
      if (post_write(p.client, from, 1) != 0) break;
      while (ibv_poll_cq(p.client->send_cq, 1, wc) == 0) {
      }
    } while (wc->status == IBV_WC_SUCCESS);
    printf("send: %s\n", ibv_wc_status_str(wc->status));
  }
  print_state(p.client->qp);
  print_state(p.server->qp);
  return 0;
}

// One message of 4 MB, and nobody polls until it is done.
enum { kLarge = 4 << 20 };
static int large(void) {
  struct pair p = connect_pair(4);
  struct ibv_mr* mr = ibv_reg_mr(p.client->pd, calloc(2, kLarge), 2 * kLarge,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)mr->addr, kLarge, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = (uintptr_t)mr->addr + kLarge;
  wr.wr.rdma.rkey = mr->rkey;
  struct ibv_cq* cq = p.client->send_cq;
  void* unused;
  must(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
  must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  must(ibv_get_cq_event(p.client->send_cq_channel, &cq, &unused) == 0, "ibv_get_cq_event");
  printf("%s\n", ibv_wc_status_str(poll_one(cq).status));
  return 0;
}

// Lists of three requests, of which the second may be refused.
static int lists(void) {
  struct pair p = connect_pair(16);
  struct ibv_mr* mr = memory_of(p.client);
  struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
  struct ibv_recv_wr receives[3], *bad_receive = NULL;
  struct ibv_send_wr sends[3], *bad_send = NULL;
  memset(receives, 0, sizeof receives);
  memset(sends, 0, sizeof sends);
  for (int i = 0; i < 3; i++) {
    receives[i].wr_id = sends[i].wr_id = (uint64_t)i + 1;
    receives[i].sg_list = sends[i].sg_list = &sge;
    receives[i].num_sge = sends[i].num_sge = 1;
    sends[i].opcode = IBV_WR_RDMA_WRITE;
    sends[i].send_flags = IBV_SEND_SIGNALED;
    sends[i].wr.rdma.remote_addr = (uintptr_t)mr->addr + kBytes / 2;
    sends[i].wr.rdma.rkey = mr->rkey;
    if (i < 2) receives[i].next = &receives[i + 1];
    if (i < 2) sends[i].next = &sends[i + 1];
  }
  int error = ibv_post_recv(p.client->qp, receives, &bad_receive);
  printf("receives %d %d\n", error, bad_receive == NULL ? 0 : (int)bad_receive->wr_id);
  // One alone has no second.
  struct ibv_send_wr alone = sends[2];
  must(ibv_post_send(p.client->qp, &alone, &bad_send) == 0, "ibv_post_send");
  poll_one(p.client->send_cq);
  error = ibv_post_send(p.client->qp, sends, &bad_send);
  printf("sends %d %d\n", error, bad_send == NULL ? 0 : (int)bad_send->wr_id);
  if (error == 0) return 0;
  printf("%d: %s\n", 1, ibv_wc_status_str(poll_one(p.client->send_cq).status));
  must(ibv_post_send(p.client->qp, bad_send, &bad_send) == 0, "the rest");
  for (int i = 2; i <= 3; i++) {
    const struct ibv_wc wc = poll_one(p.client->send_cq);
    printf("%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
  }
  return 0;
}

// A request that is refused, and six Writes, each to a place of its own: how they end, and which
// have arrived: those that ended with success are waited for, with `replies` that behind them too,
// of which the acknowledgment alone was lost.
static int losses(bool replies) {
  struct pair p = connect_pair(16);
  struct ibv_mr* mr = memory_of(p.client);
  volatile uint64_t* words = mr->addr;
  struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
  words[0] = 1;
  struct ibv_send_wr wr, *bad;
  memset(&wr, 0, sizeof wr);
  wr.opcode = (enum ibv_wr_opcode)99;
  must(ibv_post_send(p.client->qp, &wr, &bad) != 0, "no refusal");
  for (uint64_t i = 1; i <= kRequests; i++) {
    words[i] = 0;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = i;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)&words[i];
    wr.wr.rdma.rkey = mr->rkey;
    must(ibv_post_send(p.client->qp, &wr, &bad) == 0, "ibv_post_send");
  }
  int good = 0;
  for (int i = 0; i < kRequests; i++) {
    const struct ibv_wc wc = poll_one(p.client->send_cq);
    printf("%d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
    good += wc.status == IBV_WC_SUCCESS;
  }
  print_state(p.client->qp);
  const int last = replies ? good + 1 : good;
  for (int i = 0; i < 10000 && (last == 0 || words[last] == 0); i++) usleep(1000);
  for (int i = 1; i <= kRequests; i++) printf("%d %s\n", i, words[i] != 0 ? "arrived" : "lost");
  return 0;
}

// Events of the ids of a connection that its client ends, or that nobody ends.
static int ids(bool ends) {
  struct pair p = connect_pair(8);
  if (ends) rdma_disconnect(p.client);
  struct pollfd ready = {.fd = p.channel->fd, .events = POLLIN};
  while (poll(&ready, 1, ends ? 1000 : 2500) == 1) {
    struct rdma_cm_event* event;
    must(rdma_get_cm_event(p.channel, &event) == 0, "rdma_get_cm_event");
    const struct rdma_cm_id* id = event->id;
    printf("%s %s %d\n",
           id == p.client   ? "client"
           : id == p.server ? "server"
                            : "listener",
           rdma_event_str(event->event), event->status);
    if (event->event == RDMA_CM_EVENT_DISCONNECTED && id == p.server) rdma_disconnect(p.server);
    rdma_ack_cm_event(event);
  }
  print_state(p.client->qp);
  end_pair(&p);
  return 0;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(what, "writes") == 0) return writes();
  if (strcmp(what, "extended") == 0) return extended();
  if (strcmp(what, "receives") == 0) return receives();
  if (strcmp(what, "registers") == 0) return registers();
  if (strcmp(what, "events") == 0) return events();
  if (strcmp(what, "connects") == 0) return connects();
  if (strcmp(what, "broken") == 0) return broken();
  if (strcmp(what, "caps") == 0) return caps();
  if (strcmp(what, "messages") == 0) return messages();
  if (strcmp(what, "large") == 0) return large();
  if (strcmp(what, "lists") == 0) return lists();
  if (strcmp(what, "losses") == 0 || strcmp(what, "replies") == 0) return losses(what[0] == 'r');
  if (strcmp(what, "ids") == 0 || strcmp(what, "ends") == 0) return ids(what[0] == 'e');
  open_first();
  sleep(20);
  return 0;
}
