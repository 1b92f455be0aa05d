#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "serve.h"

enum { kWorkRequests = 2 * kMostAtOnce, kReadTag = 1 << 16 };  // wr_id of Reads

static const struct {
  size_t bytes;
  int access;
  uint32_t seed;
} kPlan[kGrounds] = {
    [kRegion] = {kRegionBytes,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC,
                 kRegionSeed},
    [kReadOnly] = {kSmallBytes, IBV_ACCESS_REMOTE_READ, kRegionSeed},
    [kWriteOnly] = {kSmallBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, kRegionSeed},
    [kRevoked] = {kSmallBytes,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                  kRegionSeed},
    [kSpare] = {kSmallBytes,
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                kRegionSeed},
    [kInbox] = {kReceives * kReceiveBytes, IBV_ACCESS_LOCAL_WRITE, 0},
    [kSent] = {kSentBytes, 0, kSentSeed},
    // iWARP devices of Linux want the remote right for the sink of a Read.
    [kSink] = {kSentBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0},
    [kReports] = {kMostAtOnce * kReportBytes, 0, 0},
};

static struct ibv_sge sge_of(const struct ground* g, size_t offset, size_t bytes) {
  return (struct ibv_sge){.addr = g->to + offset, .length = (uint32_t)bytes, .lkey = g->mr->lkey};
}

static bool post_receive(struct guest* g, uint64_t slot) {
  struct ibv_sge sge = sge_of(&g->grounds[kInbox], slot * kReceiveBytes, kReceiveBytes);
  struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
  struct ibv_recv_wr* bad;
  errno = ibv_post_recv(g->id->qp, &wr, &bad);
  return errno == 0;
}

bool guest_open(struct guest* g, struct rdma_cm_id* id, bool receives) {
  memset(g, 0, sizeof *g);
  g->id = id;
  // A domain of its own. Some devices let the peer invalidate a region that no other connection
  // has.
  g->pd = ibv_alloc_pd(id->verbs);
  g->cq = ibv_create_cq(id->verbs, kReceives + kWorkRequests, NULL, NULL, 0);
  if (g->pd == NULL || g->cq == NULL) return false;
  for (int i = 0; i < kGrounds; i++) {
    if (!ground_open(&g->grounds[i], g->pd, kPlan[i].bytes, kPlan[i].access, kPlan[i].seed)) {
      return false;
    }
  }
  ground_revoke(&g->grounds[kRevoked]);
  struct ibv_qp_init_attr attr = {
      .send_cq = g->cq,
      .recv_cq = g->cq,
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1,
      .cap = {.max_send_wr = kWorkRequests,
              .max_recv_wr = kReceives,
              .max_send_sge = 1,
              .max_recv_sge = 1},
  };
  if (rdma_create_qp(id, g->pd, &attr)) return false;
  for (uint64_t slot = 0; receives && slot < kReceives; slot++) {
    if (!post_receive(g, slot)) return false;
  }
  return true;
}

void guest_close(struct guest* g) {
  if (g->id->qp != NULL) rdma_destroy_qp(g->id);
  if (g->cq != NULL) ibv_destroy_cq(g->cq);
  for (int i = 0; i < kGrounds; i++) ground_close(&g->grounds[i]);
  if (g->pd != NULL) ibv_dealloc_pd(g->pd);
  g->id = NULL;
}

uint32_t guest_damage(const struct guest* g) {
  uint32_t count = 0;
  for (int i = 0; i < kGrounds; i++) {
    const bool constant = i == kReadOnly || i == kRevoked || i == kSent;
    const struct ground* ground = &g->grounds[i];
    count += constant ? !ground_untouched(ground) : !ground_guards_intact(ground);
  }
  return count;
}

static bool post(struct guest* g, enum ibv_wr_opcode opcode, const struct command* c,
                 const struct ground* from) {
  struct ibv_sge sge = sge_of(from, 0, c->size);
  struct ibv_send_wr wr = {
      .wr_id = opcode == IBV_WR_RDMA_READ ? kReadTag : 0,
      .opcode = opcode,
      .sg_list = &sge,
      .num_sge = 1,
      .wr.rdma = {.remote_addr = c->to, .rkey = c->stag},
  };
  struct ibv_send_wr* bad;
  errno = ibv_post_send(g->id->qp, &wr, &bad);
  return errno == 0;
}

static bool send_report(struct guest* g, const struct report* r, uint32_t damage,
                        uint32_t connections) {
  const struct ground* ground = &g->grounds[kReports];
  const size_t offset = (size_t)(g->reports++ % kMostAtOnce) * kReportBytes;
  encode_report(ground->memory + kGuardBytes + offset, r, damage, connections);
  struct ibv_sge sge = sge_of(ground, offset, kReportBytes);
  struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
  struct ibv_send_wr* bad;
  errno = ibv_post_send(g->id->qp, &wr, &bad);
  return errno == 0;
}

static bool obey(struct guest* g, const struct command* c) {
  if (c->size > kSentBytes || c->count > kMostAtOnce) return false;
  switch (c->kind) {
    case kStatus: return true;
    case kSend:
      for (uint32_t i = 0; i < c->count; i++) {
        if (!post(g, IBV_WR_SEND, c, &g->grounds[kSent])) return false;
      }
      return true;
    case kWrite: return post(g, IBV_WR_RDMA_WRITE, c, &g->grounds[kSent]);
    case kRead:
      g->reads_open = c->count;
      g->read_bytes = c->size;
      for (uint32_t i = 0; i < c->count; i++) {
        if (!post(g, IBV_WR_RDMA_READ, c, &g->grounds[kSink])) return false;
      }
      return true;
    default: return false;
  }
}

static bool take_message(struct guest* g, const struct ibv_wc* wc, uint32_t damage,
                         uint32_t connections) {
  const bool immediate = (wc->wc_flags & IBV_WC_WITH_IMM) != 0;
  const uint8_t* at = g->grounds[kInbox].memory + kGuardBytes + wc->wr_id * kReceiveBytes;
  const size_t bytes = immediate ? 0 : wc->byte_len;
  struct report r = {.bytes = (uint32_t)bytes, .crc = crc32c(at, bytes)};
  if (immediate) {
    r.flags |= 4;
    r.immediate = (uint64_t)ntohl(wc->imm_data) << 32;
  }
  if (wc->wc_flags & IBV_WC_WITH_INV) {
    r.flags |= 2;
    r.invalidated = wc->invalidated_rkey;
  }
  struct command c;
  const bool is_command = decode_command(at, bytes, &c);
  if (!post_receive(g, wc->wr_id)) return false;
  if (is_command && !obey(g, &c)) return false;
  // Reads report when they are done.
  return (is_command && c.kind == kRead) || send_report(g, &r, damage, connections);
}

static bool take_read(struct guest* g, uint32_t damage, uint32_t connections) {
  if (g->reads_open == 0 || --g->reads_open != 0) return true;
  const uint8_t* at = g->grounds[kSink].memory + kGuardBytes;
  const struct report r = {.bytes = g->read_bytes, .crc = crc32c(at, g->read_bytes)};
  return send_report(g, &r, damage, connections);
}

bool guest_poll(struct guest* g, uint32_t damage, uint32_t connections) {
  struct ibv_wc wc[16];
  const int n = ibv_poll_cq(g->cq, 16, wc);
  for (int i = 0; i < n; i++) {
    // Failed work is not reported: the end of the connection is.
    if (wc[i].status != IBV_WC_SUCCESS) continue;
    bool stays = true;
    if (wc[i].opcode & IBV_WC_RECV) {
      stays = take_message(g, &wc[i], damage, connections);
    } else if (wc[i].wr_id == kReadTag) {
      stays = take_read(g, damage, connections);
    }
    if (!stays) return false;
  }
  return true;
}
