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

/* Begins to send one Ethernet frame of `size` octets, without its CRC. 0: the adapter has no room;
 * try again later. board_eth_put() then gives it the octets, in parts of any size; with the last
 * one the frame is sent. */
int board_eth_begin(size_t size);
void board_eth_put(const void* part, size_t size);

/* The size of the frame that waits, without its CRC; 0: none. */
size_t board_eth_waiting(void);

/* Reads the frame that waits: the first `size` octets go to `frame`, the rest is dropped. */
void board_eth_receive(void* frame, size_t size);

/* How many octets of the stack have never been used since the start. In runtime.c. */
size_t board_stack_unused(void);
void weft_board_mark_stack(void); /* called once, first, by board_net_start() */

/* Stops for good. */
void board_halt(void) __attribute__((noreturn));

/* The program, called with all of the above in place. */
int main(void);

#ifdef __cplusplus
}
#endif
