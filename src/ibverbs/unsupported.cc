// Verbs that Weft's devices do not have, with a clean answer: multicast, imports, ECE. Foreign
// objects go to the real library.

#include <infiniband/verbs.h>

#include <cerrno>

#include "ibverbs/errors.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

using namespace weft::ibverbs;

namespace {

bool is_weft_context(ibv_context* handle) {
  return static_cast<bool>(registry::find<Context>(handle));
}
bool is_weft_pd(ibv_pd* handle) { return static_cast<bool>(registry::find<Pd>(handle)); }
bool is_weft_qp(ibv_qp* handle) { return static_cast<bool>(registry::find<Qp>(handle)); }

}  // namespace

extern "C" {

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (is_weft_qp(qp)) return fail_number(EOPNOTSUPP);
  return forward_int(WEFT_REAL(ibv_attach_mcast), qp, gid, lid);
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (is_weft_qp(qp)) return fail_number(EOPNOTSUPP);
  return forward_int(WEFT_REAL(ibv_detach_mcast), qp, gid, lid);
}

int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t eth_mac[6],
                                uint16_t* vid) {
  if (is_weft_context(context)) return fail_number(EOPNOTSUPP);
  return forward_int(WEFT_REAL(ibv_resolve_eth_l2_from_gid), context, attr, eth_mac, vid);
}

ibv_context* ibv_import_device(int cmd_fd) {
  // Weft's objects live in one process; only a real device can be imported. The descriptor of one
  // of our contexts is no real device's, whatever the real library would make of it.
  bool ours = false;
  registry::each_context(
      [&](Context& context) { ours = ours || context.verbs.context.cmd_fd == cmd_fd; });
  auto* real =
      !ours && machine_has_rdma() && real_ibverbs().load() ? WEFT_REAL(ibv_import_device) : nullptr;
  if (real == nullptr) return fail_null(EOPNOTSUPP);
  const HideWeftDevices hide;
  return real(cmd_fd);
}

ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  if (is_weft_context(context)) return fail_null(EOPNOTSUPP);
  return forward_null(WEFT_REAL(ibv_import_pd), context, handle);
}

void ibv_unimport_pd(ibv_pd* pd) {
  if (is_weft_pd(pd)) return;
  if (auto* real = unless_quarantined(pd, WEFT_REAL(ibv_unimport_pd))) real(pd);
}

ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
  if (is_weft_pd(pd)) return fail_null(EOPNOTSUPP);
  return forward_null(WEFT_REAL(ibv_import_mr), pd, handle);
}

void ibv_unimport_mr(ibv_mr* mr) {
  if (registry::find<Mr>(mr)) return;
  if (auto* real = unless_quarantined(mr, WEFT_REAL(ibv_unimport_mr))) real(mr);
}

ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  if (is_weft_context(context)) return fail_null(EOPNOTSUPP);
  return forward_null(WEFT_REAL(ibv_import_dm), context, handle);
}

void ibv_unimport_dm(ibv_dm* dm) {
  if (auto* real = WEFT_REAL(ibv_unimport_dm)) real(dm);
}

int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (is_weft_qp(qp)) return fail_number(EOPNOTSUPP);
  return forward_int(WEFT_REAL(ibv_set_ece), qp, ece);
}

int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  if (is_weft_qp(qp)) return fail_number(EOPNOTSUPP);
  return forward_int(WEFT_REAL(ibv_query_ece), qp, ece);
}

}  // extern "C"
