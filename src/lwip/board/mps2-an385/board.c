/* ARM MPS2 with the AN385 image: Cortex-M3 at 25 MHz, CMSDK UART, SMSC LAN9118. */
#include "lwip/board/board.h"

extern uint32_t weft_stack_top;
extern uint32_t weft_data_load, weft_data_start, weft_data_end, weft_bss_start, weft_bss_end;
extern void (*weft_init_array_start[])(void);
extern void (*weft_init_array_end[])(void);

#define REG(address) (*(volatile uint32_t*)(uintptr_t)(address))

/* --- start --- */

void board_reset(void);

static void fault(void) {
  const char* text = "weft-board: fault\n";
  while (*text != '\0') board_putc(*text++);
  board_halt();
}

struct vectors {
  uint32_t* stack;
  void (*handlers[15])(void); /* reset, faults, ..., SysTick */
};
__attribute__((section(".vectors"), used)) static const struct vectors vectors = {
    &weft_stack_top,
    {board_reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault}};

void board_reset(void) {
  uint32_t* from = &weft_data_load;
  for (uint32_t* to = &weft_data_start; to < &weft_data_end;) *to++ = *from++;
  for (uint32_t* to = &weft_bss_start; to < &weft_bss_end;) *to++ = 0;
  board_init();
  for (void (**init)(void) = weft_init_array_start; init < weft_init_array_end; ++init) (*init)();
  (void)main();
  board_halt();
}

void board_halt(void) {
  __asm__ volatile("cpsid i");
  for (;;) __asm__ volatile("wfi");
}

/* --- clock: the FPGA's counter at 25 MHz. Not SysTick: its interrupts are lost when the emulator
 * does not get the CPU for a while, and time would stand still --- */

#define COUNTER 0x40028018
#define PRESCALE 0x4002801c
#define NS_PER_COUNT 40u

uint64_t board_now_ns(void) {
  static uint64_t total;
  static uint32_t before;
  const uint32_t count = REG(COUNTER);
  total += (uint32_t)(count - before);
  before = count;
  return total * NS_PER_COUNT;
}

/* --- console --- */

#define UART_DATA 0x40004000
#define UART_STATE 0x40004004
#define UART_CONTROL 0x40004008
#define UART_DIVISOR 0x40004010

void board_putc(char c) {
  while (REG(UART_STATE) & 1u) {
  }
  REG(UART_DATA) = (uint8_t)c;
}

/* --- LAN9118, polled --- */

#define LAN 0x40200000u
#define RX_DATA (LAN + 0x00)
#define TX_DATA (LAN + 0x20)
#define RX_STATUS (LAN + 0x40)
#define RX_STATUS_PEEK (LAN + 0x44)
#define TX_STATUS (LAN + 0x48)
#define TX_CONFIG (LAN + 0x70)
#define HW_CONFIG (LAN + 0x74)
#define RX_FIFO (LAN + 0x7c)
#define TX_FIFO (LAN + 0x80)
#define MAC_COMMAND (LAN + 0xa4)
#define MAC_DATA (LAN + 0xa8)

#define MAC_CONTROL 1u
#define MAC_HIGH 2u
#define MAC_LOW 3u

static void mac_write(uint32_t reg, uint32_t value) {
  REG(MAC_DATA) = value;
  REG(MAC_COMMAND) = 0x80000000u | reg;
  while (REG(MAC_COMMAND) & 0x80000000u) {
  }
}

static void eth_init(void) {
  REG(HW_CONFIG) = 0x00050000u | 1u << 20; /* FIFO of 5 KiB for sending; MBO */
  mac_write(MAC_HIGH, 0x0200u);            /* 02:57:45:46:00:02, see netif.c */
  mac_write(MAC_LOW, 0x46455702u);
  REG(TX_CONFIG) = 2u;
  mac_write(MAC_CONTROL, 1u << 2 | 1u << 3); /* receiver and sender on */
}

/* The frame that is being sent: what is to come, and the octets that do not fill a word yet. */
static size_t tx_left;
static uint32_t tx_word;
static unsigned tx_octets;

int board_eth_begin(size_t size) {
  if ((REG(TX_FIFO) & 0xffffu) < size + 16) return 0;
  while (REG(TX_FIFO) >> 16 & 0xffu) (void)REG(TX_STATUS);
  REG(TX_DATA) = 1u << 13 | 1u << 12 | (uint32_t)size; /* first and last segment */
  REG(TX_DATA) = (uint32_t)size;
  tx_left = size;
  tx_word = tx_octets = 0;
  return 1;
}

static void put_octet(uint8_t octet) {
  tx_word |= (uint32_t)octet << 8 * tx_octets;
  if (++tx_octets < 4) return;
  REG(TX_DATA) = tx_word;
  tx_word = tx_octets = 0;
}

void board_eth_put(const void* part, size_t size) {
  const uint8_t* from = part;
  tx_left -= size;
  for (; size != 0 && tx_octets != 0; --size) put_octet(*from++);
  for (; size >= 4; size -= 4, from += 4) {
    uint32_t word;
    __builtin_memcpy(&word, from, 4);
    REG(TX_DATA) = word;
  }
  for (; size != 0; --size) put_octet(*from++);
  while (tx_left == 0 && tx_octets != 0) put_octet(0);
}

size_t board_eth_waiting(void) {
  if ((REG(RX_FIFO) >> 16 & 0xffu) == 0) return 0;
  const uint32_t size = REG(RX_STATUS_PEEK) >> 16 & 0x3fffu;
  return size >= 4 ? size - 4 : 0;
}

void board_eth_receive(void* frame, size_t size) {
  const size_t whole = REG(RX_STATUS) >> 16 & 0x3fffu;
  uint8_t* to = frame;
  for (size_t i = 0; i < whole; i += 4) {
    const uint32_t word = REG(RX_DATA);
    const size_t left = i < size ? size - i : 0;
    __builtin_memcpy(to + i, &word, left < 4 ? left : 4);
  }
}

void board_init(void) {
  REG(PRESCALE) = 0;
  (void)board_now_ns();
  REG(UART_DIVISOR) = 16;
  REG(UART_CONTROL) = 1;
  eth_init();
}
