/* MIPSsim: a big-endian MIPS32, a 16450 UART and the "mipsnet" adapter. */
#include "lwip/board/board.h"

#define IO 0xbfd00000u
#define REG8(address) (*(volatile uint8_t*)(uintptr_t)(address))
#define REG(address) (*(volatile uint32_t*)(uintptr_t)(address))

/* --- start --- */

extern uint32_t weft_bss_start, weft_bss_end;
extern void (*weft_init_array_start[])(void);
extern void (*weft_init_array_end[])(void);
void board_begin(void);
void board_fault(void);

/* The loader puts everything in place and jumps to weft_entry. The exception vectors of a CPU with
 * BEV clear are at the start of RAM. */
__asm__(
    ".section .vectors, \"ax\"\n"
    ".set noreorder\n"
    ".org 0x0\n"
    "  j board_fault\n"
    "  nop\n"
    ".org 0x180\n"
    "  j board_fault\n"
    "  nop\n"
    ".section .text.entry, \"ax\"\n"
    ".globl weft_entry\n"
    "weft_entry:\n"
    "  mtc0 $zero, $12\n" /* Status: kernel mode, interrupts off, BEV off */
    "  nop\n"
    "  la $gp, _gp\n"
    "  la $sp, weft_stack_top\n"
    "  j board_begin\n"
    "  nop\n"
    ".set reorder\n"
    ".text\n");

void board_begin(void) {
  for (uint32_t* to = &weft_bss_start; to < &weft_bss_end;) *to++ = 0;
  board_init();
  for (void (**init)(void) = weft_init_array_start; init < weft_init_array_end; ++init) (*init)();
  (void)main();
  board_halt();
}

void board_fault(void) {
  const char* text = "weft-board: fault\n";
  while (*text != '\0') board_putc(*text++);
  board_halt();
}

void board_halt(void) {
  for (;;) __asm__ volatile("wait");
}

/* --- clock: the CPU's Count register, every other cycle of 12 MHz --- */

#define COUNT_HZ 6000000u

uint64_t board_now_ns(void) {
  static uint64_t total;
  static uint32_t before;
  uint32_t count;
  __asm__ volatile("mfc0 %0, $9" : "=r"(count));
  total += (uint32_t)(count - before);
  before = count;
  return total * 500u / (COUNT_HZ / 2000000u);
}

/* --- console --- */

#define UART (IO + 0x3f8)

void board_putc(char c) {
  while ((REG8(UART + 5) & 0x20u) == 0) {
  }
  REG8(UART) = (uint8_t)c;
}

/* --- mipsnet: one frame each way, octet by octet --- */

#define NET (IO + 0x4200)
#define NET_RX_COUNT (NET + 0x0c)
#define NET_TX_COUNT (NET + 0x10)
#define NET_INTERRUPT (NET + 0x14)
#define NET_RX_DATA (NET + 0x1c)
#define NET_TX_DATA (NET + 0x20)
#define NET_TX_DONE 1u
#define NET_RX_DONE 2u

static size_t tx_left;

int board_eth_begin(size_t size) {
  REG(NET_TX_COUNT) = (uint32_t)size;
  tx_left = size;
  return 1;
}

void board_eth_put(const void* part, size_t size) {
  const uint8_t* from = part;
  for (size_t i = 0; i < size; ++i) REG(NET_TX_DATA) = from[i];
  tx_left -= size;
  if (tx_left == 0) REG(NET_INTERRUPT) = NET_TX_DONE;
}

size_t board_eth_waiting(void) { return REG(NET_RX_COUNT); }

void board_eth_receive(void* frame, size_t size) {
  uint8_t* to = frame;
  /* The adapter takes the next frame once this one is read, so its size is read before. */
  const size_t whole = REG(NET_RX_COUNT);
  for (size_t i = 0; i < whole; ++i) {
    const uint8_t octet = (uint8_t)REG(NET_RX_DATA);
    if (i < size) to[i] = octet;
  }
  REG(NET_INTERRUPT) = NET_RX_DONE;
}

void board_init(void) {
  REG8(UART + 3) = 3; /* eight bits, no parity */
  /* The adapter receives only while no interrupt is pending. Each write clears one. */
  REG(NET_INTERRUPT) = NET_TX_DONE;
  REG(NET_INTERRUPT) = NET_RX_DONE;
  (void)board_now_ns();
}
