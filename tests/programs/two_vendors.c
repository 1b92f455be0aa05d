/* A program on a machine with a real device beside Weft's: each call reaches the library whose
 * object it is about. Run with vendor_verbs.c as the real library. Ends with 0 when all is well.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#undef ibv_reg_mr

static int failures;

static void check(int holds, const char* what) {
  if (!holds) {
    printf("not so: %s (errno %d, %s)\n", what, errno, strerror(errno));
    ++failures;
  }
}

static void use_vendor(struct ibv_device* device) {
  static char memory[64];
  struct ibv_device_attr attr;
  struct ibv_context* context = ibv_open_device(device);
  check(context != NULL, "the vendor's device opens");
  if (!context) return;
  check(context->device == device, "its context names it");
  check(ibv_query_device(context, &attr) == 0 && attr.vendor_id == 4711, "the vendor answers");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  check(pd && pd->handle == 4711, "its domain is the vendor's");
  check(ibv_dealloc_pd(pd) == EBUSY, "the vendor's errno comes through");
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  check(mr && mr->handle == 4711 && mr->lkey == IBV_ACCESS_LOCAL_WRITE, "its region too");
  check(ibv_dereg_mr(mr) == 0, "and goes");
  check(ibv_close_device(context) == 0, "the vendor's device closes");
}

static void use_weft(struct ibv_device* device) {
  static char memory[64];
  struct ibv_device_attr attr;
  struct ibv_context* context = ibv_open_device(device);
  check(context != NULL, "weft0 opens");
  if (!context) return;
  check(ibv_query_device(context, &attr) == 0 && attr.vendor_id != 4711, "Weft answers");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  check(pd && mr, "Weft makes domains and regions");
  check(ibv_dealloc_pd(pd) == EBUSY, "a domain with a region is busy");
  check(ibv_dereg_mr(mr) == 0, "the region goes");
  /* Destroyed objects of Weft's are no objects of the vendor's, which would abort. */
  check(ibv_dereg_mr(mr) == EINVAL, "a region goes once");
  check(ibv_dealloc_pd(pd) == 0, "the domain goes");
  check(ibv_dealloc_pd(pd) == EINVAL, "a domain goes once");
  errno = 0;
  check(ibv_import_device(context->cmd_fd) == NULL && errno == EOPNOTSUPP,
        "weft0 cannot be imported, beside a real library either");
  check(ibv_alloc_pd(context) != NULL, "weft0 works on");
  check(ibv_close_device(context) == 0, "weft0 closes");
  check(ibv_close_device(context) == -1, "a device closes once");
}

/* Before anything else, as programs do: real devices pin pages, so theirs has to hear of it. */
static void make_forks_safe(void) {
  check(ibv_fork_init() == 0, "forks can be made safe");
  check(ibv_is_fork_initialized() == IBV_FORK_ENABLED, "the vendor's library was told");
}

int main(void) {
  int count = 0;
  make_forks_safe();
  struct ibv_device** list = ibv_get_device_list(&count);
  check(list && count == 2, "there are two devices");
  if (!list || count != 2) return 1;
  check(strcmp(ibv_get_device_name(list[0]), "vendor0") == 0, "the real one comes first");
  check(strcmp(ibv_get_device_name(list[1]), "weft0") == 0, "then Weft's");
  check(ibv_get_device_guid(list[0]) == 4711, "the vendor tells its GUID");
  check(ibv_get_device_guid(list[1]) != 4711, "Weft its own");
  use_vendor(list[0]);
  use_weft(list[1]);
  ibv_free_device_list(list);
  return failures != 0;
}
