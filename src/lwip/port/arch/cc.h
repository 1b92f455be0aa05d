/* What lwIP asks of compiler and machine. */
#pragma once

#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif
/* A number that peers cannot guess: initial sequence numbers and ports come from it. */
unsigned weft_lwip_random(void);
/* A fault of lwIP's own state. Neither returns. */
void weft_lwip_fault(const char* what);
void weft_board_assert(const char* file, int line) __attribute__((noreturn));
/* The sum of RFC 1071 as lwip_standard_chksum() gives it (port/checksum.c). */
unsigned short weft_lwip_checksum(const void* data, int size);
#ifdef __cplusplus
}
#endif

#if WEFT_LWIP_THREADS
typedef int sys_prot_t; /* what the port's sys_arch_protect() gives */
#endif

#define LWIP_RAND() ((u32_t)weft_lwip_random())
#define LWIP_PLATFORM_DIAG(x) \
  do {                        \
  } while (0)
#ifdef WEFT_PROFILE_SMALL /* on a board the texts would take 4 KB */
#define LWIP_PLATFORM_ASSERT(x) weft_board_assert(__FILE_NAME__, __LINE__)
#else
#define LWIP_PLATFORM_ASSERT(x) weft_lwip_fault(x)
#endif

#ifndef BYTE_ORDER
#ifdef __BYTE_ORDER__
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BYTE_ORDER BIG_ENDIAN
#else
#define BYTE_ORDER LITTLE_ENDIAN
#endif
#endif
#endif
