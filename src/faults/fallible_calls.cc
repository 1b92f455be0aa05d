#include "faults/fallible_calls.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace weft::faults {
namespace {

// As the man pages say, or as the kernel answers where they name no error: ENOMEM for what takes
// memory, EMFILE for descriptors, EIO for a device that is gone.
constexpr FallibleCall kCalls[] = {
    {"ibv_get_device_list", ENOMEM},
    {"ibv_open_device", ENOMEM},
    {"ibv_query_device", EIO},
    {"ibv_query_device_ex", EIO},
    {"ibv_query_port", EIO},
    {"ibv_query_gid", EIO},
    {"ibv_query_gid_ex", EIO},
    {"ibv_query_pkey", EIO},
    {"ibv_alloc_pd", ENOMEM},
    {"ibv_alloc_td", ENOMEM},
    {"ibv_alloc_parent_domain", ENOMEM},
    {"ibv_reg_mr", ENOMEM},
    {"ibv_reg_mr_iova", ENOMEM},
    {"ibv_reg_mr_iova2", ENOMEM},
    {"ibv_rereg_mr", ENOMEM},
    {"ibv_alloc_mw", ENOMEM},
    {"ibv_bind_mw", ENOMEM},
    {"ibv_alloc_dm", ENOMEM},
    {"ibv_reg_dm_mr", ENOMEM},
    {"ibv_create_comp_channel", EMFILE},
    {"ibv_create_cq", ENOMEM},
    {"ibv_create_cq_ex", ENOMEM},
    {"ibv_resize_cq", ENOMEM},
    {"ibv_req_notify_cq", EIO},
    {"ibv_get_cq_event", EIO},
    {"ibv_create_srq", ENOMEM},
    {"ibv_create_srq_ex", ENOMEM},
    {"ibv_modify_srq", ENOMEM},
    {"ibv_query_srq", ENOMEM},
    {"ibv_create_qp", ENOMEM},
    {"ibv_create_qp_ex", ENOMEM},
    {"ibv_modify_qp", ENOMEM},
    {"ibv_query_qp", ENOMEM},
    {"ibv_create_ah", ENOMEM},
    {"ibv_create_ah_from_wc", ENOMEM},
    {"ibv_post_send", ENOMEM},
    {"ibv_post_recv", ENOMEM},
    {"ibv_post_srq_recv", ENOMEM},
    {"ibv_wr_complete", ENOMEM},
    {"rdma_create_event_channel", EMFILE},
    {"rdma_create_id", ENOMEM},
    {"rdma_migrate_id", ENOMEM},
    {"rdma_set_option", EINVAL},
    {"rdma_getaddrinfo", ENOMEM},
    {"rdma_get_devices", ENOMEM},
    {"rdma_bind_addr", EADDRINUSE},
    {"rdma_resolve_addr", ENODEV},
    {"rdma_resolve_route", ENOMEM},
    {"rdma_listen", EADDRINUSE},
    {"rdma_get_cm_event", ENOMEM},
    {"rdma_get_request", ENOMEM},
    {"rdma_create_ep", ENOMEM},
    {"rdma_create_qp", ENOMEM},
    {"rdma_create_qp_ex", ENOMEM},
    {"rdma_create_srq", ENOMEM},
    {"rdma_create_srq_ex", ENOMEM},
    {"rdma_init_qp_attr", EINVAL},
    {"rdma_connect", ENOMEM},
    {"rdma_accept", ENOMEM},
    {"rdma_reject", ENOMEM},
    {"rdma_establish", EINVAL},
};

}  // namespace

std::span<const FallibleCall> fallible_calls() { return kCalls; }

int error_of(std::string_view call) {
  const auto* at = std::ranges::find(kCalls, call, &FallibleCall::name);
  return at != std::end(kCalls) ? at->error : 0;
}

}  // namespace weft::faults
