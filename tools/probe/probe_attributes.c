// The device's own words: ibv_query_device and ibv_query_port.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "probe_device.h"

static const char* atomics(enum ibv_atomic_cap cap) {
  switch (cap) {
    case IBV_ATOMIC_HCA: return "HCA";
    case IBV_ATOMIC_GLOB: return "GLOB";
    default: return "NONE";
  }
}

// ibv_device_attr has them as int.
static void say_limit(const char* key, int value) {
  if (value >= 0) say_number(key, (uint64_t)value);
}

static void probe_port(struct probe* p) {
  struct ibv_port_attr port;
  const int error = ibv_query_port(p->device, p->port, &port);
  if (error != 0) {  // 256, 512, ... octets by 1, 2, ...
    remark("ibv_query_port: %s", strerror(error));
    return;
  }
  say_number("port.max_mtu", 128U << (unsigned)port.max_mtu);
  say_number("port.active_mtu", 128U << (unsigned)port.active_mtu);
  say_limit("port.gid_tbl_len", port.gid_tbl_len);
  say_number("port.max_msg_sz", port.max_msg_sz);
}

void probe_attributes(struct probe* p) {
  const struct ibv_device_attr* a = &p->attr;
  say_number("max_mr_size", a->max_mr_size);
  say_limit("max_qp", a->max_qp);
  say_limit("max_qp_wr", a->max_qp_wr);
  printf("device_cap_flags = 0x%x\n", a->device_cap_flags);
  say_limit("max_sge", a->max_sge);
  say_limit("max_sge_rd", a->max_sge_rd);
  say_limit("max_cq", a->max_cq);
  say_limit("max_cqe", a->max_cqe);
  say_limit("max_mr", a->max_mr);
  say_limit("max_mw", a->max_mw);
  say_limit("max_pd", a->max_pd);
  say_limit("max_qp_rd_atom", a->max_qp_rd_atom);
  say_limit("max_qp_init_rd_atom", a->max_qp_init_rd_atom);
  say_limit("max_res_rd_atom", a->max_res_rd_atom);
  say_word("atomic_cap", atomics(a->atomic_cap));
  say_limit("max_ah", a->max_ah);
  say_limit("max_srq", a->max_srq);
  say_limit("max_srq_wr", a->max_srq_wr);
  say_limit("max_srq_sge", a->max_srq_sge);
  probe_port(p);
}
