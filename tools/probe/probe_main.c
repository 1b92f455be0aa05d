// See probe_device.h. weft-probe [--address ADDRESS] [DEVICE]
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "probe_device.h"

void say_number(const char* key, uint64_t value) {
  printf("%s = %llu\n", key, (unsigned long long)value);
}

void say_word(const char* key, const char* word) { printf("%s = %s\n", key, word); }

void say_outcome(const char* key, int error) {
  const char* name = error == 0            ? "ok"
                     : error == EOPNOTSUPP ? "EOPNOTSUPP"  // and not its other name
                                           : strerrorname_np(error);
  if (name == NULL) {
    remark("%s: errno %d has no name", key, error);
  } else {
    say_word(key, name);
  }
}

void remark(const char* format, ...) {
  va_list parts;
  va_start(parts, format);
  fputs("# ", stdout);
  vprintf(format, parts);
  fputs("\n", stdout);
  va_end(parts);
}

static _Noreturn void fail(const char* what, const char* why) {
  fprintf(stderr, "weft-probe: %s: %s\n", what, why);
  exit(1);
}

static struct ibv_device* choose(struct ibv_device** list, int count, const char* wanted) {
  for (int i = 0; i < count; i++) {
    if (wanted == NULL || strcmp(ibv_get_device_name(list[i]), wanted) == 0) return list[i];
  }
  if (wanted != NULL) {
    fprintf(stderr, "weft-probe: there is no device %s; there are:", wanted);
    for (int i = 0; i < count; i++) fprintf(stderr, " %s", ibv_get_device_name(list[i]));
    fprintf(stderr, "\n");
    exit(1);
  }
  fail("libibverbs", "there is no device; `rdma link` shows those of the kernel");
}

static void say_origin(const struct probe* p, const char* device) {
  struct utsname kernel;
  if (uname(&kernel) == 0) say_word("kernel", kernel.release);
  time_t now = time(NULL);
  char day[16];
  strftime(day, sizeof day, "%F", gmtime(&now));
  say_word("device", device);
  if (p->attr.fw_ver[0] != '\0') say_word("firmware", p->attr.fw_ver);
  printf("vendor = 0x%x part 0x%x\n", p->attr.vendor_id, p->attr.vendor_part_id);
  say_word("source", "measured by weft-probe");
  say_word("date", day);
}

// A driver that does not return must not keep the caller for ever.
static const char* volatile step = "ibv_get_device_list";

void begin(const char* what) {
  enum { kPatienceS = 60 };
  step = what;
  alarm(kPatienceS);
}

static void give_up(int signal) {
  (void)signal;
  static const char begin[] = "weft-probe: this does not return: ";
  if (write(STDERR_FILENO, begin, sizeof begin - 1) < 0 ||
      write(STDERR_FILENO, step, strlen(step)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
    _exit(1);
  }
  _exit(1);
}

static const char kUsage[] =
    "usage: weft-probe [--address ADDRESS] [DEVICE]\n"
    "Prints what a verbs device promises and refuses, as a profile for `weft run --like`.\n"
    "  --address ADDRESS  the device's own, for connections to itself. Default: the first address\n"
    "                     that rdma_cm gives to the device\n";

int main(int argc, char** argv) {
  struct probe p = {.port = 1};
  static const struct option options[] = {
      {"address", required_argument, NULL, 'a'}, {"help", no_argument, NULL, 'h'}, {0}};
  int option;
  while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
    if (option == 'h') return fputs(kUsage, stdout), 0;
    if (option != 'a') return fputs(kUsage, stderr), 2;
    p.address = optarg;
  }
  if (argc - optind > 1) return fputs(kUsage, stderr), 2;

  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGALRM, give_up);
  begin("ibv_get_device_list");
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (list == NULL) fail("ibv_get_device_list", strerror(errno));
  struct ibv_device* device = choose(list, count, optind < argc ? argv[optind] : NULL);
  char name[64];
  snprintf(name, sizeof name, "%s", ibv_get_device_name(device));
  begin("ibv_open_device");
  p.device = ibv_open_device(device);
  if (p.device == NULL) fail(name, strerror(errno));
  const int error = ibv_query_device(p.device, &p.attr);
  if (error != 0) fail("ibv_query_device", strerror(error));
  say_origin(&p, name);
  begin("a query");
  probe_attributes(&p);
  begin("the making of an object");
  probe_objects(&p);
  begin("a connection to itself");
  if (!probe_requests(&p)) return 1;
  begin("ibv_close_device");
  ibv_close_device(p.device);
  ibv_free_device_list(list);
  if (fflush(stdout) != 0 || ferror(stdout)) fail("standard output", strerror(errno));
  return 0;
}
