/* Persistent sends: a process offers a piece of its memory once, and others read it as often as
 * they like, while it does something else. Over RDMA only.
 *
 * Build:  gcc exs_sampler.c -o exs_sampler -lexs
 * Try:    weft run -- ./exs_sampler serve 7502          in one terminal
 *         weft run -- ./exs_sampler 127.0.0.1 7502 10   in another: ten samples
 *
 * The server counts, and tells nobody. Each exs_recv of a client fetches the counters as they are
 * at that moment, by one RDMA Read, and no message goes back. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs.h>
#include <time.h>

/* `before` and `after` differ while the server is changing the rest: such a sample is taken again.
 * Both ends are machines of one byte order. */
struct counters {
  _Atomic unsigned long long before;
  unsigned long long rounds;
  double seconds;
  _Atomic unsigned long long after;
};

static void give_up(const char* what) {
  perror(what);
  exit(1);
}

static int packet_socket(struct addrinfo** address, const char* host, const char* port) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  if (host == NULL) hints.ai_flags = AI_PASSIVE;
  const int error = getaddrinfo(host, port, &hints, address);
  if (error != 0) {
    fprintf(stderr, "port %s: %s\n", port, gai_strerror(error));
    exit(1);
  }
  const int fd = exs_socket((*address)->ai_family, SOCK_SEQPACKET, 0);
  if (fd < 0) give_up("exs_socket");
  if (exs_fcntl(fd, EXS_F_SETPROVIDER, EXS_PROVIDER_RDMA) != 0) give_up("exs_fcntl");
  return fd;
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void count(struct counters* counters, double start) {
  const unsigned long long number = counters->rounds + 1;
  atomic_store(&counters->before, number);
  counters->rounds = number;
  counters->seconds = seconds_now() - start;
  atomic_store(&counters->after, number);
}

static void print_port(int fd) {
  struct sockaddr_in name;
  socklen_t length = sizeof name;
  if (exs_getsockname(fd, (struct sockaddr*)&name, &length) != 0) give_up("exs_getsockname");
  printf("listening on port %d\n", ntohs(name.sin_port));
  fflush(stdout);
}

static void serve(const char* port) {
  static struct counters counters;
  struct addrinfo* at;
  const int listener = packet_socket(&at, NULL, port);
  if (exs_bind(listener, at->ai_addr, at->ai_addrlen) != 0) give_up("exs_bind");
  if (exs_listen(listener, 8) != 0) give_up("exs_listen");
  print_port(listener);
  const exs_qhandle_t queue = exs_qcreate(16);
  const exs_mhandle_t region = exs_mregister(&counters, sizeof counters, 0);
  if (queue < 0 || region < 0) give_up("exs_mregister");
  if (exs_accept(listener, NULL, 0, 0, queue, 0) != 0) give_up("exs_accept");
  const double start = seconds_now();
  for (;;) {
    count(&counters, start);
    exs_event_t event;
    const struct timeval a_millisecond = {0, 1000};
    if (exs_qdequeue(queue, &event, 1, &a_millisecond) != 1) continue;
    if (exs_evt_type(&event) == EXS_EVT_ACCEPT && exs_evt_error(&event) == 0) {
      /* This one send serves every receive of the client, until the client goes. */
      exs_send(exs_evt_accepted(&event), &counters, sizeof counters, EXS_PERSISTENT, queue, 0,
               region);
      if (exs_accept(listener, NULL, 0, 0, queue, 0) != 0) give_up("exs_accept");
    } else if (exs_evt_type(&event) == EXS_EVT_SEND) {
      exs_close(exs_evt_fd(&event), queue, 0);
    }
  }
}

static void sample(const char* host, const char* port, int wanted) {
  static struct counters seen;
  struct addrinfo* to;
  const int fd = packet_socket(&to, host, port);
  const exs_mhandle_t region = exs_mregister(&seen, sizeof seen, 0);
  if (region == EXS_MHANDLE_INVALID) give_up("exs_mregister");
  if (exs_connect(fd, to->ai_addr, to->ai_addrlen, 0, EXS_QHANDLE_INVALID, 0) != 0)
    give_up("exs_connect");
  for (int i = 0; i < wanted;) {
    if (exs_recv(fd, &seen, sizeof seen, 0, EXS_QHANDLE_INVALID, 0, region) < 0)
      give_up("exs_recv");
    if (atomic_load(&seen.before) != atomic_load(&seen.after)) continue;
    printf("sample %d: %llu rounds in %.6f s\n", ++i, seen.rounds, seen.seconds);
  }
  exs_close(fd, EXS_QHANDLE_INVALID, 0);
}

int main(int argc, char** argv) {
  if (exs_init(EXS_VERSION) != 0) give_up("exs_init");
  if (argc == 3 && strcmp(argv[1], "serve") == 0) {
    serve(argv[2]);
  } else if (argc == 4 && atoi(argv[3]) > 0) {
    sample(argv[1], argv[2], atoi(argv[3]));
  } else {
    fprintf(stderr, "usage: exs_sampler serve PORT\n       exs_sampler HOST PORT COUNT\n");
    return 2;
  }
  return 0;
}
