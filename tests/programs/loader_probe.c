/* Reaches libibverbs in each of the ways that programs use. Prints the first device that each way
 * sees; ends with 0 when all of them see weft0.
 *
 *   loader_probe linked|dlopen|dlsym|dlvsym|global|deepbind
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

typedef struct ibv_device** get_list_fn(int*);
typedef const char* get_name_fn(struct ibv_device*);

static int sees_weft(get_list_fn* get_list, get_name_fn* get_name, const char* how) {
  int count = 0;
  if (!get_list || !get_name) {
    printf("%s: no such function: %s\n", how, dlerror());
    return 1;
  }
  struct ibv_device** list = get_list(&count);
  for (int i = 0; list && i < count; ++i) {
    if (strcmp(get_name(list[i]), "weft0") == 0) {
      printf("%s: weft0\n", how);
      return 0;
    }
  }
  printf("%s: no weft0 among %d devices\n", how, count);
  return 1;
}

/* ISO C has no conversion from void* to a function; POSIX does. */
static void* find(void* library, const char* name, const char* version) {
  return version ? dlvsym(library, name, version) : dlsym(library, name);
}

static int through(void* library, const char* version, const char* how) {
  get_list_fn* get_list = NULL;
  get_name_fn* get_name = NULL;
  *(void**)&get_list = find(library, "ibv_get_device_list", version);
  *(void**)&get_name = find(library, "ibv_get_device_name", version);
  return sees_weft(get_list, get_name, how);
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "linked";
  if (strcmp(how, "linked") == 0) return sees_weft(ibv_get_device_list, ibv_get_device_name, how);
  if (strcmp(how, "global") == 0) return through(RTLD_DEFAULT, "IBVERBS_1.1", how);
  if (strcmp(how, "deepbind") == 0) {
    /* A module of its own, linked with libibverbs, as plug-ins are. */
    void* module = dlopen(argc > 2 ? argv[2] : "", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!module) {
      printf("%s: %s\n", how, dlerror());
      return 1;
    }
    int (*probe)(void) = NULL;
    *(void**)&probe = dlsym(module, "module_sees_weft");
    const int failed = !probe || !probe();
    printf("%s: %s\n", how, failed ? "no weft0" : "weft0");
    return failed;
  }
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    printf("%s: %s\n", how, dlerror());
    return 1;
  }
  return through(library, strcmp(how, "dlvsym") == 0 ? "IBVERBS_1.1" : NULL, how);
}
