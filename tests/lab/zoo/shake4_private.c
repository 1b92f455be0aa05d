// Shake 4: reads the private data of an event that it has acknowledged.
#include "zoo.h"

int main(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct rdma_cm_id *listener, *client;
  struct rdma_event_channel* channel = rdma_create_event_channel();
  must(channel != NULL, "rdma_create_event_channel");
  must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_bind_addr(listener, (struct sockaddr*)&at) == 0, "rdma_bind_addr");
  must(rdma_listen(listener, 1) == 0, "rdma_listen");
  at.sin_port = rdma_get_src_port(listener);
  must(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_resolve_addr(client, NULL, (struct sockaddr*)&at, 5000) == 0, "rdma_resolve_addr");
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  must(rdma_resolve_route(client, 5000) == 0, "rdma_resolve_route");
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  give_qp(client, 1);
  struct rdma_conn_param param = {.private_data = "0123456789abcdef0123456789abcdef0123456",
                                  .private_data_len = 40};
  must(rdma_connect(client, &param) == 0, "rdma_connect");
  struct rdma_cm_event* request = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  struct rdma_cm_id* server = request->id;
  const char* data = request->param.conn.private_data;
#ifdef MENDED
  char copy[40];
  memcpy(copy, data, sizeof copy);
  data = copy;
#endif
  rdma_ack_cm_event(request);
  const int same = memcmp(data + 24, "89abcdef0123456", 16) == 0;  // WRONG
  rdma_reject(server, NULL, 0);
  rdma_destroy_id(server);
  expect(channel, RDMA_CM_EVENT_REJECTED);
  rdma_destroy_qp(client);
  rdma_destroy_id(client);
  rdma_destroy_id(listener);
  rdma_destroy_event_channel(channel);
  if (!same) fprintf(stderr, "other private data\n");
  return !same;
}
