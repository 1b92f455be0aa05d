// Queue pairs that are wired by hand, one message each: wired_program rc|uc|ud PAIRS
// Of the first half of the pairs it prints how the Send ends, of the others how the receive does.
#include <stdbool.h>

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

static struct end make(void) {
  struct end out;
  out.cq = ibv_create_cq(device, 8, NULL, NULL, 0);
  must(out.cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr init = {.send_cq = out.cq, .recv_cq = out.cq, .qp_type = type};
  init.cap = (struct ibv_qp_cap){4, 4, 1, 1, 0};
  out.qp = ibv_create_qp(pd, &init);
  must(out.qp != NULL, "ibv_create_qp");
  struct ibv_qp_attr attr = {.port_num = 1, .qkey = kKey};
  const int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  move(out.qp, attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
  return out;
}

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
  struct ibv_send_wr send, *bad;
  memset(&send, 0, sizeof send);
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  send.sg_list = &source;
  send.num_sge = 1;
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

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const int pairs = argc > 2 ? atoi(argv[2]) : 0;
  type = strcmp(what, "ud") == 0 ? IBV_QPT_UD : strcmp(what, "uc") == 0 ? IBV_QPT_UC : IBV_QPT_RC;
  static char octets[kGrh + kBytes];
  device = open_first();
  pd = ibv_alloc_pd(device);
  must(pd != NULL, "ibv_alloc_pd");
  mr = ibv_reg_mr(pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  must(ibv_query_gid(device, 1, 0, &gid) == 0, "ibv_query_gid");
  for (int i = 0; i < pairs; ++i) run(i >= pairs / 2);
  return 0;
}
