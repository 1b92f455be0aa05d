/* A plug-in that is linked with libibverbs; loaded by loader_probe. */
#include <infiniband/verbs.h>
#include <string.h>

__attribute__((visibility("default"))) int module_sees_weft(void);

int module_sees_weft(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; list && i < count; ++i) {
    if (strcmp(ibv_get_device_name(list[i]), "weft0") == 0) return 1;
  }
  return 0;
}
