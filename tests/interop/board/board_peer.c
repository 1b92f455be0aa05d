// The peer of the agent on a board (tests/boards/agent_protocol.h) as an ordinary verbs program:
// over siw in the guest, or over Weft.
//
//   board_peer -c ADDRESS    connects to the board
//   board_peer -s ADDRESS    waits there until the board connects
//
// The board writes, is written to, reads, is read from and sends; every octet is compared. Prints
// "every octet is right" and ends with 0, or says what is wrong and ends with 1. Immediate Data is
// left out: siw has none.
#include <endian.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// As in agent_protocol.h.
#define PORT "4791"
enum { kFill = 1, kWrite = 2, kRead = 3, kSend = 4, kChecksum = 6, kClose = 7 };
enum { kMagic = 0x57424431, kCommandSize = 36, kReportSize = 20 };

enum { kReports = 4, kReportRoom = 64, kSentOctets = 60 };

struct peer {
  struct rdma_cm_id* id;
  struct ibv_mr* memory_mr;
  struct ibv_mr* reports_mr;
  uint8_t* memory;  // four times the size of the board's
  uint32_t stag;    // of the board's memory
  uint32_t size;
  uint32_t number;  // of the last command
  uint8_t reports[kReports][kReportRoom];
  uint8_t command[kCommandSize];
  struct ibv_mr* command_mr;
};

static void fail(const char* what) {
  perror(what);
  exit(1);
}
static void wrong(const char* what) {
  printf("wrong: %s\n", what);
  exit(1);
}

static uint32_t load32(const uint8_t* at) {
  uint32_t value;
  memcpy(&value, at, sizeof value);
  return be32toh(value);
}
static void store32(uint8_t* at, uint32_t value) {
  value = htobe32(value);
  memcpy(at, &value, sizeof value);
}
static void store64(uint8_t* at, uint64_t value) {
  value = htobe64(value);
  memcpy(at, &value, sizeof value);
}

static uint8_t pattern(uint32_t seed, uint32_t i) {
  return (uint8_t)(((i + seed * 7919u) * 2654435761u) >> 24);
}
static void put_pattern(uint8_t* at, uint32_t seed, uint32_t size) {
  for (uint32_t i = 0; i < size; ++i) at[i] = pattern(seed, i);
}
static void expect_pattern(const uint8_t* at, uint32_t seed, uint32_t size, const char* what) {
  for (uint32_t i = 0; i < size; ++i) {
    if (at[i] != pattern(seed, i)) wrong(what);
  }
}

static uint32_t crc32c(const uint8_t* at, uint32_t size) {
  uint32_t r = 0xffffffffu;
  while (size-- != 0) {
    r ^= *at++;
    for (int bit = 0; bit < 8; ++bit) r = (r >> 1) ^ ((r & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~r;
}

// --- the connection ---

static void post_report(struct peer* p, uintptr_t i) {
  if (rdma_post_recv(p->id, (void*)i, p->reports[i], kReportRoom, p->reports_mr) != 0) {
    fail("post a receive");
  }
}

static void prepare(struct peer* p) {
  p->reports_mr = rdma_reg_msgs(p->id, p->reports, sizeof p->reports);
  p->command_mr = rdma_reg_msgs(p->id, p->command, sizeof p->command);
  if (p->reports_mr == NULL || p->command_mr == NULL) fail("register");
  for (uintptr_t i = 0; i < kReports; ++i) post_report(p, i);
}

// What the agent says of its memory, and as much of ours.
static void read_agent_data(struct peer* p) {
  const struct rdma_conn_param* param = &p->id->event->param.conn;
  const uint8_t* data = param->private_data;
  if (param->private_data_len < 12 || load32(data) != kMagic) wrong("the agent's private data");
  p->stag = load32(data + 4);
  p->size = load32(data + 8);
  p->memory = calloc(4, p->size);
  if (p->memory == NULL) fail("memory");
  p->memory_mr =
      ibv_reg_mr(p->id->pd, p->memory, 4 * (size_t)p->size,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (p->memory_mr == NULL) fail("register memory");
}

static void connect_board(struct peer* p, const char* address, int listens) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
                                .ai_flags = listens ? RAI_PASSIVE : 0};
  struct rdma_addrinfo* found;
  if (rdma_getaddrinfo(address, PORT, &hints, &found) != 0) fail("rdma_getaddrinfo");
  struct ibv_qp_init_attr attr = {
      .cap = {.max_send_wr = 4, .max_recv_wr = kReports, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1,
  };
  struct rdma_conn_param param = {.responder_resources = 2, .initiator_depth = 2};
  struct rdma_cm_id* made;
  if (rdma_create_ep(&made, found, NULL, &attr) != 0) fail("rdma_create_ep");
  if (!listens) {
    p->id = made;
    prepare(p);
    if (rdma_connect(p->id, &param) != 0) fail("rdma_connect");
    read_agent_data(p);
    return;
  }
  if (rdma_listen(made, 1) != 0) fail("rdma_listen");
  printf("listening\n");
  fflush(stdout);
  if (rdma_get_request(made, &p->id) != 0) fail("rdma_get_request");
  prepare(p);
  read_agent_data(p);
  if (rdma_accept(p->id, &param) != 0) fail("rdma_accept");
}

// --- requests ---

static void take_send(struct peer* p) {
  struct ibv_wc wc;
  if (rdma_get_send_comp(p->id, &wc) != 1) fail("a completion");
  if (wc.status != IBV_WC_SUCCESS) wrong(ibv_wc_status_str(wc.status));
}

// The next message; its buffer stays the caller's.
static uintptr_t take_message(struct peer* p, uint32_t size) {
  struct ibv_wc wc;
  if (rdma_get_recv_comp(p->id, &wc) != 1) fail("a message");
  if (wc.status != IBV_WC_SUCCESS) wrong(ibv_wc_status_str(wc.status));
  if (wc.byte_len != size) wrong("the length of a message");
  return (uintptr_t)wc.wr_id;
}

static void command(struct peer* p, uint32_t op, uint32_t length, uint64_t arg, uint64_t to) {
  store32(p->command, op);
  store32(p->command + 4, p->memory_mr->rkey);
  store64(p->command + 8, to);
  store32(p->command + 16, length);
  store32(p->command + 20, 0);
  store64(p->command + 24, arg);
  store32(p->command + 32, ++p->number);
  if (rdma_post_send(p->id, NULL, p->command, kCommandSize, p->command_mr, 0) != 0) fail("send");
  take_send(p);
}

// The low half of the report's value.
static uint32_t report(struct peer* p) {
  const uintptr_t i = take_message(p, kReportSize);
  const uint8_t* at = p->reports[i];
  if (load32(at + 4) != p->number) wrong("the number of a report");
  if (load32(at + 8) != 0) wrong("a command was refused");
  const uint32_t value = load32(at + 16);
  post_report(p, i);
  return value;
}

static uint32_t run(struct peer* p, uint32_t op, uint32_t length, uint64_t arg, uint64_t to) {
  command(p, op, length, arg, to);
  return report(p);
}

static void exchange(struct peer* p, uint32_t seed) {
  const uint32_t n = p->size;
  const uint64_t here = (uintptr_t)p->memory;
  uint8_t* const second = p->memory + n;
  uint8_t* const third = second + n;
  uint8_t* const fourth = third + n;

  (void)run(p, kFill, n, seed, 0);
  (void)run(p, kWrite, n, 0, here);
  expect_pattern(p->memory, seed, n, "what the board wrote");

  put_pattern(second, seed + 1, n);
  if (rdma_post_write(p->id, NULL, second, n, p->memory_mr, 0, 0, p->stag) != 0) fail("write");
  take_send(p);
  if (run(p, kChecksum, n, 0, 0) != crc32c(second, n)) wrong("what the board was written");

  put_pattern(third, seed + 2, n);
  (void)run(p, kRead, n, 0, here + 2 * (uint64_t)n);
  if (run(p, kChecksum, n, 0, 0) != crc32c(third, n)) wrong("what the board read");

  if (rdma_post_read(p->id, NULL, fourth, n, p->memory_mr, 0, 0, p->stag) != 0) fail("read");
  take_send(p);
  expect_pattern(fourth, seed + 2, n, "what was read from the board");

  command(p, kSend, kSentOctets, 0, 0);
  const uintptr_t i = take_message(p, kSentOctets);
  expect_pattern(p->reports[i], seed + 2, kSentOctets, "what the board sent");
  post_report(p, i);
  (void)report(p);
}

int main(int argc, char** argv) {
  if (argc != 3 || (strcmp(argv[1], "-c") != 0 && strcmp(argv[1], "-s") != 0)) {
    fprintf(stderr, "usage: board_peer -c|-s ADDRESS\n");
    return 2;
  }
  static struct peer peer;
  connect_board(&peer, argv[2], argv[1][1] == 's');
  for (uint32_t seed = 0; seed < 30; seed += 3) exchange(&peer, seed);
  rdma_disconnect(peer.id);
  printf("every octet is right\n");
  return 0;
}
