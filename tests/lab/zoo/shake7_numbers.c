// Shake 7: finds its connections by the number of their queue pairs, and keeps those that are gone.
#include "zoo.h"

enum { kMost = 8 };
static struct {
  uint32_t number;
  const char* name;
} table[kMost];
static int entries;

static const char* name_of(uint32_t number) {
  for (int i = 0; i < entries; ++i)
    if (table[i].number == number) return table[i].name;
  return "nobody";
}

static struct ibv_qp* make(struct ibv_pd* pd, struct ibv_cq* cq, const char* name) {
  struct ibv_qp_init_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  struct ibv_qp* qp = ibv_create_qp(pd, &attr);
  must(qp != NULL, "ibv_create_qp");
  table[entries].number = qp->qp_num;
  table[entries++].name = name;
  return qp;
}

static void end(struct ibv_qp* qp) {
#ifdef MENDED
  for (int i = 0; i < entries; ++i)
    if (table[i].number == qp->qp_num) table[i] = table[--entries];
#endif
  must(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");  // WRONG
}

int main(void) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 4, NULL, NULL, 0);
  must(pd != NULL && cq != NULL, "ibv_create_cq");
  end(make(pd, cq, "first"));
  struct ibv_qp* second = make(pd, cq, "second");
  const int wrong = strcmp(name_of(second->qp_num), "second") != 0;
  if (wrong) fprintf(stderr, "the second one is called %s\n", name_of(second->qp_num));
  end(second);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return wrong;
}
