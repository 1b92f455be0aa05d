/* An ordinary socket program that uses registered memory where it can. The server offers a buffer,
 * the client writes a file's worth of octets into it, past the server's reads, and says when they
 * are there. Without Weft, or with a peer that has none, the same octets go through the stream.
 *
 * Build:  gcc iwarp_mode.c -o iwarp_mode -lrdmacm
 * Try:    weft run --sockets -- ./iwarp_mode serve 7503                  in one terminal
 *         weft run --sockets -- ./iwarp_mode 127.0.0.1 7503 "some words"  in another
 *         and both without "weft run --sockets --"
 *
 * What is new in it: enable(), and offer() and put() where is_direct() says so. */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sockets.h>

enum { ROOM = 1 << 20, OFFSET = 0 };

static void give_up(const char* what) {
  perror(what);
  exit(1);
}

static int enable(int fd) {
  const int on = 1;
  return setsockopt(fd, SOL_RDMA, WEFT_MODE, &on, sizeof on) == 0;
}

static int is_direct(int fd) {
  int on = 0;
  socklen_t length = sizeof on;
  return getsockopt(fd, SOL_RDMA, WEFT_MODE, &on, &length) == 0 && on != 0;
}

static struct sockaddr_in address_of(const char* host, const char* port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
  if (inet_pton(AF_INET, host, &at.sin_addr) != 1) {
    fprintf(stderr, "%s: not an IPv4 address\n", host);
    exit(1);
  }
  return at;
}

/* 1 if all came. */
static int read_all(int fd, void* out, size_t length) {
  for (size_t done = 0; done < length;) {
    struct pollfd one = {fd, POLLIN, 0};
    if (poll(&one, 1, -1) < 0) give_up("poll");
    const ssize_t n = read(fd, (char*)out + done, length - done);
    if (n <= 0) return 0;
    done += (size_t)n;
  }
  return 1;
}

/* The stream says "ready", then how many octets there are; the octets are in `room` already, or
 * follow. */
static void serve_one(int fd, char* room) {
  const int direct = is_direct(fd);
  unsigned length = 0;
  if (direct && riomap(fd, room, ROOM, PROT_WRITE, 0, OFFSET) == (off_t)-1) give_up("riomap");
  if (send(fd, "r", 1, MSG_NOSIGNAL) != 1 || !read_all(fd, &length, sizeof length)) return;
  if (length > ROOM || (!direct && !read_all(fd, room, length))) return;
  printf("%.*s (%s)\n", (int)(length < 40 ? length : 40), room, direct ? "written by RDMA" : "TCP");
  fflush(stdout);
  send(fd, &length, sizeof length, MSG_NOSIGNAL);
}

static void serve(const char* port) {
  static char room[ROOM];
  const int one = 1;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = address_of("0.0.0.0", port);
  socklen_t length = sizeof at;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  enable(listener);
  if (bind(listener, (struct sockaddr*)&at, sizeof at) != 0) give_up("bind");
  if (listen(listener, 8) != 0) give_up("listen");
  if (getsockname(listener, (struct sockaddr*)&at, &length) != 0) give_up("getsockname");
  printf("listening on port %d\n", ntohs(at.sin_port));
  fflush(stdout);
  for (;;) {
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0) give_up("accept");
    serve_one(fd, room);
    close(fd);
  }
}

static int connect_to(struct sockaddr_in* at, int direct) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  direct = direct && enable(fd);
  if (connect(fd, (struct sockaddr*)at, sizeof *at) == 0) return fd;
  if (!direct) give_up("connect");
  close(fd); /* the server has no RDMA: once more, by TCP */
  return connect_to(at, 0);
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "serve") == 0) serve(argv[2]);
  if (argc != 4) {
    fprintf(stderr, "usage: %s serve PORT | HOST PORT WORDS\n", argv[0]);
    return 2;
  }
  struct sockaddr_in at = address_of(argv[1], argv[2]);
  const int fd = connect_to(&at, 1);
  const unsigned length = (unsigned)strlen(argv[3]);
  unsigned seen = 0;
  char ready = 0;
  if (!read_all(fd, &ready, 1)) give_up("no answer");
  /* The offer came before the "r"; what is written comes before the length. */
  if (is_direct(fd) && riowrite(fd, argv[3], length, OFFSET, 0) != length) give_up("riowrite");
  if (write(fd, &length, sizeof length) != sizeof length) give_up("write");
  if (!is_direct(fd) && write(fd, argv[3], length) != (ssize_t)length) give_up("write");
  if (!read_all(fd, &seen, sizeof seen)) give_up("no answer");
  printf("%u octets %s\n", seen, is_direct(fd) ? "by RDMA" : "by TCP");
  close(fd);
  return seen == length ? 0 : 1;
}
