#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct options opt = {
    .conns = 1,
    .recvs = 16,
    .recv_bytes = 4096,
    .region_bytes = 2 << 20,
    .access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
    .ird = 8,
    .ord = 8,
    .timeout_ms = 10000,
};
struct conn conns[kMaxConns];
int conns_used;
int faults;

static struct rdma_event_channel* channel;
static struct ibv_context* verbs;  // whose asynchronous events are watched
static int rejected;
static uint8_t private_data[256];

static const char kUsage[] =
    "probe server [--addr A] PORT [OPTION]...\n"
    "probe client ADDRESS PORT [OPTION]... [WORD]...\n"
    "  --pdata N  --reject  --srq  --echo  --close-after N  --conns N  --recvs N  --rsize N\n"
    "  --region N  --access rw|r|w|none  --ird N  --ord N  --timeout MS\n"
    "words: send sendse sendinl sendsge sendinv sendbadinv write writeinl writesge writebadstag\n"
    "  writeoob writewrap read readbadstag readoob :BYTES[@OFFSET], each may have batch:N, or "
    "loop:\n"
    "  before it and ! before that if it may fail; recv:N sleep:MS disconnect waitdisc destroy\n"
    "  abort hang\n"
    "exit status: 0 all well, 1 not, 2 usage, 3 not connected\n";

static void print_line(const char* format, va_list args) {
  vprintf(format, args);
  putchar('\n');
  fflush(stdout);
}

void say(const char* format, ...) {
  va_list args;
  va_start(args, format);
  print_line(format, args);
  va_end(args);
}

void fault(const char* format, ...) {
  faults++;
  fputs("FAULT ", stdout);
  va_list args;
  va_start(args, format);
  print_line(format, args);
  va_end(args);
}

void die(const char* what) {
  fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
  exit(2);
}

int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint8_t pattern(size_t i, uint8_t seed) { return (uint8_t)(7 * i + i / 256 + seed); }

void fill(uint8_t* to, size_t len_bytes, uint8_t seed) {
  for (size_t i = 0; i < len_bytes; i++) to[i] = pattern(i, seed);
}

bool holds(const uint8_t* at, size_t len_bytes, uint8_t seed) {
  for (size_t i = 0; i < len_bytes; i++) {
    if (at[i] != pattern(i, seed)) return false;
  }
  return true;
}

static struct rdma_conn_param conn_param(void) {
  return (struct rdma_conn_param){
      .private_data = opt.private_bytes ? private_data : NULL,
      .private_data_len = (uint8_t)opt.private_bytes,
      .responder_resources = opt.ird,
      .initiator_depth = opt.ord,
  };
}

static void watch(struct ibv_context* context) {
  if (verbs != NULL) return;
  verbs = context;
  fcntl(verbs->async_fd, F_SETFL, fcntl(verbs->async_fd, F_GETFL) | O_NONBLOCK);
}

static void say_param(const char* what, int number, const struct rdma_cm_event* e) {
  const struct rdma_conn_param* p = &e->param.conn;
  const bool right = holds(p->private_data, p->private_data_len, kSeedPrivate);
  say("%s conn=%d status=%d pdata=%d %s ird=%d ord=%d", what, number, e->status,
      p->private_data_len, right ? "ok" : "bad", p->responder_resources, p->initiator_depth);
}

static void request_arrived(struct rdma_cm_event* e) {
  say_param("request", conns_used, e);
  struct rdma_conn_param param = conn_param();
  if (opt.reject || conns_used == kMaxConns) {
    if (rdma_reject(e->id, param.private_data, param.private_data_len)) die("rdma_reject");
    rejected++;
    return;
  }
  watch(e->id->verbs);
  struct conn* c = conn_create(e->id);
  if (rdma_accept(e->id, &param)) {
    // The peer has gone meanwhile. No event follows for this id.
    say("accept conn=%d error=%d", c->number, errno);
    c->failed = true;
  }
}

static void route_resolved(struct rdma_cm_id* id) {
  watch(id->verbs);
  struct rdma_conn_param param = conn_param();
  struct conn* c = conn_create(id);
  if (rdma_connect(id, &param)) {
    say("connect conn=%d error=%d", c->number, errno);
    c->failed = true;
  }
}

static void handle(struct rdma_cm_event* e) {
  struct conn* c = e->id->context;
  const int number = c ? c->number : -1;
  switch (e->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(e->id, 2000)) die("rdma_resolve_route");
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: route_resolved(e->id); break;
    case RDMA_CM_EVENT_CONNECT_REQUEST: request_arrived(e); break;
    case RDMA_CM_EVENT_ESTABLISHED:
      say_param("established", number, e);
      c->connected = true;
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      say("disconnected conn=%d", number);
      c->disconnected = true;
      break;
    case RDMA_CM_EVENT_REJECTED:
      say_param("rejected", number, e);
      c->failed = true;
      break;
    default:
      say("event conn=%d %s status=%d", number, rdma_event_str(e->event), e->status);
      if (e->event == RDMA_CM_EVENT_ADDR_ERROR) exit(3);
      if (c != NULL) c->failed = true;
  }
}

// One look at everything. Waits for at most a millisecond when nothing is to be done.
static void pump_once(void) {
  bool busy = false;
  for (int i = 0; i < conns_used; i++) busy |= conn_poll(&conns[i]);
  struct pollfd fds[2] = {{.fd = channel->fd, .events = POLLIN},
                          {.fd = verbs ? verbs->async_fd : -1, .events = POLLIN}};
  if (poll(fds, 2, busy ? 0 : 1) <= 0) return;
  if (fds[0].revents & POLLIN) {
    struct rdma_cm_event* event;
    if (rdma_get_cm_event(channel, &event)) die("rdma_get_cm_event");
    handle(event);
    rdma_ack_cm_event(event);
  }
  struct ibv_async_event async;
  if ((fds[1].revents & POLLIN) && ibv_get_async_event(verbs, &async) == 0) {
    say("async %s", ibv_event_type_str(async.event_type));
    ibv_ack_async_event(&async);
  }
}

bool pump_until(bool (*done)(const struct conn* c), const struct conn* c) {
  const int64_t deadline = now_ms() + opt.timeout_ms;
  while (!done(c)) {
    if (now_ms() > deadline) return false;
    pump_once();
  }
  return true;
}

void pump_for(int ms) {
  const int64_t deadline = now_ms() + ms;
  while (now_ms() < deadline) pump_once();
}

static struct rdma_cm_id* new_id(void) {
  struct rdma_cm_id* id;
  if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) die("rdma_create_id");
  return id;
}

static int ended_conns(void) {
  int ended = 0;
  for (int i = 0; i < conns_used; i++) {
    struct conn* c = &conns[i];
    if (!c->ended && opt.close_after && c->recvs >= opt.close_after && !c->disconnected) {
      opt.close_after = 0;
      rdma_disconnect(c->id);
    }
    if (!c->ended && (c->disconnected || c->failed)) {
      // siw keeps the queue pair of the side that did not ask for the end out of the error state
      // until it has answered.
      rdma_disconnect(c->id);
      conn_end(c);
    }
    ended += c->ended;
  }
  return ended;
}

static int serve(void) {
  struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP};
  struct rdma_addrinfo* info;
  if (rdma_getaddrinfo(opt.addr, opt.port, &hints, &info)) die("rdma_getaddrinfo");
  struct rdma_cm_id* listener = new_id();
  if (rdma_bind_addr(listener, info->ai_src_addr)) die("rdma_bind_addr");
  if (rdma_listen(listener, 64)) die("rdma_listen");
  say("listening");
  while (ended_conns() + rejected < opt.conns) pump_once();
  pump_for(rejected ? 200 : 0);  // siw sends a reject behind the application's back
  rdma_destroy_id(listener);
  rdma_freeaddrinfo(info);
  return faults != 0;
}

static bool connect_ended(const struct conn* unused) {
  (void)unused;
  int settled = 0;
  for (int i = 0; i < conns_used; i++) settled += conns[i].connected || conns[i].failed;
  return settled == opt.conns;
}

static bool is_disconnected(const struct conn* c) { return c->disconnected; }

static void open_all(void) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP};
  struct rdma_addrinfo* info;
  if (rdma_getaddrinfo(opt.addr, opt.port, &hints, &info)) die("rdma_getaddrinfo");
  for (int i = 0; i < opt.conns; i++) {
    if (rdma_resolve_addr(new_id(), NULL, info->ai_dst_addr, 2000)) die("rdma_resolve_addr");
  }
  rdma_freeaddrinfo(info);
  if (!pump_until(connect_ended, NULL)) {
    say("connect timeout");
    exit(3);
  }
}

static int drive(char** words, int count) {
  open_all();
  bool failed = false;
  for (int i = 0; i < conns_used; i++) failed |= conns[i].failed;
  if (failed) return 3;
  for (int w = 0; w < count; w++) {
    for (int i = 0; i < conns_used; i++) do_word(&conns[i], words[w]);
  }
  for (int i = 0; i < conns_used; i++) {
    struct conn* c = &conns[i];
    if (!c->qp_gone && rdma_disconnect(c->id) && !c->disconnected) {
      say("disconnect conn=%d error=%d", i, errno);
    }
    if (!c->qp_gone && !pump_until(is_disconnected, c)) fault("conn=%d no DISCONNECTED event", i);
    conn_end(c);
  }
  return faults != 0;
}

static int access_named(const char* text) {
  int access = 0;
  if (strchr(text, 'r')) access |= IBV_ACCESS_REMOTE_READ;
  if (!strcmp(text, "none")) return 0;
  return strchr(text, 'w') ? access | IBV_ACCESS_REMOTE_WRITE : access;
}

// Takes one option; returns how many arguments it was, 0 if it is none.
static int take_option(const char* name, const char* value) {
  if (!strcmp(name, "--reject")) return opt.reject = true, 1;
  if (!strcmp(name, "--srq")) return opt.srq = true, 1;
  if (!strcmp(name, "--echo")) return opt.echo = true, 1;
  if (value == NULL) return 0;
  const int number = atoi(value);
  if (!strcmp(name, "--addr")) return opt.addr = value, 2;
  if (!strcmp(name, "--access")) return opt.access = access_named(value), 2;
  if (number < 0) return 0;
  if (!strcmp(name, "--pdata") && number <= 255) return opt.private_bytes = (uint32_t)number, 2;
  if (!strcmp(name, "--close-after")) return opt.close_after = number, 2;
  if (!strcmp(name, "--conns") && number <= kMaxConns) return opt.conns = number, 2;
  if (!strcmp(name, "--recvs") && number <= kMaxRecvs) return opt.recvs = number, 2;
  if (!strcmp(name, "--rsize")) return opt.recv_bytes = (uint32_t)number, 2;
  if (!strcmp(name, "--region")) return opt.region_bytes = (uint32_t)number, 2;
  if (!strcmp(name, "--ird") && number < 256) return opt.ird = (uint8_t)number, 2;
  if (!strcmp(name, "--ord") && number < 256) return opt.ord = (uint8_t)number, 2;
  if (!strcmp(name, "--timeout")) return opt.timeout_ms = number, 2;
  return 0;
}

static _Noreturn void usage(void) {
  fputs(kUsage, stderr);
  exit(2);
}

int main(int argc, char** argv) {
  if (argc < 3) usage();
  signal(SIGPIPE, SIG_IGN);  // siw raises it at work that meets a closed connection
  const bool server = !strcmp(argv[1], "server");
  if (!server && strcmp(argv[1], "client") != 0) usage();
  fill(private_data, sizeof private_data, kSeedPrivate);
  char** words = calloc((size_t)argc, sizeof *words);
  if (words == NULL) die("memory");
  int count = 0;
  for (int i = 2; i < argc;) {
    const int taken = argv[i][0] == '-' ? take_option(argv[i], argv[i + 1]) : 0;
    if (argv[i][0] == '-' && taken == 0) usage();
    if (taken == 0) words[count++] = argv[i];
    i += taken ? taken : 1;
  }
  if (count < (server ? 1 : 2)) usage();
  if (!server) opt.addr = words[0];
  opt.port = words[server ? 0 : 1];
  channel = rdma_create_event_channel();
  if (channel == NULL) die("rdma_create_event_channel");
  return server ? serve() : drive(words + 2, count - 2);
}
