// The part of libibverbs that librdmacm uses: both are Weft's, and share its one device.
//
// Exported under a version node of Weft's own, so that librdmacm refuses to load beside another
// libibverbs. Objects are passed as the structs of objects.h.
#pragma once

#include "ibverbs/context.h"
#include "ibverbs/objects.h"
#include "ibverbs/registry.h"

extern "C" {

// The process's context for rdma_cm ids, opened on first use, and again should the program have
// closed it; null with errno.
ibv_context* weft_ibv_cm_context();
// Its protection domain, for ids without one of the program's.
ibv_pd* weft_ibv_cm_pd();

// The engine behind a live context of Weft's, or null.
void weft_ibv_engine(ibv_context* handle, std::shared_ptr<weft::Device>& out);
// Whether `handle` is a live domain of Weft's.
bool weft_ibv_is_pd(ibv_pd* handle);
// Pins the QP behind a handle, or, where that is null, behind a number. Empty when there is none.
void weft_ibv_qp(ibv_qp* handle, std::uint32_t number, weft::ibverbs::Pin<weft::ibverbs::Qp>& out);

// Weft's devices are hidden from this thread between a call with true and one with false.
void weft_ibv_hide_devices(bool hide);
// As weft::ibverbs::on_fork_child().
void weft_ibv_on_fork_child(void (*forget)());

}  // extern "C"
