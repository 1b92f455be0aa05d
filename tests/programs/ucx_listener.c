/* A server and a client of UCX as its users write them: a listener on an address, endpoints made
 * with that, then tagged messages, active messages, streams, and remote memory. Nothing of Weft; no
 * setting of UCX.
 *
 *   ucx_listener server ADDRESS PORT     PORT 0: the system's choice. Prints "port N"
 *   ucx_listener client ADDRESS PORT     prints the lanes of its endpoint
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

enum { kLimitSeconds = 60, kAmId = 7, kSmall = 64, kLarge = 1 << 20 };

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h endpoint;
static ucp_listener_h listener;
static ucp_conn_request_h request;
static unsigned am_bytes;
static int am_whole;
static char am_data[kLarge];
static ucs_status_t broken = UCS_OK;

static void fail(const char* what, ucs_status_t status) {
  fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
  exit(1);
}
static void need(const char* what, ucs_status_t status) {
  if (status != UCS_OK) fail(what, status);
}

/* Progress until `*flag` is set. */
static void until(const char* what, volatile const int* flag) {
  time_t end = time(NULL) + kLimitSeconds;
  while (!*flag) {
    ucp_worker_progress(worker);
    if (broken != UCS_OK) fail(what, broken);
    if (time(NULL) > end) fail(what, UCS_ERR_TIMED_OUT);
  }
}

static void wait_for(const char* what, void* handle) {
  if (handle == NULL) return;
  if (UCS_PTR_IS_ERR(handle)) fail(what, UCS_PTR_STATUS(handle));
  time_t end = time(NULL) + kLimitSeconds;
  ucs_status_t status;
  while ((status = ucp_request_check_status(handle)) == UCS_INPROGRESS) {
    ucp_worker_progress(worker);
    if (time(NULL) > end) fail(what, UCS_ERR_TIMED_OUT);
  }
  need(what, status);
  ucp_request_free(handle);
}

static void on_connection(ucp_conn_request_h asked, void* unused) {
  (void)unused;
  request = asked;
}

static void on_error(void* unused, ucp_ep_h ep, ucs_status_t status) {
  (void)unused;
  (void)ep;
  broken = status;
}

static void am_done(void* handle, ucs_status_t status, size_t length, void* unused) {
  (void)length;
  (void)unused;
  need("active message", status);
  am_whole = 1;
  ucp_request_free(handle);
}

static ucs_status_t on_am(void* unused, const void* header, size_t header_length, void* data,
                          size_t length, const ucp_am_recv_param_t* param) {
  (void)unused;
  (void)header;
  (void)header_length;
  am_bytes = (unsigned)length;
  if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv_am = am_done};
    void* handle = ucp_am_recv_data_nbx(worker, data, am_data, length, &how);
    if (handle == NULL) am_whole = 1;
    if (UCS_PTR_IS_ERR(handle)) fail("ucp_am_recv_data_nbx", UCS_PTR_STATUS(handle));
    return UCS_INPROGRESS;
  }
  memcpy(am_data, data, length);
  am_whole = 1;
  return UCS_OK;
}

static void start(void) {
  ucp_params_t params = {
      .field_mask = UCP_PARAM_FIELD_FEATURES,
      .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM | UCP_FEATURE_RMA};
  ucp_worker_params_t how = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                             .thread_mode = UCS_THREAD_MODE_SINGLE};
  ucp_am_handler_param_t am = {
      .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
      .id = kAmId,
      .cb = on_am};
  need("ucp_init", ucp_init(&params, NULL, &context));
  need("ucp_worker_create", ucp_worker_create(context, &how, &worker));
  need("ucp_worker_set_am_recv_handler", ucp_worker_set_am_recv_handler(worker, &am));
}

static struct sockaddr_in address_of(const char* text, int port) {
  struct sockaddr_in out = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, text, &out.sin_addr) != 1) fail(text, UCS_ERR_INVALID_ADDR);
  return out;
}

static void become_server(struct sockaddr_in* address) {
  ucp_listener_params_t how = {
      .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
      .sockaddr = {(struct sockaddr*)address, sizeof *address},
      .conn_handler = {on_connection, NULL}};
  need("ucp_listener_create", ucp_listener_create(worker, &how, &listener));
  ucp_listener_attr_t made = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
  need("ucp_listener_query", ucp_listener_query(listener, &made));
  printf("port %d\n", ntohs(((struct sockaddr_in*)&made.sockaddr)->sin_port));
  fflush(stdout);
  time_t end = time(NULL) + kLimitSeconds;
  while (request == NULL) {
    ucp_worker_progress(worker);
    if (time(NULL) > end) fail("no client", UCS_ERR_TIMED_OUT);
  }
  ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST |
                                      UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                        .err_handler = {on_error, NULL},
                        .conn_request = request};
  need("ucp_ep_create", ucp_ep_create(worker, &ep, &endpoint));
}

static void become_client(struct sockaddr_in* address) {
  ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                      UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                        .err_handler = {on_error, NULL},
                        .sockaddr = {(struct sockaddr*)address, sizeof *address}};
  need("ucp_ep_create", ucp_ep_create(worker, &ep, &endpoint));
}

static const ucp_request_param_t plain = {0};

static void send_tag(const void* data, size_t size, ucp_tag_t tag) {
  wait_for("ucp_tag_send_nbx", ucp_tag_send_nbx(endpoint, data, size, tag, &plain));
}
static void receive_tag(void* data, size_t size, ucp_tag_t tag) {
  wait_for("ucp_tag_recv_nbx", ucp_tag_recv_nbx(worker, data, size, tag, ~(ucp_tag_t)0, &plain));
}

static char* pattern(size_t size, int seed) {
  char* data = malloc(size);
  for (size_t i = 0; i < size; ++i) data[i] = (char)(i * 7 + (size_t)seed);
  return data;
}
static void same(const char* what, const char* data, size_t size, int seed) {
  for (size_t i = 0; i < size; ++i) {
    if (data[i] != (char)(i * 7 + (size_t)seed)) fail(what, UCS_ERR_IO_ERROR);
  }
}

static void exchange_tags(int is_server, size_t size) {
  char* data = pattern(size, 1);
  char* got = calloc(1, size);
  if (!is_server) send_tag(data, size, 10);
  receive_tag(got, size, 10);
  same("tag", got, size, 1);
  if (is_server) send_tag(got, size, 10);
  free(data);
  free(got);
}

static void exchange_am(int is_server, size_t size) {
  char* data = pattern(size, 2);
  ucp_request_param_t reply = {0};
  for (int turn = 0; turn < 2; ++turn) {
    if (turn != is_server) {
      wait_for("ucp_am_send_nbx", ucp_am_send_nbx(endpoint, kAmId, NULL, 0, data, size, &reply));
    } else {
      until("active message", &am_whole);
      am_whole = 0;
      if (am_bytes != size) fail("active message: length", UCS_ERR_IO_ERROR);
      same("active message", am_data, size, 2);
    }
  }
  free(data);
}

static void receive_stream(char* data, size_t size) {
  ucp_request_param_t all = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_STREAM_RECV_FLAG_WAITALL};
  size_t got = 0;
  wait_for("ucp_stream_recv_nbx", ucp_stream_recv_nbx(endpoint, data, size, &got, &all));
}

static void exchange_stream(int is_server, size_t size) {
  char* data = pattern(size, 3);
  char* got = calloc(1, size);
  for (int turn = 0; turn < 2; ++turn) {
    if (turn != is_server) {
      wait_for("ucp_stream_send_nbx", ucp_stream_send_nbx(endpoint, data, size, &plain));
    } else {
      receive_stream(got, size);
      same("stream", got, size, 3);
    }
  }
  free(data);
  free(got);
}

/* The client writes into the server's memory and reads it back. */
static void exchange_memory(int is_server, size_t size) {
  struct {
    uint64_t at;
    uint64_t key_size;
    char key[1024];
  } told = {0};
  if (is_server) {
    char* memory = calloc(1, size);
    ucp_mem_map_params_t how = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = memory,
        .length = size};
    ucp_mem_h mapped;
    need("ucp_mem_map", ucp_mem_map(context, &how, &mapped));
    void* key;
    size_t key_size;
    need("ucp_rkey_pack", ucp_rkey_pack(context, mapped, &key, &key_size));
    if (key_size > sizeof told.key) fail("ucp_rkey_pack", UCS_ERR_BUFFER_TOO_SMALL);
    told.at = (uintptr_t)memory;
    told.key_size = key_size;
    memcpy(told.key, key, key_size);
    ucp_rkey_buffer_release(key);
    send_tag(&told, sizeof told, 20);
    char done;
    receive_tag(&done, 1, 21);
    same("put", memory, size, 4);
    ucp_mem_unmap(context, mapped);
    free(memory);
    return;
  }
  receive_tag(&told, sizeof told, 20);
  ucp_rkey_h key;
  need("ucp_ep_rkey_unpack", ucp_ep_rkey_unpack(endpoint, told.key, &key));
  char* data = pattern(size, 4);
  char* got = calloc(1, size);
  wait_for("ucp_put_nbx", ucp_put_nbx(endpoint, data, size, told.at, key, &plain));
  wait_for("ucp_ep_flush_nbx", ucp_ep_flush_nbx(endpoint, &plain));
  wait_for("ucp_get_nbx", ucp_get_nbx(endpoint, got, size, told.at, key, &plain));
  same("get", got, size, 4);
  ucp_rkey_destroy(key);
  send_tag("d", 1, 21);
  free(data);
  free(got);
}

/* The client closes when it knows that the server has all, the server when the client has gone. */
static void say_goodbye(int is_server) {
  char bye = 'b';
  if (is_server) {
    receive_tag(&bye, 1, 30);
    send_tag(&bye, 1, 31);
    time_t end = time(NULL) + kLimitSeconds;
    while (broken == UCS_OK && time(NULL) < end) ucp_worker_progress(worker);
  } else {
    send_tag(&bye, 1, 30);
    receive_tag(&bye, 1, 31);
  }
  ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_EP_CLOSE_FLAG_FORCE};
  void* closing = ucp_ep_close_nbx(endpoint, &how);
  if (closing == NULL || UCS_PTR_IS_ERR(closing)) return;
  while (ucp_request_check_status(closing) == UCS_INPROGRESS) ucp_worker_progress(worker);
  ucp_request_free(closing);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int is_server = strcmp(argv[1], "server") == 0;
  struct sockaddr_in address = address_of(argv[2], atoi(argv[3]));
  start();
  if (is_server) {
    become_server(&address);
  } else {
    become_client(&address);
  }
  size_t sizes[] = {kSmall, kLarge};
  for (int i = 0; i < 2; ++i) {
    exchange_tags(is_server, sizes[i]);
    exchange_am(is_server, sizes[i]);
    exchange_stream(is_server, sizes[i]);
    exchange_memory(is_server, sizes[i]);
  }
  if (!is_server) ucp_ep_print_info(endpoint, stdout);
  say_goodbye(is_server);
  printf("all well\n");
  if (listener != NULL) ucp_listener_destroy(listener);
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
  return 0;
}
