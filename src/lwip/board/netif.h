/* The board's Ethernet adapter as an lwIP interface, and its clock as lwIP's. */
#pragma once

#include <lwip/netif.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts lwIP with one interface, up, with this address and network mask. */
void board_net_start(struct netif* interface, const ip4_addr_t* address, const ip4_addr_t* mask);

/* Takes at most `frames_max` frames from the adapter and runs lwIP's timers. */
void board_net_poll(struct netif* interface, unsigned frames_max);

/* Frames dropped for want of a buffer. */
unsigned board_net_dropped(void);

#ifdef __cplusplus
}
#endif
