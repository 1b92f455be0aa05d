/* What rping of rdma-core does, by the calls of RFC 4296: either end of it, against rping itself or
 * against this program.
 *
 * In each round the client names a buffer; the server reads it by RDMA Read and says so; the client
 * names another buffer; the server writes what it read there by RDMA Write and says so; the client
 * compares.
 *
 *   rddp_rping -s [-p PORT] [-C ROUNDS]            0: any port; it is printed
 *   rddp_rping -c HOST -p PORT [-C ROUNDS] [-S BYTES]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/rddp.h>

enum { kLargest = 65536 };

/* struct rping_rdma_info, in network order. */
struct info {
  uint8_t address[8];
  uint8_t stag[4];
  uint8_t size[4];
};

struct ping {
  rddp_socket* socket;
  struct info out, in;
  ddp_posted_t posted;
  uint8_t source[kLargest], sink[kLargest];
  ddp_bdesc_t source_where, sink_where;
};

static void need(int status, const char* what) {
  if (status == RDDP_OK) return;
  fprintf(stderr, "rddp_rping: %s: %s\n", what, rddp_describe(status));
  exit(1);
}

static void put(uint8_t* at, uint64_t value, int octets) {
  for (int i = octets - 1; i >= 0; --i, value >>= 8) at[i] = (uint8_t)value;
}

static uint64_t get(const uint8_t* at, int octets) {
  uint64_t value = 0;
  for (int i = 0; i < octets; ++i) value = value << 8 | at[i];
  return value;
}

/* Memory and the first receive: before the peer may use them. */
static void prepare(struct ping* p) {
  ddp_buffer_t buffer = {.kind = RDDP_MEMORY, .length = kLargest};
  buffer.memory = p->source;
  buffer.offset = 0x7f0012345678; /* no address of this program */
  need(rdma_register(p->socket, &buffer, RDMA_READ, &p->source_where), "register");
  buffer.memory = p->sink;
  buffer.offset = 0;
  need(rdma_register(p->socket, &buffer, RDMA_WRITE, &p->sink_where), "register");
  p->posted = (ddp_posted_t){&p->in, sizeof p->in, NULL, 0};
  need(rdma_post_recv(p->socket, &p->posted), "post");
}

static void tell(struct ping* p, const ddp_bdesc_t* where, uint32_t size) {
  put(p->out.address, where->address.offset, 8);
  put(p->out.stag, where->address.stag, 4);
  put(p->out.size, size, 4);
  need(rdma_send(p->socket, (ddp_message_t){&p->out, sizeof p->out}), "send");
}

/* The peer's next message; posts the buffer again. 0: the peer has closed. */
static int hear(struct ping* p, struct info* heard) {
  const ddp_ind_t ind = rdma_recv(p->socket);
  if (ind.kind == DDP_IND_CLOSED) return 0;
  if (ind.kind != DDP_IND_MESSAGE || ind.length != sizeof p->in) {
    fprintf(stderr, "rddp_rping: receive: indication %d, %u octets: %s\n", ind.kind, ind.length,
            ddp_describe_error(ind.error));
    exit(1);
  }
  *heard = p->in;
  need(rdma_post_recv(p->socket, &p->posted), "post");
  return 1;
}

static int serve_round(struct ping* p) {
  struct info heard;
  if (!hear(p, &heard)) return 0;
  const ddp_addr_t from = {(uint32_t)get(heard.stag, 4), get(heard.address, 8)};
  const uint32_t size = (uint32_t)get(heard.size, 4);
  if (size == 0 || size > kLargest) need(RDDP_INVALID, "the client's size");
  need(rdma_read(p->socket, from, size, p->sink_where.address), "read");
  tell(p, &p->sink_where, size); /* rping looks at the arrival only */
  if (!hear(p, &heard)) need(RDDP_DOWN, "the client's sink");
  const ddp_addr_t to = {(uint32_t)get(heard.stag, 4), get(heard.address, 8)};
  need(rdma_write(p->socket, (ddp_message_t){p->sink, size}, to, (ddp_notify_t){0, 0}), "write");
  tell(p, &p->sink_where, size);
  return 1;
}

static void ask_round(struct ping* p, int round, uint32_t size) {
  struct info heard;
  /* A text: rping writes back what is before the first 0, and that. */
  for (uint32_t i = 0; i < size; ++i)
    p->source[i] = (uint8_t)('A' + (i * 7u + (unsigned)round) % 58);
  p->source[size - 1] = 0;
  memset(p->sink, 0, size);
  tell(p, &p->source_where, size);
  if (!hear(p, &heard)) need(RDDP_DOWN, "the server's read");
  tell(p, &p->sink_where, size);
  if (!hear(p, &heard)) need(RDDP_DOWN, "the server's write");
  if (memcmp(p->source, p->sink, size) == 0) return;
  fprintf(stderr, "rddp_rping: round %d: what came back is not what was sent\n", round);
  exit(1);
}

static void serve(rddp_device* device, struct ping* p, uint16_t port, int rounds) {
  rddp_listener* listener = NULL;
  need(rddp_listen(device, RDDP_RDMA, NULL, port, &listener), "listen");
  printf("listening on port %u\n", rddp_port(listener));
  fflush(stdout);
  need(rddp_accept(listener, -1, &p->socket), "accept");
  prepare(p);
  need(rddp_answer(p->socket, 1, NULL, 0), "answer");
  int done = 0;
  while ((rounds == 0 || done < rounds) && serve_round(p)) ++done;
  printf("served %d rounds\n", done);
  /* The client leaves first: rping over siw waits for ever where its server does. */
  struct info none;
  if (done == rounds && rounds != 0) (void)hear(p, &none);
  rddp_close(p->socket);
  rddp_close_listener(listener);
}

static void ask(rddp_device* device, struct ping* p, const char* host, uint16_t port, int rounds,
                uint32_t size) {
  need(rddp_create(device, RDDP_RDMA, &p->socket), "socket");
  prepare(p);
  need(rddp_connect(p->socket, host, port, NULL, 0), host);
  for (int i = 0; i < rounds; ++i) ask_round(p, i, size);
  printf("%d rounds of %u octets came back\n", rounds, size);
  rddp_close(p->socket);
}

int main(int argc, char** argv) {
  static struct ping p;
  const char* host = NULL;
  int option = 0, server = 0, rounds = 0;
  uint32_t size = 64;
  uint16_t port = 0;
  while ((option = getopt(argc, argv, "sc:p:C:S:")) != -1) {
    switch (option) {
      case 's': server = 1; break;
      case 'c': host = optarg; break;
      case 'p': port = (uint16_t)atoi(optarg); break;
      case 'C': rounds = atoi(optarg); break;
      case 'S': size = (uint32_t)atoi(optarg); break;
      default: return 2;
    }
  }
  if (server == (host != NULL) || size == 0 || size > kLargest || optind != argc) {
    fprintf(stderr,
            "usage: rddp_rping -s [-p PORT] [-C ROUNDS]\n"
            "       rddp_rping -c HOST -p PORT [-C ROUNDS] [-S BYTES, 1 to 65536]\n");
    return 2;
  }
  rddp_device* device = NULL;
  need(rddp_open(NULL, &device), "open");
  if (server) {
    serve(device, &p, port, rounds);
  } else {
    ask(device, &p, host, port, rounds, size);
  }
  rddp_close_device(device);
  return 0;
}
