// Queue pairs that are wired by hand, one message each: wired_program rc|uc|ud PAIRS
// Of the first half of the pairs it prints how the Send ends, of the others how the receive does.
// wired_program datagrams COUNT: which of so many datagrams do not come.
// wired_program gone COUNT: destroys the queue pair that has sent so many datagrams.
#include <stdbool.h>
#include <unistd.h>

#include "zoo/zoo.h"

enum { kGrh = 40, kBytes = 64, kKey = 0x1234 };

struct end {
  struct ibv_qp* qp;
  struct ibv_cq* cq;
};
static struct ibv_context* device;
static struct ibv_pd* pd;
static struct ibv_mr* mr;
static enum ibv_qp_type type;
static union ibv_gid gid;

static void move(struct ibv_qp* qp, struct ibv_qp_attr attr, enum ibv_qp_state to, int mask) {
  attr.qp_state = to;
  must(ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE) == 0, "ibv_modify_qp");
}

static struct end make_deep(uint32_t receives) {
  struct end out;
  out.cq = ibv_create_cq(device, (int)receives + 4, NULL, NULL, 0);
  must(out.cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr init = {.send_cq = out.cq, .recv_cq = out.cq, .qp_type = type};
  init.cap = (struct ibv_qp_cap){4, receives, 1, 1, 0};
  out.qp = ibv_create_qp(pd, &init);
  must(out.qp != NULL, "ibv_create_qp");
  struct ibv_qp_attr attr = {.port_num = 1, .qkey = kKey};
  const int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  move(out.qp, attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
  return out;
}

static struct end make(void) { return make_deep(4); }

static void wire(struct ibv_qp* qp, uint32_t peer) {
  struct ibv_qp_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid;
  const int unreliable = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  const int rtr = type == IBV_QPT_UD ? 0 : type == IBV_QPT_UC ? unreliable : unreliable | reliable;
  move(qp, attr, IBV_QPS_RTR, rtr);
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  const int more = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  move(qp, attr, IBV_QPS_RTS, IBV_QP_SQ_PSN | (type == IBV_QPT_RC ? more : 0));
}

static void run(bool receives) {
  const struct end from = make(), to = make();
  wire(from.qp, to.qp->qp_num);
  wire(to.qp, from.qp->qp_num);
  struct ibv_sge sge = {(uintptr_t)mr->addr, kGrh + kBytes, mr->lkey};
  struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
  must(ibv_post_recv(to.qp, &receive, &bad_receive) == 0, "ibv_post_recv");
  struct ibv_sge source = {(uintptr_t)mr->addr, kBytes, mr->lkey};
  struct ibv_send_wr send = request_of(IBV_WR_SEND, &source, 0, 0), *bad;
  struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}};
  if (type == IBV_QPT_UD) {
    send.wr.ud.ah = ibv_create_ah(pd, &way);
    must(send.wr.ud.ah != NULL, "ibv_create_ah");
    send.wr.ud.remote_qpn = to.qp->qp_num;
    send.wr.ud.remote_qkey = kKey;
  }
  must(ibv_post_send(from.qp, &send, &bad) == 0, "ibv_post_send");
  const struct ibv_wc sent = poll_one(from.cq);
  if (receives) must(sent.status == IBV_WC_SUCCESS, "the Send");
  printf("%s\n", ibv_wc_status_str(receives ? poll_one(to.cq).status : sent.status));
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  must(ibv_query_qp(receives ? to.qp : from.qp, &attr, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
  if (attr.qp_state != IBV_QPS_ERR) printf("it is in another state than ERR\n");
}

static void send_number(struct end from, struct end to, struct ibv_ah* ah, int number) {
  char* const octets = mr->addr;
  memcpy(octets, &number, sizeof number);
  struct ibv_sge source = {(uintptr_t)octets, kBytes, mr->lkey};
  struct ibv_send_wr send = request_of(IBV_WR_SEND, &source, 0, 0), *bad;
  send.wr.ud.ah = ah;
  send.wr.ud.remote_qpn = to.qp->qp_num;
  send.wr.ud.remote_qkey = kKey;
  must(ibv_post_send(from.qp, &send, &bad) == 0, "ibv_post_send");
  must(poll_one(from.cq).status == IBV_WC_SUCCESS, "the Send");
}

// The number in the next datagram that has come; -1: there is none.
static int take_number(struct end to, struct ibv_mr* sink) {
  struct ibv_wc wc;
  if (ibv_poll_cq(to.cq, 1, &wc) == 0) return -1;
  must(wc.status == IBV_WC_SUCCESS, "the receive");
  int number;
  memcpy(&number, (char*)sink->addr + (size_t)wc.wr_id * (kGrh + kBytes) + kGrh, sizeof number);
  return number;
}

// The last ones are sent until one of them comes: those before have come then, or never do.
static int datagrams(int count) {
  enum { kMost = 1000, kMoreReceives = 4000 };
  static bool came[kMost];
  const struct end from = make_deep(8), to = make_deep(kMost + kMoreReceives);
  wire(from.qp, to.qp->qp_num);
  wire(to.qp, from.qp->qp_num);
  const size_t room = kGrh + kBytes, receives = kMost + kMoreReceives;
  struct ibv_mr* sink =
      ibv_reg_mr(pd, calloc(receives, room), receives * room, IBV_ACCESS_LOCAL_WRITE);
  must(sink != NULL && count <= kMost, "ibv_reg_mr");
  for (size_t i = 0; i < receives; ++i) {
    struct ibv_sge sge = {(uintptr_t)sink->addr + i * room, (uint32_t)room, sink->lkey};
    struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
    must(ibv_post_recv(to.qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}};
  struct ibv_ah* ah = ibv_create_ah(pd, &way);
  must(ah != NULL, "ibv_create_ah");
  int number = -1;
  for (int i = 0; i < count; ++i) {
    send_number(from, to, ah, i);
    while ((number = take_number(to, sink)) >= 0) came[number] = true;
  }
  while (number < count) {
    send_number(from, to, ah, count);
    usleep(1000);
    while ((number = take_number(to, sink)) >= 0 && number < count) came[number] = true;
  }
  for (int i = 0; i < count; ++i) {
    if (!came[i]) printf("%d\n", i);
  }
  return 0;
}

static int gone(int count) {
  const struct end from = make_deep(8), to = make_deep(8);
  wire(from.qp, to.qp->qp_num);
  struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}};
  struct ibv_ah* ah = ibv_create_ah(pd, &way);
  must(ah != NULL, "ibv_create_ah");
  for (int i = 0; i < count; ++i) send_number(from, to, ah, i);
  must(ibv_destroy_qp(from.qp) == 0, "ibv_destroy_qp");
  return 0;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const int pairs = argc > 2 ? atoi(argv[2]) : 0;
  const bool counts = strcmp(what, "datagrams") == 0, ends = strcmp(what, "gone") == 0;
  const bool is_ud = counts || ends || strcmp(what, "ud") == 0;
  type = is_ud ? IBV_QPT_UD : strcmp(what, "uc") == 0 ? IBV_QPT_UC : IBV_QPT_RC;
  static char octets[kGrh + kBytes];
  device = open_first();
  pd = ibv_alloc_pd(device);
  must(pd != NULL, "ibv_alloc_pd");
  mr = ibv_reg_mr(pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  must(ibv_query_gid(device, 1, 0, &gid) == 0, "ibv_query_gid");
  if (counts) return datagrams(pairs);
  if (ends) return gone(pairs);
  for (int i = 0; i < pairs; ++i) run(i >= pairs / 2);
  return 0;
}
