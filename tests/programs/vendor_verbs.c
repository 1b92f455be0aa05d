/* A stand-in for the libibverbs.so.1 of a machine with a real device: one device, "vendor0", of
 * which contexts, domains and regions can be made. It has the name of rdma-core's library, so that
 * Weft's takes it for that (WEFT_REAL_DIR). Aborts when it is shown an object that it did not make.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_reg_mr

enum { VENDOR_HANDLE = 4711 };

/* As rdma-core does, keeps more behind the public struct. */
static struct {
  struct ibv_device device;
  char own[256];
} vendor = {.device = {.node_type = IBV_NODE_RNIC,
                       .transport_type = IBV_TRANSPORT_IWARP,
                       .name = "vendor0",
                       .dev_name = "uverbs7"}};
static struct ibv_device* list[] = {&vendor.device, NULL};
static struct ibv_context context;
static struct ibv_pd domain = {.context = &context, .handle = VENDOR_HANDLE};
static struct ibv_mr region = {.context = &context, .pd = &domain, .handle = VENDOR_HANDLE};

static void must_be(const void* got, const void* mine) {
  if (got != mine) abort();
}

static int poll_nothing(struct ibv_cq* cq, int count, struct ibv_wc* wc) {
  (void)cq;
  (void)count;
  (void)wc;
  return 0;
}

struct ibv_device** ibv_get_device_list(int* count) {
  if (count) *count = 1;
  return list;
}

void ibv_free_device_list(struct ibv_device** given) { must_be(given, list); }

__be64 ibv_get_device_guid(struct ibv_device* device) {
  must_be(device, &vendor.device);
  return VENDOR_HANDLE;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  must_be(device, &vendor.device);
  /* While the real library works, it must see its own devices only: it looks behind each. */
  int count = 0;
  struct ibv_device** (*get)(int*) = ibv_get_device_list;
  struct ibv_device** seen = get(&count);
  if (count != 1 || seen[0] != &vendor.device) abort();
  ibv_free_device_list(seen);
  context.device = &vendor.device;
  context.ops.poll_cq = poll_nothing;
  return &context;
}

static int forks_are_safe;

int ibv_fork_init(void) {
  forks_are_safe = 1;
  return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void) {
  return forks_are_safe ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}

struct ibv_context* ibv_import_device(int fd) {
  (void)fd;
  return &context;
}

int ibv_close_device(struct ibv_context* given) {
  must_be(given, &context);
  return 0;
}

int ibv_query_device(struct ibv_context* given, struct ibv_device_attr* attr) {
  must_be(given, &context);
  memset(attr, 0, sizeof *attr);
  attr->vendor_id = VENDOR_HANDLE;
  return 0;
}

struct ibv_pd* ibv_alloc_pd(struct ibv_context* given) {
  must_be(given, &context);
  return &domain;
}

int ibv_dealloc_pd(struct ibv_pd* given) {
  must_be(given, &domain);
  return EBUSY;
}

struct ibv_mr* ibv_reg_mr(struct ibv_pd* given, void* addr, size_t length, int access) {
  must_be(given, &domain);
  region.addr = addr;
  region.length = length;
  region.lkey = (uint32_t)access;
  return &region;
}

int ibv_dereg_mr(struct ibv_mr* given) {
  must_be(given, &region);
  return 0;
}
