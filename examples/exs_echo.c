/* An echo server for any number of clients with one event queue, and a client of blocking calls.
 * Over RDMA if a device reaches the peer, else over TCP.
 *
 * Build:  gcc exs_echo.c -o exs_echo -lexs
 * Try:    weft run -- ./exs_echo serve 7501                   in one terminal
 *         weft run -- ./exs_echo 127.0.0.1 7501 "some words"  in another
 *
 * The server never waits for one client: every operation is posted with the queue, and its event
 * names the client by the handle that the operation was posted with. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs.h>

enum { BUFFER_BYTES = 64 * 1024, EVENTS_AT_ONCE = 32 };

struct client {
  int fd;
  exs_mhandle_t region;
  char buffer[BUFFER_BYTES];
};

static void give_up(const char* what) {
  perror(what);
  exit(1);
}

static struct addrinfo* resolve(const char* host, const char* port) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  struct addrinfo* found;
  if (host == NULL) hints.ai_flags = AI_PASSIVE;
  const int error = getaddrinfo(host, port, &hints, &found);
  if (error != 0) {
    fprintf(stderr, "%s:%s: %s\n", host ? host : "*", port, gai_strerror(error));
    exit(1);
  }
  return found;
}

static int listen_at(const char* port) {
  struct addrinfo* at = resolve(NULL, port);
  const int fd = exs_socket(at->ai_family, SOCK_STREAM, 0);
  if (fd < 0) give_up("exs_socket");
  if (exs_bind(fd, at->ai_addr, at->ai_addrlen) != 0) give_up("exs_bind");
  if (exs_listen(fd, 64) != 0) give_up("exs_listen");
  freeaddrinfo(at);
  struct sockaddr_in name;
  socklen_t length = sizeof name;
  if (exs_getsockname(fd, (struct sockaddr*)&name, &length) != 0) give_up("exs_getsockname");
  printf("listening on port %d\n", ntohs(name.sin_port));
  fflush(stdout);
  return fd;
}

static void forget(struct client* client) {
  exs_mderegister(client->region);
  free(client);
}

/* Something is wrong with the connection: it ends at once, and the client sees a reset. */
static void drop(struct client* client) {
  /* Without a queue of its own the call would wait for the peer; nobody needs this event. */
  const struct linger at_once = {1, 0};
  exs_setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  exs_close(client->fd, EXS_QHANDLE_INVALID, 0);
  forget(client);
}

/* The client has sent all it had. Its own close waits for this one, so it ends in order. */
static void finish(struct client* client, exs_qhandle_t queue) {
  if (exs_close(client->fd, queue, (exs_ahandle_t)client) != 0) drop(client);
}

static int receive(struct client* client, exs_qhandle_t queue) {
  return exs_recv(client->fd, client->buffer, BUFFER_BYTES, 0, queue, (exs_ahandle_t)client,
                  client->region) == 0;
}

static void add_client(int fd, exs_qhandle_t queue) {
  struct client* client = malloc(sizeof *client);
  if (client == NULL) give_up("malloc");
  client->fd = fd;
  client->region = exs_mregister(client->buffer, BUFFER_BYTES, 0);
  if (client->region == EXS_MHANDLE_INVALID) give_up("exs_mregister");
  if (!receive(client, queue)) drop(client);
}

/* A client has one operation outstanding at a time, so that it may be dropped at any event. */
static void handle(const exs_event_t* event, int listener, exs_qhandle_t queue) {
  struct client* client = (struct client*)exs_evt_ahandle(event);
  switch (exs_evt_type(event)) {
    case EXS_EVT_ACCEPT:
      if (exs_evt_error(event) == 0) add_client(exs_evt_accepted(event), queue);
      if (exs_accept(listener, NULL, 0, 0, queue, 0) != 0) give_up("exs_accept");
      return;
    case EXS_EVT_RECV:
      if (exs_evt_error(event) == 0 && exs_evt_length(event) == 0) {
        finish(client, queue);
      } else if (exs_evt_error(event) != 0 ||
                 exs_send(client->fd, client->buffer, exs_evt_length(event), 0, queue,
                          (exs_ahandle_t)client, client->region) != 0) {
        drop(client);
      }
      return;
    case EXS_EVT_SEND:
      if (exs_evt_error(event) != 0 || !receive(client, queue)) drop(client);
      return;
    case EXS_EVT_CLOSE: forget(client); return;
    default: return;
  }
}

static void serve(const char* port) {
  const exs_qhandle_t queue = exs_qcreate(256);
  if (queue == EXS_QHANDLE_INVALID) give_up("exs_qcreate");
  const int listener = listen_at(port);
  if (exs_accept(listener, NULL, 0, 0, queue, 0) != 0) give_up("exs_accept");
  for (;;) {
    exs_event_t events[EVENTS_AT_ONCE];
    const int count = exs_qdequeue(queue, events, EVENTS_AT_ONCE, NULL);
    if (count < 0) give_up("exs_qdequeue");
    for (int i = 0; i < count; ++i) handle(&events[i], listener, queue);
  }
}

static void ask(const char* host, const char* port, const char* text) {
  const size_t length = strlen(text);
  char* answer = malloc(length);
  struct addrinfo* to = resolve(host, port);
  const int fd = exs_socket(to->ai_family, SOCK_STREAM, 0);
  if (fd < 0 || answer == NULL) give_up("exs_socket");
  if (exs_connect(fd, to->ai_addr, to->ai_addrlen, 0, EXS_QHANDLE_INVALID, 0) != 0)
    give_up("exs_connect");
  freeaddrinfo(to);
  if (exs_send(fd, text, length, 0, EXS_QHANDLE_INVALID, 0, EXS_MHANDLE_UNREGISTERED) < 0)
    give_up("exs_send");
  const ssize_t got =
      exs_recv(fd, answer, length, MSG_WAITALL, EXS_QHANDLE_INVALID, 0, EXS_MHANDLE_UNREGISTERED);
  if (got < 0) give_up("exs_recv");
  const int rdma = exs_fcntl(fd, EXS_F_GETPROVIDER, 0) == EXS_PROVIDER_RDMA;
  printf("%.*s (over %s)\n", (int)got, answer, rdma ? "RDMA" : "TCP");
  if (exs_close(fd, EXS_QHANDLE_INVALID, 0) != 0) give_up("exs_close");
  free(answer);
}

int main(int argc, char** argv) {
  if (exs_init(EXS_VERSION) != 0) give_up("exs_init");
  if (argc == 3 && strcmp(argv[1], "serve") == 0) {
    serve(argv[2]);
  } else if (argc == 4) {
    ask(argv[1], argv[2], argv[3]);
  } else {
    fprintf(stderr, "usage: exs_echo serve PORT\n       exs_echo HOST PORT TEXT\n");
    return 2;
  }
  return 0;
}
