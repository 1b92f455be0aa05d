/* What Weft hooks into lwIP; see lwip/lwip_connection.cc and lwip/lwip_network.cc. C, because lwIP
 * is. */
#pragma once

#include <lwip/arch.h>
#include <lwip/err.h>
#include <lwip/ip4_addr.h>

#ifdef __cplusplus
extern "C" {
#endif

struct netif;
struct pbuf;
struct tcp_hdr;
struct tcp_pcb;

err_t weft_lwip_segment(struct tcp_pcb* pcb, struct tcp_hdr* hdr, u16_t optlen, struct pbuf* p);

#define LWIP_HOOK_TCP_INPACKET_PCB(pcb, hdr, optlen, opt1len, opt2, p) \
  weft_lwip_segment((pcb), (hdr), (optlen), (p))

#ifdef WEFT_LWIP_ROUTE_BY_SOURCE
struct netif* weft_lwip_route(const ip4_addr_t* src, const ip4_addr_t* dest);
#endif

#ifdef __cplusplus
}
#endif
