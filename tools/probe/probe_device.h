// weft-probe: what a verbs device promises and refuses, written as a profile for `weft run --like`
// (src/like/device_profile.h has the keys). It uses the system's libibverbs and librdmacm, so it
// tells of every device: adapters, siw, rxe, and Weft's own under `weft run`.
//
//   probe_main.c         options, and the order
//   probe_attributes.c   what the device says of itself
//   probe_objects.c      what it grants and refuses: queue pairs, queues, memory
//   probe_requests.c     which requests can be posted, on connections to itself
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct probe {
  struct ibv_context* device;
  uint8_t port;
  const char* address;  // the device's own; NULL: found by looking
  struct ibv_device_attr attr;
  uint32_t max_inline;  // found by probe_objects
};

// One line of the profile each.
void say_number(const char* key, uint64_t value);
void say_word(const char* key, const char* word);
// "ok" for 0, else the name of the errno.
void say_outcome(const char* key, int error);
// Names what is tried from now on; it has a minute.
void begin(const char* what);
// A comment.
void remark(const char* format, ...) __attribute__((format(printf, 1, 2)));

void probe_attributes(struct probe* p);
void probe_objects(struct probe* p);
// False: the address that was given is not one of the device, as stderr says.
bool probe_requests(struct probe* p);
