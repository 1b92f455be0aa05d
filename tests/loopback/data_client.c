/* A client of the data server from docs/data-protocol.md alone: plain verbs, none of Weft's code.
 *
 *   data_client HOST PORT read PATH      the file to stdout
 *   data_client HOST PORT uninvited      asks before HELLO; prints the error of each reply
 *   data_client HOST PORT odd            asks for what cannot be; prints the error of each reply
 *   data_client HOST PORT idle N         N connections that say HELLO, then stop
 *
 * Exit code 1 and a line on stderr when something fails that should not.
 */
#include <endian.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  MESSAGE = 4608,
  DATA = 1 << 20,
  HEAD = 16,
  VERSION = 2,
  HELLO = 1,
  STAT = 3,
  OPEN = 5,
  READ = 6,
  CLOSE = 7,
  PLAY = 16,
  GRANT = 17
};

struct client {
  struct rdma_cm_id* id;
  struct ibv_mr *messages, *data_mr;
  uint8_t *request, *reply, *data;
  size_t size; /* of the request */
  uint64_t tag;
};

static void need(int good, const char* what) {
  if (good) return;
  perror(what);
  exit(1);
}

static void put(struct client* c, uint64_t value, size_t octets) {
  uint64_t big = htobe64(value);
  memcpy(c->request + c->size, (uint8_t*)&big + 8 - octets, octets);
  c->size += octets;
}
static uint64_t get(const uint8_t* at, size_t octets) {
  uint64_t big = 0;
  memcpy((uint8_t*)&big + 8 - octets, at, octets);
  return be64toh(big);
}
static void put_memory(struct client* c, uint32_t octets) {
  put(c, (uintptr_t)c->data, 8);
  put(c, c->data_mr->rkey, 4);
  put(c, octets, 4);
}
static void put_text(struct client* c, const char* text) {
  memcpy(c->request + c->size, text, strlen(text));
  c->size += strlen(text);
}

static void begin(struct client* c, int operation) {
  c->size = 0;
  put(c, (uint64_t)operation, 1);
  put(c, 0, 7);
  put(c, ++c->tag, 8);
}

/* Sends the request; returns the error of its reply. */
static uint32_t ask(struct client* c) {
  struct ibv_wc wc;
  need(rdma_post_recv(c->id, NULL, c->reply, MESSAGE, c->messages) == 0, "rdma_post_recv");
  need(rdma_post_send(c->id, NULL, c->request, c->size, c->messages, IBV_SEND_SIGNALED) == 0,
       "rdma_post_send");
  need(rdma_get_send_comp(c->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "send");
  need(rdma_get_recv_comp(c->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "reply");
  need(wc.byte_len >= HEAD && c->reply[0] == (c->request[0] | 0x80), "operation of the reply");
  need(get(c->reply + 8, 8) == c->tag, "tag of the reply");
  return (uint32_t)get(c->reply + 4, 4);
}

static void open_connection(struct client* c, const char* host, const char* port) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP};
  struct rdma_addrinfo* found = NULL;
  struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 0};
  memset(c, 0, sizeof *c);
  need(rdma_getaddrinfo(host, port, &hints, &found) == 0, "rdma_getaddrinfo");
  need(rdma_create_ep(&c->id, found, NULL, &attr) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(found);
  c->request = calloc(2, MESSAGE);
  c->data = calloc(1, DATA);
  need(c->request != NULL && c->data != NULL, "memory");
  c->reply = c->request + MESSAGE;
  c->messages = rdma_reg_msgs(c->id, c->request, (size_t)2 * MESSAGE);
  c->data_mr = rdma_reg_write(c->id, c->data, DATA);
  need(c->messages != NULL && c->data_mr != NULL, "registration");
  need(rdma_connect(c->id, NULL) == 0, "rdma_connect");
}

static void hello(struct client* c) {
  begin(c, HELLO);
  put(c, VERSION, 4);
  memset(c->request + c->size, 7, 32);
  c->size += 32;
  need(ask(c) == 0 && get(c->reply + HEAD, 4) == VERSION, "HELLO");
}

static void read_file(struct client* c, const char* path) {
  uint64_t handle;
  uint64_t size;
  uint64_t at;
  begin(c, OPEN);
  put_memory(c, 0);
  put_text(c, path);
  need(ask(c) == 0, "OPEN");
  handle = get(c->reply + HEAD, 8);
  size = get(c->reply + HEAD + 12 + 16, 8);
  for (at = 0; at < size;) {
    uint32_t error;
    uint64_t octets;
    begin(c, READ);
    put(c, handle, 8);
    put(c, at, 8);
    put_memory(c, DATA);
    error = ask(c);
    if (error != 0) {
      fprintf(stderr, "READ: error %u\n", error);
      exit(1);
    }
    octets = get(c->reply + HEAD, 4);
    need(octets != 0 && octets <= DATA, "octets of READ");
    need(fwrite(c->data, 1, octets, stdout) == octets, "stdout");
    at += octets;
  }
  begin(c, CLOSE);
  put(c, handle, 8);
  need(ask(c) == 0, "CLOSE");
}

static void uninvited(struct client* c) {
  begin(c, STAT);
  put_text(c, "file");
  printf("%u\n", ask(c));
  begin(c, GRANT);
  put(c, 1, 8);
  put(c, 3, 8);
  put(c, 0, 8);
  printf("%u\n", ask(c));
}

static void put_play(struct client* c, uint64_t handle, uint32_t octets, uint32_t pitch,
                     uint32_t slots) {
  begin(c, PLAY);
  put(c, handle, 8);
  put(c, 0, 8);
  put_memory(c, octets);
  put(c, pitch, 4);
  put(c, slots, 4);
  put(c, 10, 4); /* records */
  put(c, 0, 4);
  put(c, 0, 4);
  put(c, 0, 8); /* no record is granted */
}

static void odd(struct client* c) {
  begin(c, READ); /* of no file */
  put(c, 99, 8);
  put(c, 0, 8);
  put_memory(c, 100);
  printf("%u\n", ask(c));
  begin(c, READ); /* of no octets */
  put(c, 99, 8);
  put(c, 0, 8);
  put_memory(c, 0);
  printf("%u\n", ask(c));
  begin(c, CLOSE); /* cut short */
  put(c, 1, 4);
  printf("%u\n", ask(c));
  put_play(c, 99, 100, 100, 3); /* of no file */
  printf("%u\n", ask(c));
  put_play(c, 99, 100, 99, 3); /* slots that overlap */
  printf("%u\n", ask(c));
  begin(c, GRANT); /* of nothing that plays */
  put(c, 99, 8);
  put(c, 3, 8);
  put(c, 0, 8);
  printf("%u\n", ask(c));
  begin(c, HELLO); /* twice */
  put(c, VERSION, 4);
  c->size += 32;
  printf("%u\n", ask(c));
}

int main(int argc, char** argv) {
  struct client c;
  if (argc < 4) return 2;
  if (strcmp(argv[3], "idle") == 0) {
    for (long left = atol(argv[4]); left > 0; --left) {
      open_connection(&c, argv[1], argv[2]);
      hello(&c);
    }
    printf("connected\n");
    fflush(stdout);
    for (;;) pause();
  }
  open_connection(&c, argv[1], argv[2]);
  if (strcmp(argv[3], "uninvited") == 0) {
    uninvited(&c);
    return 0;
  }
  hello(&c);
  if (strcmp(argv[3], "odd") == 0) {
    odd(&c);
  } else {
    read_file(&c, argv[4]);
  }
  fflush(stdout);
  rdma_disconnect(c.id);
  return 0;
}
