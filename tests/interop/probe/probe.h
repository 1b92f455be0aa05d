// Client and server for what no packaged program does: private data of a given size, rejects, Send
// with Invalidate, a shared receive queue, work that breaks rules, ends at awkward moments.
//
// Written against librdmacm and libibverbs only, so that the same binary runs over Linux siw and
// over Weft. It prints one line per event; the tests read those. Single-threaded.
//
//   probe.c       options, connection manager events, the two roles
//   probe_conn.c  memory, queues and completions of a connection
//   probe_ops.c   the words of a client's script, and the server's answers
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  kMaxConns = 64,
  kWorkSlots = 256,        // work requests of one connection at a time, receives not counted
  kMaxRecvs = 1024,        // receive buffers of one pool
  kMaxInlineBytes = 64,    // siw has 80
  kBufferBytes = 1 << 20,  // largest Send, Write or Read
  kSeedSent = 0x11,        // of the bytes in Sends and Writes
  kSeedRegion = 0x80,      // of a region before anyone has written to it
  kSeedPrivate = 0x21,     // of private data
};

struct options {
  const char* addr;  // client: the peer; server: where to listen, NULL for everywhere
  const char* port;
  bool reject, srq, echo;
  uint32_t private_bytes;  // sent with the Request, Reply or reject
  int close_after;         // server: disconnects after so many receives; 0: never
  int conns;               // client: opens so many at once; server: ends after so many
  int recvs;               // receive buffers per pool
  uint32_t recv_bytes;     // size of each
  uint32_t region_bytes;   // memory offered to the peer
  int access;              // remote rights to it, IBV_ACCESS_*
  uint8_t ird, ord;
  int timeout_ms;  // for each wait
};

// Receive buffers: of one connection, or shared by all.
struct pool {
  uint8_t* memory;
  size_t stride_bytes;
  struct ibv_mr* mr;
  struct ibv_srq* srq;  // NULL: of one connection
  int posted;           // now
  bool is_posted[kMaxRecvs];
};

struct conn {
  int number;
  struct rdma_cm_id* id;
  struct pool* pool;
  struct ibv_cq* cq;
  struct ibv_mr* send_mr;
  struct ibv_mr* sink_mr;
  struct ibv_mr* region_mr;
  uint8_t* send_memory;
  uint8_t* sink_memory;  // Read Responses go here
  uint8_t* region;       // offered to the peer
  uint8_t* shadow;       // client: what the peer's region must hold
  uint64_t remote_addr;
  uint32_t remote_rkey, remote_bytes;  // 0 bytes: not known yet
  bool connected, disconnected, failed, qp_gone, ended;
  int posted, completed;  // work requests, receives not counted
  int recvs, flushed;     // receives that took a message; that were flushed
  int last_status;        // of the latest work request that failed, else 0
  bool work_posted[kWorkSlots];
  int work_recv[kWorkSlots];  // receive buffer to post again when done, or -1
};

extern struct options opt;
extern struct conn conns[kMaxConns];
extern int conns_used;
extern int faults;  // things seen that must not be; the exit status

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void die(const char* what);  // this machine lacks something; errno says what

int64_t now_ms(void);
void fill(uint8_t* to, size_t len_bytes, uint8_t seed);
bool holds(const uint8_t* at, size_t len_bytes, uint8_t seed);

// Makes memory, queues and receives for an id that has a device. Both roles.
struct conn* conn_create(struct rdma_cm_id* id);
// Posts one work request and fills in its wr_id; recv_slot as in work_recv. 0 or an errno value.
int conn_post(struct conn* c, struct ibv_send_wr* wr, int recv_slot);
// Takes what the completion queue holds; true if there was anything.
bool conn_poll(struct conn* c);
void conn_destroy_qp(struct conn* c);
// Waits for what is still posted, reports it, frees all.
void conn_end(struct conn* c);

// Handles events and completions until done(c), or opt.timeout_ms has passed: then false.
bool pump_until(bool (*done)(const struct conn* c), const struct conn* c);
void pump_for(int ms);

// Does one word of the client's script.
void do_word(struct conn* c, const char* word);
// Looks at a message that has arrived and answers it. True: the buffer is being sent back, and is
// posted again once that is done.
bool answer(struct conn* c, const struct ibv_wc* wc, int recv_slot);
