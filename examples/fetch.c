/* Copies a file by RDMA Read, in C. C programs use Weft through verbs: libibverbs and librdmacm are
 * its C API. This one is linked with Weft's own copies of them, so it needs no `weft run`.
 *
 * Build:  gcc fetch.c -o fetch $(pkg-config --cflags --libs weft-verbs)
 * Try:    ./fetch serve /etc/services 7483           in one terminal
 *         ./fetch get 127.0.0.1 7483 copy            in another
 *
 * The server lends its file to one client after another until it is killed. It tells each client
 * the length, the address and the key of the file in the private data of the connection; the client
 * reads the bytes itself. */
#include <endian.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20, OUTSTANDING = 4 };

/* Big-endian, so that the two machines may differ. */
struct offer {
  uint64_t address;
  uint64_t length;
  uint32_t rkey;
};

static void give_up(const char* what) {
  perror(what);
  exit(1);
}

static struct rdma_cm_id* create_endpoint(const char* host, const char* port, int passive) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
                                .ai_flags = passive ? RAI_PASSIVE : 0};
  struct rdma_addrinfo* address;
  if (rdma_getaddrinfo(host, port, &hints, &address)) give_up("rdma_getaddrinfo");
  struct ibv_qp_init_attr attr = {
      .cap = {.max_send_wr = OUTSTANDING, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .sq_sig_all = 1};
  struct rdma_cm_id* id;
  if (rdma_create_ep(&id, address, NULL, &attr)) give_up("rdma_create_ep");
  rdma_freeaddrinfo(address);
  return id;
}

/* --- the server --- */

/* Serves one client: accepts it and waits until it has gone. */
static void lend(struct rdma_cm_id* id, void* bytes, uint64_t length) {
  struct ibv_mr* mr = rdma_reg_read(id, bytes, length);
  if (mr == NULL) give_up("rdma_reg_read");
  struct offer offer = {htobe64((uintptr_t)bytes), htobe64(length), htobe32(mr->rkey)};
  struct rdma_conn_param param = {
      .private_data = &offer, .private_data_len = sizeof offer, .responder_resources = OUTSTANDING};
  if (rdma_accept(id, &param) == 0) {
    /* No receive completes: this one waits until the connection ends and flushes it. Reads need
     * nothing of this program. */
    static char unused[1];
    struct ibv_mr* unused_mr = rdma_reg_msgs(id, unused, sizeof unused);
    struct ibv_wc wc;
    if (unused_mr != NULL && rdma_post_recv(id, NULL, unused, sizeof unused, unused_mr) == 0) {
      rdma_get_recv_comp(id, &wc);
    }
    rdma_disconnect(id);
    if (unused_mr != NULL) rdma_dereg_mr(unused_mr);
  }
  rdma_dereg_mr(mr);
  rdma_destroy_ep(id);
}

static void serve(const char* path, const char* port) {
  const int fd = open(path, O_RDONLY);
  struct stat about;
  if (fd < 0 || fstat(fd, &about) != 0) give_up(path);
  const size_t length = (size_t)about.st_size;
  if (length == 0) {
    fprintf(stderr, "fetch: %s: the file is empty\n", path);
    exit(1);
  }
  /* rdma_reg_read() asks for the right to write locally too, so the mapping must allow it. It is
   * private: nothing is ever written to the file. */
  void* bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (bytes == MAP_FAILED) give_up(path);
  struct rdma_cm_id* listener = create_endpoint(NULL, port, 1);
  if (rdma_listen(listener, 16)) give_up("rdma_listen");
  printf("listening on port %u\n", ntohs(rdma_get_src_port(listener)));
  fflush(stdout);
  for (;;) {
    struct rdma_cm_id* id;
    if (rdma_get_request(listener, &id)) give_up("rdma_get_request");
    lend(id, bytes, length);
  }
}

/* --- the client --- */

static void wait_for_read(struct rdma_cm_id* id) {
  struct ibv_wc wc;
  if (rdma_get_send_comp(id, &wc) != 1) give_up("rdma_get_send_comp");
  if (wc.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "fetch: RDMA Read: %s\n", ibv_wc_status_str(wc.status));
    exit(1);
  }
}

/* Keeps up to OUTSTANDING Reads under way. */
static void read_all(struct rdma_cm_id* id, const struct offer* offer, char* into,
                     struct ibv_mr* mr) {
  const uint64_t address = be64toh(offer->address);
  const uint64_t length = be64toh(offer->length);
  int outstanding = 0;
  for (uint64_t done = 0; done < length; done += CHUNK_BYTES) {
    const uint64_t left = length - done;
    if (outstanding == OUTSTANDING) {
      wait_for_read(id);
      --outstanding;
    }
    if (rdma_post_read(id, NULL, into + done, left < CHUNK_BYTES ? left : CHUNK_BYTES, mr, 0,
                       address + done, be32toh(offer->rkey))) {
      give_up("rdma_post_read");
    }
    ++outstanding;
  }
  for (; outstanding > 0; --outstanding) wait_for_read(id);
}

static void get(const char* host, const char* port, const char* path) {
  struct rdma_cm_id* id = create_endpoint(host, port, 0);
  struct rdma_conn_param param = {.initiator_depth = OUTSTANDING};
  if (rdma_connect(id, &param)) give_up("rdma_connect");
  struct offer offer;
  if (id->event->param.conn.private_data_len < sizeof offer) {
    fprintf(stderr, "fetch: %s port %s: this is no fetch server\n", host, port);
    exit(1);
  }
  memcpy(&offer, id->event->param.conn.private_data, sizeof offer);
  const uint64_t length = be64toh(offer.length);
  if (length == 0 || length > SIZE_MAX / 2) {
    fprintf(stderr, "fetch: the server offers %llu bytes\n", (unsigned long long)length);
    exit(1);
  }
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
  if (fd < 0 || ftruncate(fd, (off_t)length) != 0) give_up(path);
  char* into = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (into == MAP_FAILED) give_up(path);
  struct ibv_mr* mr = rdma_reg_msgs(id, into, length);
  if (mr == NULL) give_up("rdma_reg_msgs");
  read_all(id, &offer, into, mr);
  rdma_disconnect(id);
  rdma_dereg_mr(mr);
  rdma_destroy_ep(id);
  if (munmap(into, length) != 0 || close(fd) != 0) give_up(path);
  printf("read %llu bytes into %s\n", (unsigned long long)length, path);
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "serve") == 0) {
    serve(argv[2], argv[3]);
  } else if (argc == 5 && strcmp(argv[1], "get") == 0) {
    get(argv[2], argv[3], argv[4]);
  } else {
    fprintf(stderr, "usage: fetch serve FILE PORT | fetch get HOST PORT OUTPUT\n");
    return 2;
  }
  return 0;
}
