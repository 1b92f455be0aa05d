/* What Weft needs of a board. To port it, implement these functions and write a linker script;
 * docs/embedded.md goes through it. No function waits, except board_halt(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Clock, console and network adapter, in this order. Once, first. */
void board_init(void);

/* Time since board_init(). Never runs backwards. Call it at least once a minute. */
uint64_t board_now_ns(void);

/* One octet to the console. */
void board_putc(char c);

/* Sends one Ethernet frame without its CRC. 0: the adapter has no room; try again later. */
int board_eth_send(const void* frame, size_t size);

/* The size of the frame that waits, without its CRC; 0: none. */
size_t board_eth_waiting(void);

/* Reads the frame that waits: the first `size` octets go to `frame`, the rest is dropped. */
void board_eth_receive(void* frame, size_t size);

/* Stops for good. */
void board_halt(void) __attribute__((noreturn));

/* The program, called with all of the above in place. */
int main(void);

#ifdef __cplusplus
}
#endif
