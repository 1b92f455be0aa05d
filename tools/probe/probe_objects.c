// Which objects the device makes, and with which sizes.
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe_device.h"

enum { kMemory = 1 << 16 };

struct ground {
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  void* memory;
};

// The errno of a call that gave this pointer, 0 if it is one.
static int error_of(const void* made) {
  if (made != NULL) return 0;
  return errno != 0 ? errno : EINVAL;
}

// That of a call that returns it, or -1 with errno.
static int error_of_number(int result) { return result == -1 ? error_of(NULL) : abs(result); }

static int next_power_of_two(int value) {
  int out = 1;
  while (out < value) out *= 2;
  return out;
}

// Which rules the granted sizes have followed so far.
struct rounding {
  bool asked, power, power_less_one;
};

static const int kSizes[] = {1, 5, 17, 100};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0] };

static void note_size(struct rounding* r, int asked, int granted) {
  r->asked &= granted == asked;
  r->power &= granted == next_power_of_two(asked);
  r->power_less_one &= granted == next_power_of_two(asked + 1) - 1;
}

static void say_rounding(const char* key, const struct rounding* r) {
  if (r->asked) {
    say_word(key, "as_asked");
  } else if (r->power) {
    say_word(key, "power_of_two");
  } else if (r->power_less_one) {
    say_word(key, "power_of_two_less_one");
  } else {
    remark("%s follows no rule that a profile has", key);
  }
}

static struct ibv_qp_init_attr plain_qp(const struct ground* g) {
  return (struct ibv_qp_init_attr){
      .send_cq = g->cq,
      .recv_cq = g->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
}

// 0, or the errno. `attr` has what was granted then.
static int try_qp(const struct ground* g, struct ibv_qp_init_attr* attr) {
  errno = 0;
  struct ibv_qp* qp = ibv_create_qp(g->pd, attr);
  if (qp == NULL) return error_of(NULL);
  ibv_destroy_qp(qp);
  return 0;
}

static void probe_qp_types(const struct ground* g) {
  static const struct {
    const char* key;
    enum ibv_qp_type type;
  } types[] = {{"qp.RC", IBV_QPT_RC}, {"qp.UC", IBV_QPT_UC}, {"qp.UD", IBV_QPT_UD}};
  for (int i = 0; i < 3; i++) {
    struct ibv_qp_init_attr attr = plain_qp(g);
    attr.qp_type = types[i].type;
    say_outcome(types[i].key, try_qp(g, &attr));
  }
}

static void probe_builder(struct probe* p, const struct ground* g) {
  struct ibv_qp_init_attr_ex attr = {
      .send_cq = g->cq,
      .recv_cq = g->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = g->pd,
      .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};
  errno = 0;
  struct ibv_qp* qp = ibv_create_qp_ex(p->device, &attr);
  say_outcome("qp.builder", error_of(qp));
  if (qp != NULL) ibv_destroy_qp(qp);
}

static void probe_qp_depths(const struct ground* g) {
  struct rounding send = {true, true, true}, receive = send;
  for (int i = 0; i < kSizeCount; i++) {
    struct ibv_qp_init_attr attr = plain_qp(g);
    attr.cap.max_send_wr = attr.cap.max_recv_wr = (uint32_t)kSizes[i];
    if (try_qp(g, &attr) != 0) {
      remark("a queue pair of depth %d is refused", kSizes[i]);
      return;
    }
    note_size(&send, kSizes[i], (int)attr.cap.max_send_wr);
    note_size(&receive, kSizes[i], (int)attr.cap.max_recv_wr);
  }
  say_rounding("qp.send_wr_granted", &send);
  say_rounding("qp.recv_wr_granted", &receive);
}

static int try_inline(const struct ground* g, uint32_t bytes, uint32_t* granted) {
  struct ibv_qp_init_attr attr = plain_qp(g);
  attr.cap.max_inline_data = bytes;
  const int error = try_qp(g, &attr);
  *granted = attr.cap.max_inline_data;
  return error;
}

static void probe_inline(struct probe* p, const struct ground* g) {
  uint32_t granted = 0, fits = 0, beyond = 1 << 20;
  if (try_inline(g, 0, &granted) != 0) return;
  say_number("qp.inline_of_none", granted);
  if (try_inline(g, beyond, &granted) == 0) {
    remark("inline data has no limit below 1 MiB");
    return;
  }
  while (fits + 1 < beyond) {
    const uint32_t middle = fits + (beyond - fits) / 2;
    if (try_inline(g, middle, &granted) == 0) {
      fits = middle;
    } else {
      beyond = middle;
    }
  }
  p->max_inline = fits;
  say_number("qp.max_inline", fits);
  say_outcome("qp.inline_beyond", try_inline(g, beyond, &granted));
}

static void probe_qp_limits(struct probe* p, const struct ground* g) {
  const struct {
    const char* key;
    int limit;
    size_t field;
  } limits[] = {{"qp.send_wr_beyond", p->attr.max_qp_wr, offsetof(struct ibv_qp_cap, max_send_wr)},
                {"qp.recv_wr_beyond", p->attr.max_qp_wr, offsetof(struct ibv_qp_cap, max_recv_wr)},
                {"qp.send_sge_beyond", p->attr.max_sge, offsetof(struct ibv_qp_cap, max_send_sge)},
                {"qp.recv_sge_beyond", p->attr.max_sge, offsetof(struct ibv_qp_cap, max_recv_sge)}};
  for (unsigned i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    struct ibv_qp_init_attr attr = plain_qp(g);
    const uint32_t more = (uint32_t)limits[i].limit + 1;
    memcpy((char*)&attr.cap + limits[i].field, &more, sizeof more);
    say_outcome(limits[i].key, try_qp(g, &attr));
  }
}

static int try_cq(struct probe* p, int depth, int* granted) {
  errno = 0;
  struct ibv_cq* cq = ibv_create_cq(p->device, depth, NULL, NULL, 0);
  if (cq == NULL) return error_of(NULL);
  *granted = cq->cqe;
  ibv_destroy_cq(cq);
  return 0;
}

static void probe_cqs(struct probe* p, const struct ground* g) {
  struct rounding depth = {true, true, true};
  int granted = 0;
  for (int i = 0; i < kSizeCount; i++) {
    if (try_cq(p, kSizes[i], &granted) != 0) {
      remark("a CQ of %d is refused", kSizes[i]);
      return;
    }
    note_size(&depth, kSizes[i], granted);
  }
  say_rounding("cq.cqe_granted", &depth);
  if (p->attr.max_cqe < INT32_MAX)
    say_outcome("cq.cqe_beyond", try_cq(p, p->attr.max_cqe + 1, &granted));
  errno = 0;
  say_outcome("cq.resize", error_of_number(ibv_resize_cq(g->cq, 200)));
  struct ibv_cq_init_attr_ex attr = {.cqe = 10, .wc_flags = IBV_WC_STANDARD_FLAGS};
  errno = 0;
  struct ibv_cq_ex* cq = ibv_create_cq_ex(p->device, &attr);
  say_outcome("cq.extended", error_of(cq));
  if (cq != NULL) ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}

static int try_srq(const struct ground* g, uint32_t depth, uint32_t sges, int* granted) {
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = depth, .max_sge = sges}};
  errno = 0;
  struct ibv_srq* srq = ibv_create_srq(g->pd, &attr);
  if (srq == NULL) return error_of(NULL);
  *granted = (int)attr.attr.max_wr;
  ibv_destroy_srq(srq);
  return 0;
}

static void probe_srqs(struct probe* p, const struct ground* g) {
  int granted = 0;
  const int error = try_srq(g, 1, 1, &granted);
  say_outcome("srq.create", error);
  if (error != 0) return;
  struct rounding depth = {true, true, true};
  for (int i = 0; i < kSizeCount; i++) {
    if (try_srq(g, (uint32_t)kSizes[i], 1, &granted) == 0) note_size(&depth, kSizes[i], granted);
  }
  say_rounding("srq.wr_granted", &depth);
  say_outcome("srq.wr_beyond", try_srq(g, (uint32_t)p->attr.max_srq_wr + 1, 1, &granted));
  say_outcome("srq.sge_beyond", try_srq(g, 1, (uint32_t)p->attr.max_srq_sge + 1, &granted));
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = 10, .max_sge = 1}};
  struct ibv_srq* srq = ibv_create_srq(g->pd, &attr);
  if (srq == NULL) return;
  struct ibv_srq_attr larger = {.max_wr = 100};
  errno = 0;
  say_outcome("srq.resize", error_of_number(ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR)));
  struct ibv_srq_attr limit = {.srq_limit = 1};
  say_outcome("srq.limit", error_of_number(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT)));
  ibv_destroy_srq(srq);
}

static int try_mr(const struct ground* g, size_t bytes, int access) {
  errno = 0;
  struct ibv_mr* mr = ibv_reg_mr(g->pd, g->memory, bytes, (unsigned)access);
  if (mr == NULL) return error_of(NULL);
  ibv_dereg_mr(mr);
  return 0;
}

static void probe_memory(const struct ground* g) {
  static const struct {
    const char* key;
    int access;
  } rights[] = {{"mr.LOCAL_WRITE", IBV_ACCESS_LOCAL_WRITE},
                {"mr.REMOTE_WRITE", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
                {"mr.REMOTE_READ", IBV_ACCESS_REMOTE_READ},
                {"mr.REMOTE_ATOMIC", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC},
                {"mr.MW_BIND", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND},
                {"mr.ZERO_BASED", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED},
                {"mr.ON_DEMAND", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND},
                {"mr.RELAXED_ORDERING", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING}};
  for (unsigned i = 0; i < sizeof rights / sizeof rights[0]; i++)
    say_outcome(rights[i].key, try_mr(g, kMemory, rights[i].access));
  say_outcome("mr.no_octets", try_mr(g, 0, IBV_ACCESS_LOCAL_WRITE));
  struct ibv_mr* mr = ibv_reg_mr(g->pd, g->memory, kMemory, IBV_ACCESS_LOCAL_WRITE);
  if (mr == NULL) return;
  errno = 0;
  const int failed = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, g->pd, g->memory, kMemory,
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  say_outcome("mr.rereg", failed == 0 ? 0 : error_of(NULL));
  ibv_dereg_mr(mr);
}

static void probe_windows(struct probe* p, const struct ground* g) {
  static const struct {
    const char* key;
    enum ibv_mw_type type;
  } types[] = {{"mw.TYPE_1", IBV_MW_TYPE_1}, {"mw.TYPE_2", IBV_MW_TYPE_2}};
  for (int i = 0; i < 2; i++) {
    errno = 0;
    struct ibv_mw* mw = ibv_alloc_mw(g->pd, types[i].type);
    say_outcome(types[i].key, error_of(mw));
    if (mw != NULL) ibv_dealloc_mw(mw);
  }
  struct ibv_alloc_dm_attr attr = {.length = 4096};
  errno = 0;
  struct ibv_dm* dm = ibv_alloc_dm(p->device, &attr);
  say_outcome("dm.alloc", error_of(dm));
  if (dm != NULL) ibv_free_dm(dm);
}

void probe_objects(struct probe* p) {
  struct ground g = {.pd = ibv_alloc_pd(p->device),
                     .cq = ibv_create_cq(p->device, 100, NULL, NULL, 0),
                     .memory = aligned_alloc(4096, kMemory)};
  if (g.pd != NULL && g.cq != NULL && g.memory != NULL) {
    memset(g.memory, 0, kMemory);
    probe_qp_types(&g);
    probe_builder(p, &g);
    probe_qp_depths(&g);
    probe_inline(p, &g);
    probe_qp_limits(p, &g);
    probe_cqs(p, &g);
    probe_srqs(p, &g);
    probe_memory(&g);
    probe_windows(p, &g);
  } else {
    remark("no domain, CQ or memory: %s", strerror(errno));
  }
  free(g.memory);
  if (g.cq != NULL) ibv_destroy_cq(g.cq);
  if (g.pd != NULL) ibv_dealloc_pd(g.pd);
}
