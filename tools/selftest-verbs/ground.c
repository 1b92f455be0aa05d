#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { kGuard = 0xa9 };

static uint8_t* inside(const struct ground* g) { return g->memory + kGuardBytes; }

bool ground_open(struct ground* g, struct ibv_pd* pd, size_t bytes, int access, uint32_t seed) {
  g->bytes = bytes;
  g->memory = malloc(bytes + 2 * kGuardBytes);
  if (g->memory == NULL) return false;
  memset(g->memory, kGuard, bytes + 2 * kGuardBytes);
  fill_pattern(inside(g), bytes, seed);
  g->content_crc = crc32c(inside(g), bytes);
  g->mr = ibv_reg_mr(pd, inside(g), bytes, access);
  if (g->mr == NULL && (access & IBV_ACCESS_REMOTE_ATOMIC) != 0) {  // not every device has atomics
    g->mr = ibv_reg_mr(pd, inside(g), bytes, access & ~IBV_ACCESS_REMOTE_ATOMIC);
  }
  if (g->mr == NULL) return false;
  g->stag = g->mr->rkey;
  g->to = (uintptr_t)inside(g);
  return true;
}

void ground_revoke(struct ground* g) {
  if (g->mr != NULL) ibv_dereg_mr(g->mr);
  g->mr = NULL;
}

void ground_close(struct ground* g) {
  ground_revoke(g);
  free(g->memory);
  memset(g, 0, sizeof *g);
}

bool ground_guards_intact(const struct ground* g) {
  for (size_t i = 0; i < kGuardBytes; i++) {
    if (g->memory[i] != kGuard || inside(g)[g->bytes + i] != kGuard) return false;
  }
  return true;
}

bool ground_untouched(const struct ground* g) {
  return ground_guards_intact(g) && crc32c(inside(g), g->bytes) == g->content_crc;
}
