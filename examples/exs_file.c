/* Sends a file. Its length and its bytes are one operation of the sender; the receiver has several
 * receives outstanding, and over RDMA the bytes go straight to the memory that they name.
 *
 * Build:  gcc exs_file.c -o exs_file -lexs
 * Try:    weft run -- ./exs_file receive 7503 copy                    in one terminal
 *         weft run -- ./exs_file send /etc/services 127.0.0.1 7503    in another */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20, OUTSTANDING = 4 };

static void give_up(const char* what) {
  perror(what);
  exit(1);
}

static int stream_socket(struct addrinfo** address, const char* host, const char* port) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  if (host == NULL) hints.ai_flags = AI_PASSIVE;
  const int error = getaddrinfo(host, port, &hints, address);
  if (error != 0) {
    fprintf(stderr, "port %s: %s\n", port, gai_strerror(error));
    exit(1);
  }
  const int fd = exs_socket((*address)->ai_family, SOCK_STREAM, 0);
  if (fd < 0) give_up("exs_socket");
  return fd;
}

static void send_file(const char* path, const char* host, const char* port) {
  const int file = open(path, O_RDONLY);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) give_up(path);
  struct addrinfo* to;
  const int fd = stream_socket(&to, host, port);
  if (exs_connect(fd, to->ai_addr, to->ai_addrlen, 0, EXS_QHANDLE_INVALID, 0) != 0)
    give_up("exs_connect");
  uint64_t length = htobe64((uint64_t)status.st_size);
  exs_xferfile_t parts[2] = {{.tag = EXS_IOVEC}, {.tag = EXS_FDVEC}};
  parts[0].u.iovec = (exs_iovec_t){&length, sizeof length, EXS_MHANDLE_UNREGISTERED};
  parts[1].u.fdvec = (exs_fdvec_t){file, 0, (size_t)status.st_size};
  if (exs_sendfile(fd, parts, 2, 0, EXS_QHANDLE_INVALID, 0) < 0) give_up("exs_sendfile");
  /* Returns when the peer has everything. */
  if (exs_close(fd, EXS_QHANDLE_INVALID, 0) != 0) give_up("exs_close");
  printf("sent %lld bytes\n", (long long)status.st_size);
}

static int accept_one(const char* port) {
  struct addrinfo* at;
  const int listener = stream_socket(&at, NULL, port);
  struct sockaddr_in name;
  socklen_t length = sizeof name;
  if (exs_bind(listener, at->ai_addr, at->ai_addrlen) != 0) give_up("exs_bind");
  if (exs_listen(listener, 1) != 0) give_up("exs_listen");
  if (exs_getsockname(listener, (struct sockaddr*)&name, &length) != 0) give_up("exs_getsockname");
  printf("listening on port %d\n", ntohs(name.sin_port));
  fflush(stdout);
  const int fd = exs_accept(listener, NULL, 0, 0, EXS_QHANDLE_INVALID, 0);
  if (fd < 0) give_up("exs_accept");
  exs_close(listener, EXS_QHANDLE_INVALID, 0);
  return fd;
}

static void write_all(int file, const char* from, size_t length) {
  while (length > 0) {
    const ssize_t done = write(file, from, length);
    if (done < 0) give_up("write");
    from += done;
    length -= (size_t)done;
  }
}

/* Receives end in the order in which they were posted, so the chunks are written in order. */
static void receive_chunks(int fd, int file, uint64_t left) {
  char* memory = malloc((size_t)CHUNK_BYTES * OUTSTANDING);
  if (memory == NULL) give_up("malloc");
  const exs_mhandle_t region = exs_mregister(memory, (size_t)CHUNK_BYTES * OUTSTANDING, 0);
  const exs_qhandle_t queue = exs_qcreate(OUTSTANDING);
  if (region < 0 || queue < 0) give_up("exs_mregister");
  uint64_t unasked = left;
  uint64_t posted = 0;
  uint64_t chunk = 0;
  while (left > 0) {
    while (unasked > 0 && posted - chunk < OUTSTANDING) {
      const size_t length = unasked < CHUNK_BYTES ? (size_t)unasked : CHUNK_BYTES;
      if (exs_recv(fd, memory + posted % OUTSTANDING * CHUNK_BYTES, length, MSG_WAITALL, queue, 0,
                   region) != 0)
        give_up("exs_recv");
      unasked -= length;
      ++posted;
    }
    exs_event_t event;
    if (exs_qdequeue(queue, &event, 1, NULL) != 1) continue;
    errno = exs_evt_error(&event);
    if (errno != 0) give_up("receive");
    if (exs_evt_length(&event) == 0) {
      fprintf(stderr, "the sender has gone: %llu bytes are missing\n", (unsigned long long)left);
      exit(1);
    }
    write_all(file, memory + chunk++ % OUTSTANDING * CHUNK_BYTES, exs_evt_length(&event));
    left -= exs_evt_length(&event);
  }
}

static void receive_file(const char* port, const char* path) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) give_up(path);
  const int fd = accept_one(port);
  uint64_t length;
  if (exs_recv(fd, &length, sizeof length, MSG_WAITALL, EXS_QHANDLE_INVALID, 0,
               EXS_MHANDLE_UNREGISTERED) != (ssize_t)sizeof length)
    give_up("the length of the file");
  length = be64toh(length);
  receive_chunks(fd, file, length);
  if (close(file) != 0) give_up(path);
  exs_close(fd, EXS_QHANDLE_INVALID, 0);
  printf("received %llu bytes\n", (unsigned long long)length);
}

int main(int argc, char** argv) {
  if (exs_init(EXS_VERSION) != 0) give_up("exs_init");
  if (argc == 4 && strcmp(argv[1], "receive") == 0) {
    receive_file(argv[2], argv[3]);
  } else if (argc == 5 && strcmp(argv[1], "send") == 0) {
    send_file(argv[2], argv[3], argv[4]);
  } else {
    fprintf(stderr, "usage: exs_file receive PORT FILE\n       exs_file send FILE HOST PORT\n");
    return 2;
  }
  return 0;
}
