/* Ping-pong in plain verbs. This program knows nothing of Weft: it uses libibverbs and librdmacm as
 * any RDMA program does, and runs on an adapter or, unchanged, under `weft run`.
 *
 * Build:  gcc verbs_pingpong.c -o verbs_pingpong -lrdmacm -libverbs
 * Try:    weft run -- ./verbs_pingpong server 7481               in one terminal
 *         weft run -- ./verbs_pingpong client 127.0.0.1 7481     in another
 *
 * An optional last argument of the client is the number of rounds (default: 1000). The server
 * serves one client and ends. */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGE_BYTES = 64 };

static char in[MESSAGE_BYTES];
static char out[MESSAGE_BYTES];
static struct ibv_mr* in_mr;
static struct ibv_mr* out_mr;

static void give_up(const char* what) {
  perror(what);
  exit(1);
}

/* Address and QP attributes; rdma_create_ep() makes an endpoint of them. */
static struct rdma_cm_id* create_endpoint(const char* host, const char* port, int passive) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
                                .ai_flags = passive ? RAI_PASSIVE : 0};
  struct rdma_addrinfo* address;
  if (rdma_getaddrinfo(host, port, &hints, &address)) give_up("rdma_getaddrinfo");
  struct ibv_qp_init_attr attr = {
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
      .sq_sig_all = 1};
  struct rdma_cm_id* id;
  if (rdma_create_ep(&id, address, NULL, &attr)) give_up("rdma_create_ep");
  rdma_freeaddrinfo(address);
  return id;
}

static void register_memory(struct rdma_cm_id* id) {
  in_mr = rdma_reg_msgs(id, in, sizeof in);
  out_mr = rdma_reg_msgs(id, out, sizeof out);
  if (in_mr == NULL || out_mr == NULL) give_up("rdma_reg_msgs");
}

static void post_receive(struct rdma_cm_id* id) {
  if (rdma_post_recv(id, NULL, in, sizeof in, in_mr)) give_up("rdma_post_recv");
}

static void receive(struct rdma_cm_id* id) {
  struct ibv_wc wc;
  if (rdma_get_recv_comp(id, &wc) != 1) give_up("rdma_get_recv_comp");
  if (wc.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "verbs_pingpong: receive: %s\n", ibv_wc_status_str(wc.status));
    exit(1);
  }
}

static void send_text(struct rdma_cm_id* id, const char* text) {
  snprintf(out, sizeof out, "%s", text);
  if (rdma_post_send(id, NULL, out, sizeof out, out_mr, 0)) give_up("rdma_post_send");
  struct ibv_wc wc;
  if (rdma_get_send_comp(id, &wc) != 1) give_up("rdma_get_send_comp");
  if (wc.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "verbs_pingpong: send: %s\n", ibv_wc_status_str(wc.status));
    exit(1);
  }
}

static void serve(const char* port) {
  struct rdma_cm_id* listener = create_endpoint(NULL, port, 1);
  if (rdma_listen(listener, 1)) give_up("rdma_listen");
  printf("listening on port %u\n", ntohs(rdma_get_src_port(listener)));
  fflush(stdout);
  struct rdma_cm_id* id;
  if (rdma_get_request(listener, &id)) give_up("rdma_get_request");
  register_memory(id);
  post_receive(id); /* before rdma_accept(): the first message may follow at once */
  if (rdma_accept(id, NULL)) give_up("rdma_accept");
  int rounds = 0;
  for (;;) {
    receive(id);
    in[sizeof in - 1] = '\0';
    if (strcmp(in, "bye") == 0) break;
    post_receive(id);
    char text[MESSAGE_BYTES];
    snprintf(text, sizeof text, "pong %d", ++rounds);
    send_text(id, text);
  }
  printf("answered %d messages\n", rounds);
  rdma_disconnect(id);
  rdma_dereg_mr(in_mr);
  rdma_dereg_mr(out_mr);
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void run_client(const char* host, const char* port, int rounds) {
  struct rdma_cm_id* id = create_endpoint(host, port, 0);
  register_memory(id);
  post_receive(id);
  if (rdma_connect(id, NULL)) give_up("rdma_connect");
  const double start = now_us();
  for (int round = 1; round <= rounds; ++round) {
    char text[MESSAGE_BYTES];
    snprintf(text, sizeof text, "ping %d", round);
    send_text(id, text);
    receive(id);
    snprintf(text, sizeof text, "pong %d", round);
    if (strncmp(in, text, sizeof in) != 0) {
      fprintf(stderr, "verbs_pingpong: wrong answer to round %d\n", round);
      exit(1);
    }
    post_receive(id);
  }
  printf("%d round trips of %d bytes, average %.1f us\n", rounds, MESSAGE_BYTES,
         (now_us() - start) / rounds);
  send_text(id, "bye");
  rdma_disconnect(id);
  rdma_dereg_mr(in_mr);
  rdma_dereg_mr(out_mr);
  rdma_destroy_ep(id);
}

int main(int argc, char** argv) {
  const int rounds = argc > 4 ? atoi(argv[4]) : 1000;
  if (argc == 3 && strcmp(argv[1], "server") == 0) {
    serve(argv[2]);
  } else if (argc >= 4 && strcmp(argv[1], "client") == 0 && rounds > 0) {
    run_client(argv[2], argv[3], rounds);
  } else {
    fprintf(stderr, "usage: verbs_pingpong server PORT | client HOST PORT [ROUNDS]\n");
    return 2;
  }
  return 0;
}
