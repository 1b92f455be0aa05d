// See serve.h. weft-selftest-verbs [ADDRESS] PORT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

static struct rdma_event_channel* channel;
static struct guest guests[kMaxGuests];
static struct ibv_pd* foreign_pd;
static struct ground foreign;
static struct ibv_context* device;  // of the first connection; its asynchronous events are read
static uint32_t gone_damage;        // done to guests that have gone

static _Noreturn void die(const char* what) {
  fprintf(stderr, "weft-selftest-verbs: %s: %s\n", what, strerror(errno));
  exit(1);
}

static uint32_t damage(void) {
  return gone_damage + (foreign.mr != NULL && !ground_untouched(&foreign) ? 1 : 0);
}

static uint32_t connections(void) {
  uint32_t count = 0;
  for (int i = 0; i < kMaxGuests; i++) count += guests[i].id != NULL;
  return count;
}

static struct guest* free_guest(void) {
  for (int i = 0; i < kMaxGuests; i++) {
    if (guests[i].id == NULL) return &guests[i];
  }
  return NULL;
}

// What needs a device, which only a connection brings along.
static void use_device(struct ibv_context* context) {
  if (device != NULL) return;
  device = context;
  fcntl(device->async_fd, F_SETFL, fcntl(device->async_fd, F_GETFL) | O_NONBLOCK);
  foreign_pd = ibv_alloc_pd(device);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (foreign_pd == NULL || !ground_open(&foreign, foreign_pd, kSmallBytes, access, kRegionSeed)) {
    die("a region of another domain");
  }
}

static void end(struct guest* g) {
  struct rdma_cm_id* id = g->id;
  gone_damage += guest_damage(g);
  guest_close(g);
  rdma_destroy_id(id);
}

// True when the id has a guest now.
static bool on_request(struct rdma_cm_event* event) {
  const struct rdma_conn_param* asked = &event->param.conn;
  uint16_t size = 0;
  const int wish = decode_wish(asked->private_data, asked->private_data_len, &size);
  struct guest* g = free_guest();
  if (wish == 1 || g == NULL) {
    uint8_t answer[256];
    if (size > 250) size = 250;
    fill_pattern(answer, size, kSentSeed);
    rdma_reject(event->id, answer, (uint8_t)size);  // a peer that has gone does not hear it
    return false;
  }
  use_device(event->id->verbs);
  if (!guest_open(g, event->id, wish != 2)) {
    fprintf(stderr, "weft-selftest-verbs: a connection: %s\n", strerror(errno));
    guest_close(g);
    rdma_reject(event->id, NULL, 0);
    return false;
  }
  uint8_t offer[kOfferBytes];
  encode_offer(offer, g, &foreign, asked->private_data, asked->private_data_len);
  struct rdma_conn_param param = {
      .private_data = offer,
      .private_data_len = kOfferBytes,
      .responder_resources = 16,
      .initiator_depth = 16,
  };
  event->id->context = g;
  if (rdma_accept(event->id, &param) == 0) return true;
  guest_close(g);
  return false;
}

static void on_event(struct rdma_cm_event* event) {
  struct rdma_cm_id* id = event->id;
  const enum rdma_cm_event_type type = event->event;
  const bool refused = type == RDMA_CM_EVENT_CONNECT_REQUEST && !on_request(event);
  rdma_ack_cm_event(event);  // an id with events that are not acknowledged cannot be destroyed
  if (refused) rdma_destroy_id(id);
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED) return;
  struct guest* g = id->context;
  if (g == NULL || g->id != id) return;
  rdma_disconnect(id);
  end(g);
}

static void look(void) {
  struct pollfd fds[2] = {{.fd = channel->fd, .events = POLLIN},
                          {.fd = device ? device->async_fd : -1, .events = POLLIN}};
  if (poll(fds, 2, 1) <= 0) return;
  struct rdma_cm_event* event;
  if ((fds[0].revents & POLLIN) && rdma_get_cm_event(channel, &event) == 0) on_event(event);
  struct ibv_async_event async;
  if ((fds[1].revents & POLLIN) && ibv_get_async_event(device, &async) == 0) {
    ibv_ack_async_event(&async);
  }
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3 || argv[1][0] == '-') {
    fputs("usage: weft-selftest-verbs [ADDRESS] PORT\n", stderr);
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);  // Linux siw raises it at work that meets a closed connection
  struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP};
  struct rdma_addrinfo* info;
  const char* address = argc == 3 ? argv[1] : NULL;
  if (rdma_getaddrinfo(address, argv[argc - 1], &hints, &info)) die(argv[argc - 1]);
  channel = rdma_create_event_channel();
  struct rdma_cm_id* listener;
  if (channel == NULL || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP)) die("rdma_cm");
  if (rdma_bind_addr(listener, info->ai_src_addr)) die(argv[argc - 1]);
  if (rdma_listen(listener, 64)) die("rdma_listen");
  printf("weft-selftest-verbs: serving on port %s\n", argv[argc - 1]);
  fflush(stdout);
  for (;;) {
    look();
    for (int i = 0; i < kMaxGuests; i++) {
      struct guest* g = &guests[i];
      if (g->id != NULL && !guest_poll(g, damage(), connections())) rdma_disconnect(g->id);
    }
  }
}
