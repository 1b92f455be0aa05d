#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

// A message of exactly these bytes asks the peer where its region is.
static const uint8_t kAsk[16] = "weft-probe: ask";
static const uint8_t kTell[16] = "weft-probe: tell";  // then rkey, addr, length, big-endian
enum { kTellBytes = 32 };

struct op {
  const char* name;
  enum ibv_wr_opcode opcode;
  unsigned flags;
  enum { kGood, kBadStag, kOutOfBounds, kWrap } target;
  int pieces;
};

static const struct op kOps[] = {
    {"send", IBV_WR_SEND, 0, kGood, 1},
    {"sendse", IBV_WR_SEND, IBV_SEND_SOLICITED, kGood, 1},
    {"sendinl", IBV_WR_SEND, IBV_SEND_INLINE, kGood, 1},
    {"sendsge", IBV_WR_SEND, 0, kGood, 4},
    {"sendinv", IBV_WR_SEND_WITH_INV, 0, kGood, 1},
    {"sendbadinv", IBV_WR_SEND_WITH_INV, 0, kBadStag, 1},
    {"write", IBV_WR_RDMA_WRITE, 0, kGood, 1},
    {"writeinl", IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, kGood, 1},
    {"writesge", IBV_WR_RDMA_WRITE, 0, kGood, 4},
    {"writebadstag", IBV_WR_RDMA_WRITE, 0, kBadStag, 1},
    {"writeoob", IBV_WR_RDMA_WRITE, 0, kOutOfBounds, 1},
    {"writewrap", IBV_WR_RDMA_WRITE, 0, kWrap, 1},
    {"read", IBV_WR_RDMA_READ, 0, kGood, 1},
    {"readbadstag", IBV_WR_RDMA_READ, 0, kBadStag, 1},
    {"readoob", IBV_WR_RDMA_READ, 0, kOutOfBounds, 1},
};

static bool knows_region(const struct conn* c) { return c->remote_bytes != 0 || c->disconnected; }
static bool idle(const struct conn* c) { return c->posted == c->completed; }
static bool is_disconnected(const struct conn* c) { return c->disconnected; }

bool answer(struct conn* c, const struct ibv_wc* wc, int recv_slot) {
  uint8_t* data = c->pool->memory + c->pool->stride_bytes * (size_t)recv_slot;
  const uint32_t len = wc->byte_len;
  struct ibv_sge sge = {.addr = (uintptr_t)data, .length = len, .lkey = c->pool->mr->lkey};
  if (len == sizeof kAsk && memcmp(data, kAsk, len) == 0) {
    const uint32_t words[4] = {htobe32(c->region_mr->rkey),
                               htobe32((uint32_t)((uint64_t)(uintptr_t)c->region >> 32)),
                               htobe32((uint32_t)(uintptr_t)c->region), htobe32(opt.region_bytes)};
    memcpy(data, kTell, sizeof kTell);
    memcpy(data + sizeof kTell, words, sizeof words);
    sge.length = kTellBytes;
  } else if (len == kTellBytes && memcmp(data, kTell, sizeof kTell) == 0) {
    uint32_t words[4];
    memcpy(words, data + sizeof kTell, sizeof words);
    c->remote_rkey = be32toh(words[0]);
    c->remote_addr = (uint64_t)be32toh(words[1]) << 32 | be32toh(words[2]);
    c->remote_bytes = be32toh(words[3]);
    return false;
  } else {
    const bool right = holds(data, len, kSeedSent);
    const bool inv = wc->wc_flags & IBV_WC_WITH_INV;
    const char* which = wc->invalidated_rkey == c->region_mr->rkey ? " inv=region" : " inv=other";
    say("recv conn=%d len=%u %s%s", c->number, len, right ? "ok" : "bad", inv ? which : "");
    if (!right) fault("conn=%d a message of %u octets has wrong content", c->number, len);
    if (!opt.echo) return false;
  }
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = sge.length ? 1 : 0, .opcode = IBV_WR_SEND};
  return conn_post(c, &wr, recv_slot) == 0;
}

static void ask_for_region(struct conn* c) {
  if (c->remote_bytes || c->disconnected) return;
  struct ibv_sge sge = {.addr = (uintptr_t)kAsk, .length = sizeof kAsk};
  struct ibv_send_wr wr = {
      .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
  if (conn_post(c, &wr, -1) || !pump_until(knows_region, c) || !c->remote_bytes) {
    fault("conn=%d the peer does not tell where its region is", c->number);
    return;
  }
  c->shadow = malloc(c->remote_bytes);
  if (c->shadow == NULL) die("memory");
  fill(c->shadow, c->remote_bytes, kSeedRegion);
}

static void aim(struct conn* c, const struct op* op, struct ibv_send_wr* wr, uint32_t len,
                uint32_t offset) {
  if (op->opcode == IBV_WR_SEND) return;
  ask_for_region(c);
  const uint32_t rkey = op->target == kBadStag ? ~c->remote_rkey : c->remote_rkey;
  if (op->opcode == IBV_WR_SEND_WITH_INV) {
    wr->invalidate_rkey = rkey;
    return;
  }
  uint64_t addr = c->remote_addr + offset;
  if (op->target == kOutOfBounds) addr = c->remote_addr + c->remote_bytes - len / 2;
  if (op->target == kWrap) addr = UINT64_MAX - len / 2;
  wr->wr.rdma.rkey = rkey;
  wr->wr.rdma.remote_addr = addr;
}

static int post_op(struct conn* c, const struct op* op, uint32_t len, uint32_t offset) {
  const bool is_read = op->opcode == IBV_WR_RDMA_READ;
  struct ibv_sge sge[4];
  const int pieces = len == 0 ? 0 : len < 4 ? 1 : op->pieces;
  uint32_t done = 0;
  for (int i = 0; i < pieces; i++) {
    // Pieces of unlike, odd length.
    const uint32_t part = i == pieces - 1 ? len - done : (len / (uint32_t)(pieces + i)) | 1;
    sge[i].addr = (uintptr_t)((is_read ? c->sink_memory : c->send_memory) + done);
    sge[i].length = part;
    sge[i].lkey = is_read ? c->sink_mr->lkey : c->send_mr->lkey;
    done += part;
  }
  struct ibv_send_wr wr = {
      .sg_list = sge, .num_sge = pieces, .opcode = op->opcode, .send_flags = op->flags};
  aim(c, op, &wr, len, offset);
  if (op->opcode == IBV_WR_RDMA_WRITE && op->target == kGood && c->shadow != NULL) {
    memcpy(c->shadow + offset, c->send_memory, len);
  }
  return conn_post(c, &wr, -1);
}

static const struct op* find_op(const char* word, size_t name_len) {
  for (size_t i = 0; i < sizeof kOps / sizeof kOps[0]; i++) {
    if (strlen(kOps[i].name) == name_len && !memcmp(word, kOps[i].name, name_len)) return &kOps[i];
  }
  fprintf(stderr, "probe: no such word: %s\n", word);
  exit(2);
}

// NAME:BYTES[@OFFSET], `times` of them posted at once. Returns the status they end with.
static int run_op(struct conn* c, const char* word, long times) {
  const size_t name_len = strcspn(word, ":");
  const struct op* op = find_op(word, name_len);
  char* end = NULL;
  const uint32_t len = word[name_len] ? (uint32_t)strtoul(word + name_len + 1, &end, 10) : 0;
  const uint32_t offset = end && *end == '@' ? (uint32_t)strtoul(end + 1, NULL, 10) : 0;
  if (len > kBufferBytes) die("words take at most 1048576 octets");
  c->last_status = 0;
  if (op->opcode == IBV_WR_RDMA_READ) memset(c->sink_memory, 0x5a, len);
  for (long i = 0; i < times; i++) {
    const int error = post_op(c, op, len, offset);
    if (error) return -error;
  }
  if (!pump_until(idle, c)) return -ETIMEDOUT;
  if (c->last_status == 0 && op->opcode == IBV_WR_RDMA_READ && op->target == kGood &&
      c->shadow != NULL && memcmp(c->sink_memory, c->shadow + offset, len) != 0) {
    fault("conn=%d %s brought wrong content", c->number, word);
  }
  return c->last_status;
}

static void run_and_report(struct conn* c, const char* word, const char* op, long times) {
  const bool may_fail = word[0] == '!';
  const int status = run_op(c, op, times);
  const char* text = status < 0 ? strerror(-status) : ibv_wc_status_str((enum ibv_wc_status)status);
  say("op conn=%d %s status=%d (%s)", c->number, word, status, text);
  if (status && !may_fail) fault("conn=%d %s failed", c->number, word);
}

static int wanted_recvs;
static bool has_recvs(const struct conn* c) { return c->recvs >= wanted_recvs || c->disconnected; }

static bool control_word(struct conn* c, const char* word, long number) {
  const size_t name_len = strcspn(word, ":");
  const bool none = word[name_len] == '\0';
  if (!strncmp(word, "sleep", name_len)) {
    pump_for((int)number);
  } else if (!strncmp(word, "recv", name_len)) {
    wanted_recvs = (int)number;
    if (!pump_until(has_recvs, c) || c->recvs < wanted_recvs) {
      fault("conn=%d %d messages arrived, not %d", c->number, c->recvs, wanted_recvs);
    }
  } else if (none && !strcmp(word, "disconnect")) {
    rdma_disconnect(c->id);
  } else if (none && !strcmp(word, "waitdisc")) {
    if (!pump_until(is_disconnected, c)) fault("conn=%d stays connected", c->number);
  } else if (none && !strcmp(word, "destroy")) {
    conn_destroy_qp(c);
  } else if (none && !strcmp(word, "abort")) {
    _exit(9);  // as if killed: the kernel cleans up
  } else if (none && !strcmp(word, "hang")) {
    say("hanging conn=%d", c->number);
    for (;;) pause();
  } else {
    return false;
  }
  return true;
}

void do_word(struct conn* c, const char* word) {
  const char* op = word[0] == '!' ? word + 1 : word;
  const char* colon = strchr(op, ':');
  const long number = colon ? strtol(colon + 1, NULL, 10) : 0;
  if (control_word(c, op, number)) return;
  if (!strncmp(op, "batch:", 6) && strchr(op, ',')) {
    run_and_report(c, word, strchr(op, ',') + 1, number);
  } else if (!strncmp(op, "loop:", 5)) {
    say("looping conn=%d", c->number);
    while (run_op(c, op + 5, 4) == 0 && !c->disconnected) {
    }
    say("op conn=%d %s status=%d", c->number, word, c->last_status);
  } else {
    run_and_report(c, word, op, 1);
  }
}
