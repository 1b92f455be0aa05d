/* Shared by the two sides of weft_dropin_perf: the set-up over rdma_cm, the queues, the notes. */
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

enum {
  DEPTH = 128,      /* messages outstanding */
  INTERVAL = 32,    /* every so many are signaled */
  NOTE_SLOTS = 64,  /* send queue entries beside those of the data */
  INBOX_CELLS = 16, /* receives of each side */
  CELL_BYTES = 64,
  NOTE_BYTES = 16,
  POLL_BATCH = 64,
  LAZY_REPOSTS = 6, /* receives kept back while round trips are timed */
  CYCLED_BYTES = 65536
};

#define RECEIVE_BIT (UINT64_C(1) << 63)

enum note_kind { NOTE_BEGIN = 1, NOTE_END, NOTE_REPLY };

struct options {
  uint64_t size;
  double seconds;
  double latency_seconds;
};

/* Where the other side may write. Private data of the connection. */
struct offer {
  uint64_t addr;
  uint64_t rkey;
};

struct side {
  struct rdma_event_channel* events;
  struct rdma_cm_id* id;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  uint8_t* memory; /* the inbox, then the places of messages */
  uint8_t* places;
  uint64_t stride;
  uint32_t slots;
  struct offer peer;

  uint64_t posted, done, last_signaled; /* of the send queue */
  uint32_t next_slot;
  uint64_t pings;   /* empty Sends received */
  uint64_t replies; /* notes of kind NOTE_REPLY received */
  int ends;         /* notes of kind NOTE_END received */

  struct ibv_send_wr write_wr;
  struct ibv_sge write_sge;
  struct ibv_wc completions[POLL_BATCH];
  struct ibv_recv_wr reposts[INBOX_CELLS];
  struct ibv_sge repost_sges[INBOX_CELLS];
  int repost_count;
  int keep_back;
  /* What happens on an empty Send; null: nothing. */
  void (*on_ping)(struct side*);
};

void die(const char* what);
int64_t now_ns(void);
void pin_to_nth_cpu(int nth);

/* Queues and memory on side->id. */
void open_side(struct side* side, const struct options* options);
struct offer offer_of(const struct side* side);
void take_offer(struct side* side, const struct rdma_cm_event* event);
/* The next event of rdma_cm, which must be `expected`; to be acknowledged. */
struct rdma_cm_event* expect(struct side* side, enum rdma_cm_event_type expected);
void close_side(struct side* side);

bool has_room(const struct side* side, uint32_t count);
void post_write(struct side* side);
/* A Write and an empty Send, as one list. */
void post_ping(struct side* side);
void post_note(struct side* side, enum note_kind kind);
/* Reaps completions and acts on them; with `wait`, not before there was one. */
void pump(struct side* side, bool wait);
