/* The workload of `weft perf --op write` over plain verbs, to see what Weft's libibverbs and
 * librdmacm cost over its C++ API. Linked with -libverbs -lrdmacm, knows nothing of Weft.
 *
 *   weft run -- weft_dropin_perf [SIZE [SECONDS [LATENCY_SECONDS]]]
 *
 * A server process and a client process on 127.0.0.1, each on a CPU of its own, both polling. First
 * RDMA Writes of SIZE bytes, 128 outstanding, every 32nd signaled, timed until the server answers
 * that it has everything; then round trips of a Write and an empty Send, one at a time. Prints one
 * line of JSON. bench/dropin/compare.py runs it beside `weft perf`.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dropin_perf.h"

static const double kWarmupSeconds = 0.05;

/* Server ------------------------------------------------------------------------------------- */

static void run_server(const struct options* options, int announce_fd) {
  struct side side = {0};
  struct rdma_cm_id* listener = NULL;
  struct sockaddr_in local = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  side.events = rdma_create_event_channel();
  if (!side.events || rdma_create_id(side.events, &listener, NULL, RDMA_PS_TCP) != 0 ||
      rdma_bind_addr(listener, (struct sockaddr*)&local) != 0 || rdma_listen(listener, 1) != 0) {
    die("cannot listen");
  }
  const uint16_t port = ntohs(rdma_get_src_port(listener));
  if (write(announce_fd, &port, sizeof port) != sizeof port) die("cannot announce the port");
  close(announce_fd);

  struct rdma_cm_event* request = expect(&side, RDMA_CM_EVENT_CONNECT_REQUEST);
  side.id = request->id;
  open_side(&side, options);
  take_offer(&side, request);
  rdma_ack_cm_event(request);
  const struct offer mine = offer_of(&side);
  struct rdma_conn_param params = {.private_data = &mine, .private_data_len = sizeof mine};
  if (rdma_accept(side.id, &params) != 0) die("cannot accept");
  rdma_ack_cm_event(expect(&side, RDMA_CM_EVENT_ESTABLISHED));

  side.on_ping = post_ping;
  side.keep_back = LAZY_REPOSTS;
  /* Two phases; the last answer must be on its way before this thread turns to something else. */
  while (side.ends < 2 || side.posted != side.done) pump(&side, true);
  rdma_ack_cm_event(expect(&side, RDMA_CM_EVENT_DISCONNECTED));
  close_side(&side);
  rdma_destroy_id(listener);
  rdma_destroy_event_channel(side.events);
}

/* Client ------------------------------------------------------------------------------------- */

static void connect_to(struct side* side, uint16_t port, const struct options* options) {
  struct sockaddr_in server = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  side->events = rdma_create_event_channel();
  if (!side->events || rdma_create_id(side->events, &side->id, NULL, RDMA_PS_TCP) != 0 ||
      rdma_resolve_addr(side->id, NULL, (struct sockaddr*)&server, 2000) != 0) {
    die("cannot resolve the address");
  }
  rdma_ack_cm_event(expect(side, RDMA_CM_EVENT_ADDR_RESOLVED));
  if (rdma_resolve_route(side->id, 2000) != 0) die("cannot resolve the route");
  rdma_ack_cm_event(expect(side, RDMA_CM_EVENT_ROUTE_RESOLVED));
  open_side(side, options);
  const struct offer mine = offer_of(side);
  struct rdma_conn_param params = {.private_data = &mine, .private_data_len = sizeof mine};
  if (rdma_connect(side->id, &params) != 0) die("cannot connect");
  struct rdma_cm_event* established = expect(side, RDMA_CM_EVENT_ESTABLISHED);
  take_offer(side, established);
  rdma_ack_cm_event(established);
}

static void exchange(struct side* side, enum note_kind kind) {
  side->replies = 0;
  post_note(side, kind);
  while (side->replies == 0) pump(side, true);
}

/* Keeps the queue full for so long; how many messages that were. */
static uint64_t stream(struct side* side, uint64_t size, double seconds) {
  const int64_t end_ns = now_ns() + (int64_t)(seconds * 1e9);
  /* The clock costs as much as posting a small message: look at it every 64 KiB or so. */
  uint64_t rounds_per_look = CYCLED_BYTES / size;
  if (rounds_per_look < 1) rounds_per_look = 1;
  if (rounds_per_look > 64) rounds_per_look = 64;
  uint64_t posted = 0;
  uint64_t until_look = 0;
  for (;;) {
    if (until_look == 0) {
      if (now_ns() >= end_ns) return posted;
      until_look = rounds_per_look;
    }
    --until_look;
    if (has_room(side, 1)) {
      post_write(side);
      ++posted;
    } else {
      pump(side, true);
    }
  }
}

static double bandwidth(struct side* side, const struct options* options) {
  stream(side, options->size, kWarmupSeconds);
  exchange(side, NOTE_BEGIN);
  const int64_t begin_ns = now_ns();
  const uint64_t messages = stream(side, options->size, options->seconds);
  exchange(side, NOTE_END);
  return (double)(messages * options->size) / (double)(now_ns() - begin_ns);
}

static int by_value(const void* a, const void* b) {
  const int64_t left = *(const int64_t*)a;
  const int64_t right = *(const int64_t*)b;
  return (left > right) - (left < right);
}

/* Round trips for so long, into `samples` as far as there is room; how many. */
static size_t round_trips(struct side* side, double seconds, int64_t* samples, size_t room) {
  const int64_t end_ns = now_ns() + (int64_t)(seconds * 1e9);
  int64_t at_ns = now_ns();
  size_t count = 0;
  while (at_ns < end_ns && count < room) {
    const uint64_t before = side->pings;
    post_ping(side);
    while (side->pings == before) pump(side, true);
    const int64_t done_ns = now_ns();
    samples[count++] = done_ns - at_ns;
    at_ns = done_ns;
  }
  return count;
}

/* The median of half a round trip, in microseconds. */
static double latency(struct side* side, const struct options* options) {
  enum { ROOM = 1 << 20 };
  int64_t* samples = malloc(sizeof *samples * ROOM);
  if (!samples) die("no memory for the samples");
  memset(samples, 0, sizeof *samples * ROOM);
  side->keep_back = LAZY_REPOSTS;
  round_trips(side, kWarmupSeconds, samples, ROOM);
  exchange(side, NOTE_BEGIN);
  const size_t count = round_trips(side, options->latency_seconds, samples, ROOM);
  exchange(side, NOTE_END);
  qsort(samples, count, sizeof *samples, by_value);
  const double median = count != 0 ? (double)samples[count / 2] / 2000.0 : 0;
  free(samples);
  return median;
}

static void run_client(const struct options* options, uint16_t port) {
  struct side side = {0};
  connect_to(&side, port, options);
  const double gbytes_per_s = bandwidth(&side, options);
  const double latency_us = latency(&side, options);
  rdma_disconnect(side.id);
  rdma_ack_cm_event(expect(&side, RDMA_CM_EVENT_DISCONNECTED));
  close_side(&side);
  rdma_destroy_event_channel(side.events);
  printf("{\"size\": %llu, \"gbytes_per_s\": %.4f, \"latency_us\": %.3f}\n",
         (unsigned long long)options->size, gbytes_per_s, latency_us);
}

int main(int argc, char** argv) {
  const struct options options = {argc > 1 ? strtoull(argv[1], NULL, 10) : 65536,
                                  argc > 2 ? strtod(argv[2], NULL) : 0.5,
                                  argc > 3 ? strtod(argv[3], NULL) : 0.125};
  int ends[2];
  if (options.size < 1 || options.size > (1U << 30) || pipe(ends) != 0) die("bad SIZE, or no pipe");
  /* Before anything of verbs is touched: each process opens the device for itself. */
  const pid_t server = fork();
  if (server < 0) die("cannot fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    pin_to_nth_cpu(1);
    run_server(&options, ends[1]);
    return 0;
  }
  close(ends[1]);
  pin_to_nth_cpu(0);
  uint16_t port = 0;
  if (read(ends[0], &port, sizeof port) != sizeof port) die("the server did not start");
  run_client(&options, port);
  int status = 0;
  waitpid(server, &status, 0);
  return status == 0 ? 0 : 1;
}
