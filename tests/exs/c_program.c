/* A program in C, as somebody writes it who has the man pages: blocking calls, then events, one
 * socket connected with another of the same process. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/exs.h>

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static exs_event_t wait_for(exs_qhandle_t queue, int type) {
  exs_event_t event;
  struct timeval limit = {30, 0};
  check(exs_qdequeue(queue, &event, 1, &limit) == 1, "exs_qdequeue");
  errno = exs_evt_error(&event);
  check(errno == 0, exs_strevent(exs_evt_type(&event)));
  check(exs_evt_type(&event) == type, "the type of an event");
  return event;
}

static int listen_at(struct sockaddr_in* name) {
  int listener = exs_socket(AF_INET, SOCK_STREAM, 0);
  check(listener >= 0, "exs_socket");
  memset(name, 0, sizeof *name);
  name->sin_family = AF_INET;
  name->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check(exs_bind(listener, (struct sockaddr*)name, sizeof *name) == 0, "exs_bind");
  check(exs_listen(listener, 4) == 0, "exs_listen");
  socklen_t length = sizeof *name;
  check(exs_getsockname(listener, (struct sockaddr*)name, &length) == 0, "exs_getsockname");
  return listener;
}

int main(void) {
  check(exs_init(EXS_VERSION) == 0, "exs_init");
  exs_qhandle_t queue = exs_qcreate(16);
  check(queue != EXS_QHANDLE_INVALID, "exs_qcreate");

  struct sockaddr_in name;
  int listener = listen_at(&name);

  int client = exs_socket(AF_INET, SOCK_STREAM, 0);
  check(exs_connect(client, (struct sockaddr*)&name, sizeof name, 0, EXS_QHANDLE_INVALID, 0) == 0,
        "exs_connect");
  int server = exs_accept(listener, NULL, 0, 0, EXS_QHANDLE_INVALID, 0);
  check(server >= 0, "exs_accept");

  /* Blocking, with memory that is not registered. */
  char text[32] = "blocking";
  check(exs_send(client, text, sizeof text, 0, EXS_QHANDLE_INVALID, 0, EXS_MHANDLE_UNREGISTERED) ==
            (ssize_t)sizeof text,
        "exs_send");
  char copy[32];
  check(exs_recv(server, copy, sizeof copy, MSG_WAITALL, EXS_QHANDLE_INVALID, 0,
                 EXS_MHANDLE_UNREGISTERED) == (ssize_t)sizeof copy,
        "exs_recv");
  check(strcmp(copy, "blocking") == 0, "what was received");

  /* By events, with registered memory. */
  size_t size = 1 << 20;
  char* memory = malloc(2 * size);
  check(memory != NULL, "malloc");
  memset(memory, 'a', size);
  exs_mhandle_t region = exs_mregister(memory, 2 * size, 0);
  check(region != EXS_MHANDLE_INVALID, "exs_mregister");
  check(exs_recv(server, memory + size, size, MSG_WAITALL, queue, (exs_ahandle_t)-1, region) == 0,
        "exs_recv");
  exs_qhandle_t sends = exs_qcreate(4);
  check(exs_send(client, memory, size, 0, sends, 7, region) == 0, "exs_send");
  exs_event_t event = wait_for(queue, EXS_EVT_RECV);
  check(exs_evt_length(&event) == size && exs_evt_ahandle(&event) == (exs_ahandle_t)-1,
        "the event of a receive");
  check(memcmp(memory, memory + size, size) == 0, "what was received");
  event = wait_for(sends, EXS_EVT_SEND);
  check(exs_evt_ahandle(&event) == 7 && exs_evt_fd(&event) == client, "the event of a send");

  check(exs_close(client, queue, 0) == 0, "exs_close");
  wait_for(queue, EXS_EVT_CLOSE);
  check(exs_close(server, EXS_QHANDLE_INVALID, 0) == 0, "exs_close");
  check(exs_close(listener, EXS_QHANDLE_INVALID, 0) == 0, "exs_close");
  check(exs_mderegister(region) == 0, "exs_mderegister");
  check(exs_qdelete(queue) == 0 && exs_qdelete(sends) == 0, "exs_qdelete");
  free(memory);
  puts("done");
  return 0;
}
