/* One end of a connection that echoes: by io_uring, or by read and write.
 *
 *   socket_uring serve HOST PORT uring|plain     accepts one connection and sends back what comes
 *   socket_uring call HOST PORT uring|plain      sends pieces of many sizes, compares the echo */
#include <arpa/inet.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUNDS = 2000, MOST = 20000 };

static struct io_uring ring;
static int by_uring;

static void give_up(const char* what) {
  perror(what);
  exit(1);
}

static int wait_for(void) {
  struct io_uring_cqe* done = NULL;
  if (io_uring_submit(&ring) < 0 || io_uring_wait_cqe(&ring, &done) != 0) give_up("io_uring");
  const int result = done->res;
  io_uring_cqe_seen(&ring, done);
  return result;
}

static int take(int fd, char* to, size_t room) {
  if (!by_uring) return (int)read(fd, to, room);
  io_uring_prep_recv(io_uring_get_sqe(&ring), fd, to, room, 0);
  return wait_for();
}

static void put(int fd, const char* from, size_t length) {
  while (length > 0) {
    int n = 0;
    if (by_uring) {
      io_uring_prep_send(io_uring_get_sqe(&ring), fd, from, length, MSG_NOSIGNAL);
      n = wait_for();
    } else {
      n = (int)write(fd, from, length);
    }
    if (n <= 0) give_up("put");
    from += n;
    length -= (size_t)n;
  }
}

static void serve(int listener) {
  char data[MOST];
  int fd = -1;
  if (by_uring) {
    io_uring_prep_accept(io_uring_get_sqe(&ring), listener, NULL, NULL, 0);
    fd = wait_for();
  } else {
    fd = accept(listener, NULL, NULL);
  }
  if (fd < 0) give_up("accept");
  for (int n = 0; (n = take(fd, data, sizeof data)) > 0;) put(fd, data, (size_t)n);
}

static void call(int fd) {
  static char sent[MOST];
  static char got[MOST];
  for (unsigned round = 0; round < ROUNDS; ++round) {
    const size_t length = 1 + round * 7919U % (round % 8 == 0 ? MOST : 200);
    for (size_t i = 0; i < length; ++i) sent[i] = (char)(i * 31 + round);
    put(fd, sent, length);
    for (size_t done = 0; done < length;) {
      const int n = take(fd, got + done, length - done);
      if (n <= 0) give_up("take");
      done += (size_t)n;
    }
    if (memcmp(sent, got, length) != 0) {
      printf("round %u differs\n", round);
      exit(1);
    }
  }
  printf("all equal\n");
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s serve|call HOST PORT uring|plain\n", argv[0]);
    return 2;
  }
  by_uring = strcmp(argv[4], "uring") == 0;
  if (by_uring && io_uring_queue_init(8, &ring, 0) != 0) {
    printf("no io_uring here\n");
    return 77;
  }
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[3]))};
  if (inet_pton(AF_INET, argv[2], &at.sin_addr) != 1) give_up(argv[2]);
  const int one = 1;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (strcmp(argv[1], "serve") == 0) {
    if (bind(fd, (struct sockaddr*)&at, sizeof at) != 0 || listen(fd, 4) != 0) give_up("listen");
    printf("listening\n");
    fflush(stdout);
    serve(fd);
  } else {
    if (connect(fd, (struct sockaddr*)&at, sizeof at) != 0) give_up("connect");
    call(fd);
  }
  return 0;
}
