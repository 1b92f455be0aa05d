/* assert() of a board: says file and line. The texts of conditions and the names of functions would
 * take 9,500 octets of ROM. Unlike the C library's, it does not change when it is included again.
 */
#pragma once

#if defined(NDEBUG)
#define assert(condition) ((void)0)
#elif defined(__cplusplus)
#define assert(condition) \
  (static_cast<bool>(condition) ? (void)0 : weft_board_assert(__FILE_NAME__, __LINE__))
#else
#define assert(condition) ((condition) ? (void)0 : weft_board_assert(__FILE_NAME__, __LINE__))
#if !defined(static_assert)
#define static_assert _Static_assert
#endif
#endif

#ifdef __cplusplus
extern "C"
#endif
    void
    weft_board_assert(const char* file, int line) __attribute__((noreturn));
