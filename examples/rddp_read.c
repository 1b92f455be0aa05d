/* Asks for a file and gets it by RDMA Write, with the calls of RFC 4296 over ordinary TCP: the
 * mirror image of rddp_write.c.
 *
 * The sink registers what the file is to go to, here a function that adds up the octets, and sends
 * the STag. The source writes there, and the last Write tells the sink.
 *
 *   cc rddp_read.c -o rddp_read $(pkg-config --cflags --libs weft-core)
 *   ./rddp_read source IN           prints its port
 *   ./rddp_read sink HOST PORT      prints size and sum
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/rddp.h>

enum { ROOM = 64 << 20 }; /* the largest file that the sink takes */

/* What the sink sends, in network order. */
struct request {
  uint8_t stag[4];
  uint8_t length[4];
};

static void put32(uint8_t* at, uint32_t value) {
  for (int i = 3; i >= 0; --i, value >>= 8) at[i] = (uint8_t)value;
}

static uint32_t get32(const uint8_t* at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void need(int status, const char* what) {
  if (status == RDDP_OK) return;
  fprintf(stderr, "rddp_read: %s: %s\n", what, rddp_describe(status));
  exit(1);
}

static ddp_ind_t expect(rddp_socket* s, ddp_ind_kind kind, const char* what) {
  const ddp_ind_t ind = rdma_recv(s);
  if (ind.kind == kind) return ind;
  fprintf(stderr, "rddp_read: %s: %s\n", what,
          ind.kind == DDP_IND_ERROR ? ddp_describe_error(ind.error) : "the peer has gone");
  exit(1);
}

/* --- sink --- */

struct sum {
  unsigned long long octets, total;
};

/* Every octet comes here once, with its address; nothing is stored. */
static int add(void* context, uint64_t address, const uint8_t* octets, size_t count) {
  struct sum* sum = context;
  (void)address;
  for (size_t i = 0; i < count; ++i) sum->total += octets[i];
  sum->octets += count;
  return 0;
}

static void sink(rddp_device* device, const char* host, uint16_t port) {
  struct sum sum = {0, 0};
  ddp_buffer_t buffer = {.kind = RDDP_METHOD, .length = ROOM, .set = add, .context = &sum};
  ddp_posted_t last = {NULL, 0, NULL, 0}; /* the notification uses up a buffer */
  rddp_socket* s = NULL;
  ddp_bdesc_t where;
  need(rddp_create(device, RDDP_RDMA, &s), "socket");
  need(rdma_register(s, &buffer, RDMA_WRITE, &where), "register");
  need(rdma_post_recv(s, &last), "post");
  need(rddp_connect(s, host, port, NULL, 0), host);
  struct request request;
  put32(request.stag, where.address.stag);
  put32(request.length, ROOM);
  need(rdma_send(s, (ddp_message_t){&request, sizeof request}), "request");
  expect(s, DDP_IND_WRITTEN, "the data");
  printf("%llu octets, sum %llu\n", sum.octets, sum.total);
  rddp_close(s);
}

/* --- source --- */

static void source(rddp_device* device, const char* name) {
  static uint8_t data[ROOM];
  FILE* file = fopen(name, "rb");
  if (file == NULL) need(RDDP_INVALID, name);
  const size_t size = fread(data, 1, sizeof data, file);
  fclose(file);

  struct request request;
  ddp_posted_t first = {&request, sizeof request, NULL, 0};
  rddp_listener* listener = NULL;
  rddp_socket* s = NULL;
  need(rddp_listen(device, RDDP_RDMA, NULL, 0, &listener), "listen");
  printf("listening on port %u\n", rddp_port(listener));
  fflush(stdout);
  need(rddp_accept(listener, -1, &s), "accept");
  need(rdma_post_recv(s, &first), "post");
  need(rddp_answer(s, 1, NULL, 0), "answer");
  expect(s, DDP_IND_MESSAGE, "the request");
  if (size > get32(request.length)) need(RDDP_INVALID, "the sink has no room for it");
  const ddp_addr_t to = {get32(request.stag), 0};
  const ddp_notify_t notify = {.wanted = 1, .id = 1};
  need(rdma_write(s, (ddp_message_t){data, (uint32_t)size}, to, notify), "write");
  rddp_close(s);
  rddp_close_listener(listener);
}

int main(int argc, char** argv) {
  rddp_device* device = NULL;
  const int is_source = argc == 3 && strcmp(argv[1], "source") == 0;
  if (!is_source && !(argc == 4 && strcmp(argv[1], "sink") == 0)) {
    fprintf(stderr, "usage: rddp_read source IN | rddp_read sink HOST PORT\n");
    return 2;
  }
  need(rddp_open(NULL, &device), "open");
  if (is_source) {
    source(device, argv[2]);
  } else {
    sink(device, argv[2], (uint16_t)atoi(argv[3]));
  }
  rddp_close_device(device);
  return 0;
}
