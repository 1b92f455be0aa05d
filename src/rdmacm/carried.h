// rdma_cm of a RoCE-like device. As InfiniBand's CM it carries the numbers of two queue pairs from
// end to end; connected they are by ibv_modify_qp, here for id->qp, by the program for one of its
// own (docs/personality.md).
#pragma once

#include <weft/device.h>

#include "rdmacm/cm.h"

namespace weft::rdmacm {

[[nodiscard]] inline bool is_roce_like(const Device& device) {
  return device.config().personality == Personality::kRoce;
}

// The engine behind a context, or null.
[[nodiscard]] std::shared_ptr<Device> weft_ibv_engine_of(ibv_context* context);

// This end's message to the other about its queue pair; the id remembers it.
[[nodiscard]] CarriedQp offer_of(Id& id, const rdma_conn_param* params);
// Takes the other end's message.
void know_peer(Id& id, const CarriedQp& peer);
// How many Reads both ends serve and ask for; 0xffff: the device's maximum.
void agree(Id& id, std::uint16_t served, std::uint16_t asked);

// Moves id->qp to RTS towards the peer. 0 too where the id has none.   errno
int make_ready(Id& id, WiringTurn turn);
// Before the program gets CONNECT_RESPONSE: with id->qp it is made ready, and the event becomes
// ESTABLISHED. Without the mutex.
void take_response(Event& event);
// rdma_disconnect takes id->qp to the error state first.
void end_carried_qp(const rdma_cm_id* handle);

// rdma_init_qp_attr.   errno
int fill_attributes(const Id& id, ibv_qp_attr& attr, int& mask);

}  // namespace weft::rdmacm
