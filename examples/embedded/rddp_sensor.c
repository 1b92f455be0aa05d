/* A sensor writes its samples into a ring in the memory of a server, by RDMA Write, and rings with
 * Immediate Data. The server takes no part until it is rung. Calls of RFC 4296 over ordinary TCP.
 *
 * The part of the sensor calls nothing of the operating system: on a board without one the same
 * function runs over lwIP, with a device from weft::lwip::open() (docs/embedded.md).
 * sensor_board.cc is the sensor for a board that has no heap; this server serves it too.
 *
 *   cc rddp_sensor.c -o rddp_sensor $(pkg-config --cflags --libs weft-core)
 *   ./rddp_sensor server [PORT]                prints its port, then what came
 *   ./rddp_sensor sensor HOST PORT BLOCKS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/rddp.h>

enum { kSlots = 8, kSamples = 256 }; /* of the ring, and of a slot */

/* How the server tells where its ring is, in network order. */
struct ring {
  uint8_t stag[4];
  uint8_t offset[8];
};

static void put(uint8_t* at, uint64_t value, int octets) {
  for (int i = octets - 1; i >= 0; --i, value >>= 8) at[i] = (uint8_t)value;
}

static uint64_t get(const uint8_t* at, int octets) {
  uint64_t value = 0;
  for (int i = 0; i < octets; ++i) value = value << 8 | at[i];
  return value;
}

static void need(int status, const char* what) {
  if (status == RDDP_OK) return;
  fprintf(stderr, "rddp_sensor: %s: %s\n", what, rddp_describe(status));
  exit(1);
}

static ddp_ind_t expect(rddp_socket* s, ddp_ind_kind kind, const char* what) {
  const ddp_ind_t ind = rdma_recv(s);
  if (ind.kind == kind) return ind;
  fprintf(stderr, "rddp_sensor: %s: %s\n", what,
          ind.kind == DDP_IND_ERROR ? ddp_describe_error(ind.error) : "the peer has gone");
  exit(1);
}

/* --- the sensor --- */

/* What the instrument measures: a saw-tooth here. Two octets each, in network order. */
static void measure(uint8_t* block, uint32_t number) {
  for (uint32_t i = 0; i < kSamples; ++i) put(block + 2 * i, (number * kSamples + i) % 1000, 2);
}

/* Each block of samples goes into the next slot. The server has posted a buffer for each slot, and
 * sends an empty message when it has read one, so no slot is written before it was read. */
static void sense(rddp_device* device, const char* host, uint16_t port, uint32_t blocks) {
  static uint8_t block[2 * kSamples];
  static ddp_posted_t credits[kSlots];
  struct ring ring;
  ddp_posted_t first = {&ring, sizeof ring, NULL, 0};
  rddp_socket* s = NULL;
  need(rddp_create(device, RDDP_RDMA, &s), "socket");
  need(rdma_post_recv(s, &first), "post");
  for (int i = 0; i < kSlots; ++i) need(rdma_post_recv(s, &credits[i]), "post");
  need(rddp_connect(s, host, port, NULL, 0), host);
  expect(s, DDP_IND_MESSAGE, "the ring");
  const uint32_t stag = (uint32_t)get(ring.stag, 4);
  for (uint32_t n = 0; n < blocks; ++n) {
    if (n >= kSlots) {
      const ddp_ind_t credit = expect(s, DDP_IND_MESSAGE, "a free slot");
      need(rdma_post_recv(s, credit.buffer), "post");
    }
    measure(block, n);
    const ddp_addr_t to = {stag, get(ring.offset, 8) + n % kSlots * sizeof block};
    need(rdma_write(s, (ddp_message_t){block, sizeof block}, to, (ddp_notify_t){1, n}), "write");
  }
  /* Closing earlier would meet the server's last words, and cost it the connection. */
  for (uint32_t n = 0; n < blocks && n < kSlots; ++n) expect(s, DDP_IND_MESSAGE, "a free slot");
  printf("sent %u blocks\n", blocks);
  rddp_close(s);
}

/* --- the server --- */

static void serve(rddp_device* device, uint16_t port) {
  static uint8_t slots[kSlots][2 * kSamples];
  static ddp_posted_t rung[kSlots];
  rddp_listener* listener = NULL;
  rddp_socket* s = NULL;
  need(rddp_listen(device, RDDP_RDMA, NULL, port, &listener), "listen");
  printf("listening on port %u\n", rddp_port(listener));
  fflush(stdout);
  need(rddp_accept(listener, -1, &s), "accept");
  for (int i = 0; i < kSlots; ++i) need(rdma_post_recv(s, &rung[i]), "post");
  ddp_buffer_t buffer = {.kind = RDDP_MEMORY, .memory = slots, .length = sizeof slots};
  ddp_bdesc_t where;
  need(rdma_register(s, &buffer, RDMA_WRITE, &where), "register");
  need(rddp_answer(s, 1, NULL, 0), "answer");
  struct ring ring;
  put(ring.stag, where.address.stag, 4);
  put(ring.offset, where.address.offset, 8);
  need(rdma_send(s, (ddp_message_t){&ring, sizeof ring}), "the ring");
  uint32_t blocks = 0;
  uint64_t sum = 0;
  ddp_ind_t ind;
  while ((ind = rdma_recv(s)).kind == DDP_IND_WRITTEN) {
    if (ind.id != blocks++) need(RDDP_INVALID, "a block out of turn");
    for (int i = 0; i < kSamples; ++i) sum += get(&slots[ind.id % kSlots][2 * i], 2);
    need(rdma_post_recv(s, ind.buffer), "post");
    need(rdma_send(s, (ddp_message_t){NULL, 0}), "a free slot");
  }
  if (ind.kind != DDP_IND_CLOSED) {
    fprintf(stderr, "rddp_sensor: %s\n", ddp_describe_error(ind.error));
    exit(1);
  }
  printf("%u blocks, sum %llu\n", blocks, (unsigned long long)sum);
  rddp_close(s);
  rddp_close_listener(listener);
}

int main(int argc, char** argv) {
  rddp_device* device = NULL;
  const int server = (argc == 2 || argc == 3) && strcmp(argv[1], "server") == 0;
  if (!server && !(argc == 5 && strcmp(argv[1], "sensor") == 0)) {
    fprintf(stderr, "usage: rddp_sensor server [PORT] | rddp_sensor sensor HOST PORT BLOCKS\n");
    return 2;
  }
  need(rddp_open(NULL, &device), "open");
  if (server) {
    serve(device, argc == 3 ? (uint16_t)atoi(argv[2]) : 0);
  } else {
    sense(device, argv[2], (uint16_t)atoi(argv[3]), (uint32_t)atoi(argv[4]));
  }
  rddp_close_device(device);
  return 0;
}
