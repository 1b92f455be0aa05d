#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

enum { kRecvFlag = 1 << 16 };  // in a wr_id: the rest is the number of a receive buffer

static struct pool* shared_pool;

static void* memory(size_t len_bytes) {
  void* at = calloc(1, len_bytes);
  if (at == NULL) die("memory");
  return at;
}

static struct ibv_mr* registered(struct conn* c, void* at, size_t len_bytes, int access) {
  struct ibv_mr* mr = ibv_reg_mr(c->id->pd, at, len_bytes, access);
  if (mr == NULL) die("ibv_reg_mr");
  return mr;
}

static void post_recv(struct conn* c, int slot) {
  struct pool* p = c->pool;
  struct ibv_sge sge = {
      .addr = (uintptr_t)(p->memory + p->stride_bytes * (size_t)slot),
      .length = opt.recv_bytes,
      .lkey = p->mr->lkey,
  };
  struct ibv_recv_wr wr = {.wr_id = kRecvFlag | (unsigned)slot, .sg_list = &sge, .num_sge = 1};
  struct ibv_recv_wr* bad;
  const int error =
      p->srq ? ibv_post_srq_recv(p->srq, &wr, &bad) : ibv_post_recv(c->id->qp, &wr, &bad);
  if (error) {
    // A queue pair in error may refuse; what it takes it must flush.
    if (!c->disconnected && !c->qp_gone) say("recv refused conn=%d error=%d", c->number, error);
    return;
  }
  p->is_posted[slot] = true;
  p->posted++;
}

static struct pool* pool_create(struct conn* c) {
  struct pool* p = memory(sizeof *p);
  p->stride_bytes = opt.recv_bytes < 64 ? 64 : opt.recv_bytes;  // room for an answer
  const size_t bytes = p->stride_bytes * (size_t)(opt.recvs ? opt.recvs : 1);
  p->memory = memory(bytes);
  p->mr = registered(c, p->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
  if (!opt.srq) return p;
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = (uint32_t)opt.recvs, .max_sge = 1}};
  p->srq = ibv_create_srq(c->id->pd, &attr);
  if (p->srq == NULL) die("ibv_create_srq");
  return p;
}

static void create_qp(struct conn* c) {
  c->cq = ibv_create_cq(c->id->verbs, kWorkSlots + kMaxRecvs, NULL, NULL, 0);
  if (c->cq == NULL) die("ibv_create_cq");
  struct ibv_qp_init_attr attr = {
      .send_cq = c->cq,
      .recv_cq = c->cq,
      .srq = c->pool->srq,
      .cap = {.max_send_wr = kWorkSlots,
              .max_recv_wr = (uint32_t)(opt.recvs ? opt.recvs : 1),
              .max_send_sge = 4,
              .max_recv_sge = 1,
              .max_inline_data = kMaxInlineBytes},
      .qp_type = IBV_QPT_RC,
  };
  if (rdma_create_qp(c->id, c->id->pd, &attr)) die("rdma_create_qp");
}

struct conn* conn_create(struct rdma_cm_id* id) {
  struct conn* c = &conns[conns_used];
  c->number = conns_used++;
  c->id = id;
  id->context = c;
  const bool new_pool = !opt.srq || shared_pool == NULL;
  c->pool = new_pool ? pool_create(c) : shared_pool;
  if (opt.srq) shared_pool = c->pool;
  create_qp(c);

  c->send_memory = memory(kBufferBytes);
  fill(c->send_memory, kBufferBytes, kSeedSent);
  c->send_mr = registered(c, c->send_memory, kBufferBytes, 0);
  c->sink_memory = memory(kBufferBytes);
  // iWARP answers a Read with a tagged message, so the sink needs the right of remote write.
  c->sink_mr =
      registered(c, c->sink_memory, kBufferBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  c->region = memory(opt.region_bytes);
  fill(c->region, opt.region_bytes, kSeedRegion);
  c->region_mr = registered(c, c->region, opt.region_bytes, IBV_ACCESS_LOCAL_WRITE | opt.access);
  for (int i = 0; new_pool && i < opt.recvs; i++) post_recv(c, i);
  return c;
}

int conn_post(struct conn* c, struct ibv_send_wr* wr, int recv_slot) {
  const int slot = c->posted % kWorkSlots;
  if (c->work_posted[slot]) return ENOMEM;
  if (c->qp_gone) return EINVAL;
  wr->wr_id = (uint64_t)slot;
  wr->send_flags |= IBV_SEND_SIGNALED;
  struct ibv_send_wr* bad;
  const int error = ibv_post_send(c->id->qp, wr, &bad);
  if (error) return error;
  c->work_posted[slot] = true;
  c->work_recv[slot] = recv_slot;
  c->posted++;
  return 0;
}

static void recv_completed(struct conn* c, const struct ibv_wc* wc) {
  const int slot = (int)(wc->wr_id & ~(uint64_t)kRecvFlag);
  if (slot >= opt.recvs || !c->pool->is_posted[slot]) {
    fault("conn=%d a receive completed twice, status=%d", c->number, (int)wc->status);
    return;
  }
  c->pool->is_posted[slot] = false;
  c->pool->posted--;
  if (wc->status != IBV_WC_SUCCESS) {
    c->flushed++;
    if (wc->status != IBV_WC_WR_FLUSH_ERR) {
      say("recv error conn=%d status=%s", c->number, ibv_wc_status_str(wc->status));
    }
    return;
  }
  c->recvs++;
  if (!answer(c, wc, slot)) post_recv(c, slot);
}

static void work_completed(struct conn* c, const struct ibv_wc* wc) {
  if (wc->wr_id >= kWorkSlots || !c->work_posted[wc->wr_id]) {
    fault("conn=%d a work request completed twice, status=%d", c->number, (int)wc->status);
    return;
  }
  c->work_posted[wc->wr_id] = false;
  c->completed++;
  if (wc->status != IBV_WC_SUCCESS && c->last_status == 0) c->last_status = (int)wc->status;
  if (c->work_recv[wc->wr_id] >= 0) post_recv(c, c->work_recv[wc->wr_id]);
}

bool conn_poll(struct conn* c) {
  if (c->cq == NULL) return false;
  struct ibv_wc wc[16];
  const int n = ibv_poll_cq(c->cq, 16, wc);
  if (n < 0) die("ibv_poll_cq");
  for (int i = 0; i < n; i++) {
    if (wc[i].wr_id & kRecvFlag) {
      recv_completed(c, &wc[i]);
    } else {
      work_completed(c, &wc[i]);
    }
  }
  return n > 0;
}

void conn_destroy_qp(struct conn* c) {
  if (c->qp_gone) return;
  c->qp_gone = true;
  rdma_destroy_qp(c->id);
}

static bool all_completed(const struct conn* c) {
  return c->posted == c->completed && (c->pool->srq != NULL || c->pool->posted == 0);
}

void conn_end(struct conn* c) {
  if (c->ended) return;
  c->ended = true;
  // Only a queue pair that was connected is in error now and flushes. siw may keep some forever.
  const int kPatience = 50;
  for (int i = 0; i < kPatience && c->connected && !c->qp_gone && !all_completed(c); i++) {
    const int before = c->completed + c->flushed;
    pump_for(20);
    if (c->completed + c->flushed != before) i = 0;
  }
  // Of a shared receive queue nothing is flushed; what has arrived is taken all the same.
  while (conn_poll(c)) {
  }
  const int lost_recvs = c->pool->srq || c->qp_gone || !c->connected ? 0 : c->pool->posted;
  say("ended conn=%d recvs=%d flushed=%d lost=%d", c->number, c->recvs, c->flushed,
      c->qp_gone ? 0 : c->posted - c->completed + lost_recvs);
  conn_destroy_qp(c);
  ibv_destroy_cq(c->cq);
  c->cq = NULL;
  ibv_dereg_mr(c->send_mr);
  ibv_dereg_mr(c->sink_mr);
  ibv_dereg_mr(c->region_mr);
  if (c->pool->srq == NULL) {
    ibv_dereg_mr(c->pool->mr);
    free(c->pool->memory);
    free(c->pool);
  }
  free(c->send_memory);
  free(c->sink_memory);
  free(c->region);
  free(c->shadow);
  rdma_destroy_id(c->id);
}
