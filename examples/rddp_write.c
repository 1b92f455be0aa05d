/* Sends a file by RDMA Write, with the calls of RFC 4296 over ordinary TCP.
 *
 * The source says how much it wants to write. The sink registers the file it goes to and answers
 * with an STag. The source writes straight into that file, and the last Write tells the sink.
 *
 *   cc rddp_write.c -o rddp_write $(pkg-config --cflags --libs weft-core)
 *   ./rddp_write sink OUT              prints its port
 *   ./rddp_write source HOST PORT IN
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/rddp.h>

/* What both sides send each other, in network order. */
struct offer {
  uint8_t stag[4];
  uint8_t offset[8];
  uint8_t length[8];
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
  fprintf(stderr, "rddp_write: %s: %s\n", what, rddp_describe(status));
  exit(1);
}

static void expect(rddp_socket* s, ddp_ind_kind kind, const char* what) {
  const ddp_ind_t ind = rdma_recv(s);
  if (ind.kind == kind) return;
  fprintf(stderr, "rddp_write: %s: %s\n", what,
          ind.kind == DDP_IND_ERROR ? ddp_describe_error(ind.error) : "the peer has gone");
  exit(1);
}

static int open_file(const char* name, int flags) {
  const int fd = open(name, flags, 0644);
  if (fd >= 0) return fd;
  fprintf(stderr, "rddp_write: %s: %s\n", name, strerror(errno));
  exit(1);
}

static void sink(rddp_device* device, const char* name) {
  struct offer request, answer;
  ddp_posted_t first = {&request, sizeof request, NULL, 0};
  ddp_posted_t last = {NULL, 0, NULL, 0}; /* the notification uses up a buffer */
  rddp_listener* listener = NULL;
  rddp_socket* s = NULL;
  need(rddp_listen(device, RDDP_RDMA, NULL, 0, &listener), "listen");
  printf("listening on port %u\n", rddp_port(listener));
  fflush(stdout);
  need(rddp_accept(listener, -1, &s), "accept");
  need(rdma_post_recv(s, &first), "post");
  need(rdma_post_recv(s, &last), "post");
  need(rddp_answer(s, 1, NULL, 0), "answer");
  expect(s, DDP_IND_MESSAGE, "the request");

  const uint64_t length = get(request.length, 8);
  const int fd = open_file(name, O_RDWR | O_CREAT | O_TRUNC);
  if (ftruncate(fd, (off_t)length) != 0) need(RDDP_SYSTEM, name);
  ddp_buffer_t buffer = {.kind = RDDP_FILE, .fd = fd, .length = length};
  ddp_bdesc_t where;
  need(rdma_register(s, &buffer, RDMA_WRITE, &where), "register");
  put(answer.stag, where.address.stag, 4);
  put(answer.offset, where.address.offset, 8);
  put(answer.length, where.length, 8);
  need(rdma_send(s, (ddp_message_t){&answer, sizeof answer}), "answer");

  expect(s, DDP_IND_WRITTEN, "the data");
  need(rdma_deregister(s, where.handle), "deregister");
  printf("received %llu octets\n", (unsigned long long)length);
  close(fd);
  rddp_close(s);
  rddp_close_listener(listener);
}

/* Pieces of the file, each in a buffer that is free again when the call returns. */
static void write_file(rddp_socket* s, int fd, ddp_addr_t to, uint64_t length) {
  static uint8_t piece[1 << 20];
  for (uint64_t done = 0; done < length;) {
    const ssize_t n = read(fd, piece, sizeof piece);
    if (n <= 0) need(RDDP_SYSTEM, "the file became shorter");
    done += (uint64_t)n;
    const ddp_notify_t notify = {.wanted = done == length, .id = 1};
    need(rdma_write(s, (ddp_message_t){piece, (uint32_t)n}, to, notify), "write");
    to.offset += (uint64_t)n;
  }
}

static void source(rddp_device* device, const char* host, uint16_t port, const char* name) {
  struct offer request = {{0}, {0}, {0}}, answer;
  ddp_posted_t first = {&answer, sizeof answer, NULL, 0};
  const int fd = open_file(name, O_RDONLY);
  struct stat file;
  if (fstat(fd, &file) != 0 || file.st_size == 0) need(RDDP_INVALID, name);
  rddp_socket* s = NULL;
  need(rddp_create(device, RDDP_RDMA, &s), "socket");
  need(rdma_post_recv(s, &first), "post");
  need(rddp_connect(s, host, port, NULL, 0), host);
  put(request.length, (uint64_t)file.st_size, 8);
  need(rdma_send(s, (ddp_message_t){&request, sizeof request}), "request");
  expect(s, DDP_IND_MESSAGE, "the answer");
  const ddp_addr_t to = {(uint32_t)get(answer.stag, 4), get(answer.offset, 8)};
  write_file(s, fd, to, (uint64_t)file.st_size);
  printf("sent %llu octets\n", (unsigned long long)file.st_size);
  close(fd);
  rddp_close(s);
}

int main(int argc, char** argv) {
  rddp_device* device = NULL;
  const int is_sink = argc == 3 && strcmp(argv[1], "sink") == 0;
  if (!is_sink && !(argc == 5 && strcmp(argv[1], "source") == 0)) {
    fprintf(stderr, "usage: rddp_write sink OUT | rddp_write source HOST PORT IN\n");
    return 2;
  }
  need(rddp_open(NULL, &device), "open");
  if (is_sink) {
    sink(device, argv[2]);
  } else {
    source(device, argv[2], (uint16_t)atoi(argv[3]), argv[4]);
  }
  rddp_close_device(device);
  return 0;
}
