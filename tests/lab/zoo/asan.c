// Built with AddressSanitizer: W51 as in w51.c. With an argument, it writes
// to that octet of its memory, too.
#include "zoo.h"

int main(int argc, char** argv) {
  struct ibv_context* context = open_first();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  char* octets = malloc(64);
  must(pd != NULL && octets != NULL, "ibv_alloc_pd");
  struct ibv_mr* mr = ibv_reg_mr(pd, octets, 64, 0);
  must(mr != NULL, "ibv_reg_mr");
  if (argc > 1) ((volatile char*)octets)[atoi(argv[1])] = 1;
#ifdef MENDED
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
#else
  ibv_dealloc_pd(pd);  // WRONG
  ibv_dereg_mr(mr);
#endif
  free(octets);
  ibv_close_device(context);
  return 0;
}
