// Functions that librdmacm has had since release 60 of rdma-core, so that programs of those
// releases start. Weft does not have them; a real rdma_cm that serves this process may.

#include <rdma/rdma_cma.h>

#include <cerrno>

#include "ibverbs/errors.h"
#include "rdmacm/forward.h"

using weft::ibverbs::fail_minus;

extern "C" {

// The headers of release 44 do not declare them.
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument);

int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints) {
  WEFT_CM_FORWARD(rdma_resolve_addrinfo, id, node, service, hints)
  return fail_minus(ENOSYS);
}

int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
  WEFT_CM_FORWARD(rdma_query_addrinfo, id, info)
  return fail_minus(ENOSYS);
}

int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument) {
  WEFT_CM_FORWARD(rdma_write_cm_event, id, event, status, argument)
  return fail_minus(ENOSYS);
}

}  // extern "C"
