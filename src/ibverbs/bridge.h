// The part of libibverbs that librdmacm uses: both are Weft's, and share its devices.
//
// Exported under a version node of Weft's own, so that librdmacm refuses to load beside another
// libibverbs. Objects are passed as the structs of objects.h.
#pragma once

#include "ibverbs/context.h"
#include "ibverbs/objects.h"
#include "ibverbs/registry.h"

extern "C" {

// The process's context of the first device for rdma_cm ids, opened on first use, and again should
// the program have closed it; null with errno.
ibv_context* weft_ibv_cm_context();
// The same of the device that has this address of the machine.   Null with errno; ENODEV: no device
// has it
ibv_context* weft_ibv_cm_context_at(const weft::SocketAddress& own);
// Those of all devices that are there now. Null with errno.
ibv_context** weft_ibv_cm_contexts(std::size_t* count);  // ended by free()
// The protection domain of such a context, for ids without one of the program's. Null with errno.
ibv_pd* weft_ibv_cm_pd(ibv_context* context);
// The index of the GID that is this address, of a context of Weft's; else of the first one.
std::uint8_t weft_ibv_gid_index(ibv_context* context, const weft::Gid& gid);

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

// That of `weft run --check`, or null. It may have events of rdma_cm come (Hands::raise_cm).
weft::check::Observer* weft_ibv_observer(void (*raise_cm)(int event));
// Whether memory that a call gives back to the library is filled first (`weft run --shake`).
bool weft_ibv_fills_what_ends();

}  // extern "C"
