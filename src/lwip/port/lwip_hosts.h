/* Several hosts in one program: each is an interface with an address of its own, and a packet
 * leaves by the interface whose address it bears (WEFT_LWIP_ROUTE_BY_SOURCE). For tests and
 * measurements; lwIP keeps one set of tables for all of them. */
#pragma once

#include <lwip/netif.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The address of host 0, 1, ...: 10.0.0.1, 10.0.0.2, ... */
void weft_lwip_host_address(int host, ip_addr_t* address);
/* Adds the interface of a host; what it sends goes to `output`. Its `state` is the caller's. */
void weft_lwip_add_host(struct netif* interface, int host, netif_output_fn output, u16_t mtu);

#ifdef __cplusplus
}
#endif
