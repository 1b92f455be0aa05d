/* Request-response and streams over ordinary TCP sockets, as netperf's TCP_RR and TCP_STREAM. It
 * knows nothing of RDMA: bench/sockets/compare.py runs it plain and under `weft run --sockets`.
 *
 *   socket_bench serve ADDRESS PORT                         until it is killed
 *   socket_bench rr ADDRESS PORT SIZE SECONDS sleep|poll    prints round trips per second
 *   socket_bench slow ADDRESS PORT SIZE SECONDS sleep       1 / median, a millisecond between them
 *   socket_bench stream ADDRESS PORT SIZE SECONDS sleep|poll   prints octets per second
 *
 * poll: both sides try again instead of sleeping (MSG_DONTWAIT). With SOCKET_BENCH_IWARP in the
 * environment the sockets are in IWARP mode (weft/sockets.h), or it ends. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <weft/sockets.h>

enum { kRequestResponse = 1, kStream = 2, kSizeMost = 1 << 20, kTripsMost = 100000 };

/* What the client says first. Both run on machines of one kind. */
struct hello {
  uint32_t kind, size, poll;
};

static char data[kSizeMost];

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int new_socket(void) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  if (getenv("SOCKET_BENCH_IWARP") != NULL &&
      setsockopt(fd, SOL_RDMA, WEFT_MODE, &on, sizeof on) != 0) {
    fail("WEFT_MODE");
  }
  return fd;
}

/* `size` octets; 0 at the end of the stream. */
static int receive_all(int fd, char* to, size_t size, int flags) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = recv(fd, to + done, size - done, flags);
    if (n == 0) return 0;
    if (n < 0 && errno != EAGAIN) return 0;
    if (n > 0) done += (size_t)n;
  }
  return 1;
}

static void send_all(int fd, const char* from, size_t size, int flags) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = send(fd, from + done, size - done, flags | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) fail("send");
    if (n > 0) done += (size_t)n;
  }
}

static void serve_one(int fd) {
  struct hello hello;
  const int one = 1;
  if (!receive_all(fd, (char*)&hello, sizeof hello, 0) || hello.size > kSizeMost) return;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const int flags = hello.poll ? MSG_DONTWAIT : 0;
  if (hello.kind == kRequestResponse) {
    while (receive_all(fd, data, hello.size, flags)) send_all(fd, data, hello.size, flags);
    return;
  }
  uint64_t got = 0;
  for (;;) {
    const ssize_t n = recv(fd, data, sizeof data, flags);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) break;
    got += (uint64_t)n;
  }
  send_all(fd, (const char*)&got, sizeof got, 0);
}

static _Noreturn void serve(const struct sockaddr_in* at) {
  const int listener = new_socket();
  const int one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (const struct sockaddr*)at, sizeof *at) != 0 || listen(listener, 8) != 0) {
    fail("listen");
  }
  for (;;) {
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0) fail("accept");
    serve_one(fd);
    close(fd);
  }
}

static int by_size(const void* a, const void* b) {
  const double first = *(const double*)a, second = *(const double*)b;
  return first < second ? -1 : first > second;
}

/* Both ends sleep between round trips. */
static void measure_slow(int fd, const struct hello* hello, double seconds) {
  const struct timespec pause = {0, 1000000};
  static double spent[kTripsMost];
  const double end = now() + seconds;
  size_t count = 0;
  for (; count < kTripsMost && (count == 0 || now() < end); ++count) {
    nanosleep(&pause, NULL);
    const double begin = now();
    send_all(fd, data, hello->size, 0);
    if (!receive_all(fd, data, hello->size, 0)) fail("recv");
    spent[count] = now() - begin;
  }
  qsort(spent, count, sizeof spent[0], by_size);
  printf("%.0f\n", 1 / spent[count / 2]);
}

static void measure(int fd, const struct hello* hello, double seconds) {
  const int flags = hello->poll ? MSG_DONTWAIT : 0;
  const double begin = now();
  const double end = begin + seconds;
  if (hello->kind == kRequestResponse) {
    uint64_t count = 0;
    while (count % 16 != 0 || now() < end) {
      send_all(fd, data, hello->size, flags);
      if (!receive_all(fd, data, hello->size, flags)) fail("recv");
      ++count;
    }
    printf("%.0f\n", (double)count / (now() - begin));
    return;
  }
  for (uint64_t count = 0; count % 16 != 0 || now() < end; ++count) {
    send_all(fd, data, hello->size, flags);
  }
  uint64_t got = 0;
  shutdown(fd, SHUT_WR);
  if (!receive_all(fd, (char*)&got, sizeof got, 0)) fail("recv");
  printf("%.0f\n", (double)got / (now() - begin));
}

int main(int argc, char** argv) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  if (argc < 4 || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1) {
    fprintf(stderr, "usage: see the first lines of bench/sockets/socket_bench.c\n");
    return 2;
  }
  at.sin_port = htons((uint16_t)atoi(argv[3]));
  if (strcmp(argv[1], "serve") == 0) serve(&at);
  if (argc != 7) return 2;
  const int slow = strcmp(argv[1], "slow") == 0;
  const struct hello hello = {slow || strcmp(argv[1], "rr") == 0 ? kRequestResponse : kStream,
                              (uint32_t)atoi(argv[4]), strcmp(argv[6], "poll") == 0};
  if (hello.size == 0 || hello.size > kSizeMost) return 2;
  const int fd = new_socket();
  const int one = 1;
  if (connect(fd, (const struct sockaddr*)&at, sizeof at) != 0) fail("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  send_all(fd, (const char*)&hello, sizeof hello, 0);
  (slow ? measure_slow : measure)(fd, &hello, atof(argv[5]));
  return 0;
}
