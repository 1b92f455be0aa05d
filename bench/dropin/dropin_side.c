/* Queues, memory and messages of one side of weft_dropin_perf. */
#include <endian.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "dropin_perf.h"

void die(const char* what) {
  fprintf(stderr, "weft_dropin_perf: %s (%s)\n", what, strerror(errno));
  exit(1);
}

int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void pin_to_nth_cpu(int nth) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || nth-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

static void repost(struct side* side, uint64_t cell) {
  struct ibv_sge* sge = &side->repost_sges[side->repost_count];
  sge->addr = (uint64_t)(uintptr_t)(side->memory + cell * CELL_BYTES);
  sge->length = CELL_BYTES;
  sge->lkey = side->mr->lkey;
  struct ibv_recv_wr* wr = &side->reposts[side->repost_count];
  wr->wr_id = RECEIVE_BIT | cell;
  wr->sg_list = sge;
  wr->num_sge = 1;
  wr->next = NULL;
  if (side->repost_count != 0) side->reposts[side->repost_count - 1].next = wr;
  ++side->repost_count;
}

static void flush_receives(struct side* side) {
  if (side->repost_count == 0) return;
  struct ibv_recv_wr* bad = NULL;
  if (ibv_post_recv(side->qp, side->reposts, &bad) != 0) die("cannot post a receive");
  side->repost_count = 0;
}

static void open_memory(struct side* side, uint64_t size) {
  side->stride = size < 64 ? 64 : (size + 63) / 64 * 64;
  side->slots = (uint32_t)(CYCLED_BYTES / side->stride);
  if (side->slots < 1) side->slots = 1;
  if (side->slots > DEPTH) side->slots = DEPTH;
  const size_t inbox = (size_t)INBOX_CELLS * CELL_BYTES;
  const size_t bytes = inbox + side->stride * side->slots;
  side->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (side->memory == MAP_FAILED) die("no memory");
  memset(side->memory, 0, bytes);
  side->places = side->memory + inbox;
  side->mr = ibv_reg_mr(side->pd, side->memory, bytes,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (!side->mr) die("cannot register memory");
}

void open_side(struct side* side, const struct options* options) {
  side->pd = ibv_alloc_pd(side->id->verbs);
  side->cq = ibv_create_cq(side->id->verbs, DEPTH + NOTE_SLOTS + INBOX_CELLS, NULL, NULL, 0);
  if (!side->pd || !side->cq) die("cannot create a domain and a completion queue");
  struct ibv_qp_init_attr attr = {.send_cq = side->cq,
                                  .recv_cq = side->cq,
                                  .cap = {.max_send_wr = DEPTH + NOTE_SLOTS,
                                          .max_recv_wr = INBOX_CELLS,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1,
                                          .max_inline_data = NOTE_BYTES},
                                  .qp_type = IBV_QPT_RC};
  if (rdma_create_qp(side->id, side->pd, &attr) != 0) die("cannot create a queue pair");
  side->qp = side->id->qp;
  open_memory(side, options->size);
  for (uint64_t cell = 0; cell < INBOX_CELLS; ++cell) repost(side, cell);
  flush_receives(side);
  side->write_sge.length = (uint32_t)options->size;
  side->write_sge.lkey = side->mr->lkey;
  side->write_wr.sg_list = &side->write_sge;
  side->write_wr.num_sge = 1;
  side->write_wr.opcode = IBV_WR_RDMA_WRITE;
}

struct offer offer_of(const struct side* side) {
  const struct offer offer = {htobe64((uint64_t)(uintptr_t)side->places), htobe64(side->mr->rkey)};
  return offer;
}

void take_offer(struct side* side, const struct rdma_cm_event* event) {
  if (event->param.conn.private_data_len < sizeof side->peer) die("no offer from the other side");
  memcpy(&side->peer, event->param.conn.private_data, sizeof side->peer);
  side->peer.addr = be64toh(side->peer.addr);
  side->write_wr.wr.rdma.rkey = (uint32_t)be64toh(side->peer.rkey);
}

struct rdma_cm_event* expect(struct side* side, enum rdma_cm_event_type expected) {
  struct rdma_cm_event* event = NULL;
  if (rdma_get_cm_event(side->events, &event) != 0) die("cannot get an event");
  if (event->event != expected) die(rdma_event_str(event->event));
  return event;
}

void close_side(struct side* side) {
  rdma_destroy_qp(side->id);
  rdma_destroy_id(side->id);
  ibv_dereg_mr(side->mr);
  ibv_destroy_cq(side->cq);
  ibv_dealloc_pd(side->pd);
}

bool has_room(const struct side* side, uint32_t count) {
  return side->posted - side->done + count <= DEPTH;
}

/* Numbers a work request and chooses whether it is signaled. */
static void number(struct side* side, struct ibv_send_wr* wr, unsigned flags) {
  wr->wr_id = ++side->posted;
  wr->send_flags = flags;
  if ((flags & IBV_SEND_SIGNALED) != 0 || side->posted - side->last_signaled >= INTERVAL) {
    wr->send_flags |= IBV_SEND_SIGNALED;
    side->last_signaled = side->posted;
  }
}

static void aim_write(struct side* side, uint32_t slot) {
  const uint64_t offset = side->stride * slot;
  number(side, &side->write_wr, 0);
  side->write_sge.addr = (uint64_t)(uintptr_t)side->places + offset;
  side->write_wr.wr.rdma.remote_addr = side->peer.addr + offset;
}

static void post(struct side* side, struct ibv_send_wr* wr) {
  struct ibv_send_wr* bad = NULL;
  const int error = ibv_post_send(side->qp, wr, &bad);
  if (error == 0) return;
  errno = error;
  die("cannot post");
}

void post_write(struct side* side) {
  aim_write(side, side->next_slot);
  if (++side->next_slot == side->slots) side->next_slot = 0;
  side->write_wr.next = NULL;
  post(side, &side->write_wr);
}

void post_ping(struct side* side) {
  struct ibv_send_wr bell = {.opcode = IBV_WR_SEND};
  aim_write(side, 0);
  number(side, &bell, 0);
  side->write_wr.next = &bell;
  post(side, &side->write_wr);
}

void post_note(struct side* side, enum note_kind kind) {
  flush_receives(side);
  const uint64_t bytes[2] = {htobe64((uint64_t)kind), 0};
  struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)bytes, .length = NOTE_BYTES};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
  number(side, &wr, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
  post(side, &wr);
}

static void on_note(struct side* side, uint64_t kind) {
  if (kind == NOTE_REPLY) {
    ++side->replies;
    return;
  }
  if (kind == NOTE_END) ++side->ends;
  post_note(side, NOTE_REPLY);
}

static void dispatch(struct side* side, const struct ibv_wc* wc) {
  if (wc->status != IBV_WC_SUCCESS) die(ibv_wc_status_str(wc->status));
  if ((wc->wr_id & RECEIVE_BIT) == 0) {
    side->done = wc->wr_id;
    return;
  }
  const uint64_t cell = wc->wr_id & ~RECEIVE_BIT;
  if (wc->byte_len == 0) {
    ++side->pings;
    if (side->on_ping) side->on_ping(side); /* first: the other side is timing it */
    repost(side, cell);
    return;
  }
  uint64_t kind = 0;
  memcpy(&kind, side->memory + cell * CELL_BYTES, sizeof kind);
  repost(side, cell);
  on_note(side, be64toh(kind));
}

void pump(struct side* side, bool wait) {
  int count = ibv_poll_cq(side->cq, POLL_BATCH, side->completions);
  while (count == 0 && wait) count = ibv_poll_cq(side->cq, POLL_BATCH, side->completions);
  if (count < 0) die("cannot poll");
  for (int i = 0; i < count; ++i) dispatch(side, &side->completions[i]);
  if (side->repost_count > side->keep_back) flush_receives(side);
}
