/* For LD_PRELOAD, set by `weft run --check`: tells the rules of memory that the program gives back
 * while requests may use it (E12). What is outside of what they use costs two loads. And of memory
 * that the program says is its own (E13).
 *
 * In C and without libraries of its own: it is loaded into every program that `weft run --check`
 * starts, and into their children. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check/preload/memory_watch.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WEFT_EXPORT __attribute__((visibility("default")))

WEFT_EXPORT struct weft_memory_watch weft_memory_watch;

static void tell(const void* address, size_t length) {
  const uintptr_t from = (uintptr_t)address;
  if (from >= __atomic_load_n(&weft_memory_watch.high, __ATOMIC_RELAXED)) return;
  if (from + length <= __atomic_load_n(&weft_memory_watch.low, __ATOMIC_RELAXED)) return;
  void (*gone)(const void*, size_t) = __atomic_load_n(&weft_memory_watch.gone, __ATOMIC_ACQUIRE);
  if (gone) gone(address, length);
}

/* Of <weft/check.h>. */
static void tell_owned(const void* address, size_t length, int is_own) {
  void (*owned)(const void*, size_t, int) =
      __atomic_load_n(&weft_memory_watch.owned, __ATOMIC_ACQUIRE);
  if (owned) owned(address, length, is_own);
}

WEFT_EXPORT void weft_check_own(const void* address, size_t length) {
  tell_owned(address, length, 1);
}

WEFT_EXPORT void weft_check_release(const void* address, size_t length) {
  tell_owned(address, length, 0);
}

/* Where a function of the libraries behind this one is; null: nowhere. */
static const void* library_of(const void* function) {
  Dl_info found;
  return function && dladdr(function, &found) ? found.dli_fbase : NULL;
}

/* The sizes are those of another allocator than free(): its memory is not to be asked about. */
static int sizes_are_foreign;

/* The C library's, or that of another one that comes behind this. dlsym() may give memory back,
 * which is lost then: once, and little. Null: there is none yet. */
static void (*next_free(void))(void*) {
  static void (*next)(void*);
  static _Thread_local int looking;
  void (*known)(void*) = __atomic_load_n(&next, __ATOMIC_ACQUIRE);
  if (known || looking) return known;
  looking = 1;
  void* found = dlsym(RTLD_NEXT, "free");
  const void* sizes = library_of(dlsym(RTLD_NEXT, "malloc_usable_size"));
  __atomic_store_n(&sizes_are_foreign, !sizes || sizes != library_of(found), __ATOMIC_RELAXED);
  memcpy(&known, &found, sizeof known);
  __atomic_store_n(&next, known, __ATOMIC_RELEASE);
  looking = 0;
  return known;
}

WEFT_EXPORT void free(void* address) {
  void (*next)(void*) = next_free();
  /* Its size costs more than the first look. */
  if (address && (uintptr_t)address < __atomic_load_n(&weft_memory_watch.high, __ATOMIC_RELAXED))
    tell(address,
         __atomic_load_n(&sizes_are_foreign, __ATOMIC_RELAXED) ? 1 : malloc_usable_size(address));
  if (next) next(address);
}

/* System calls, as the C library makes them: it makes those for its own memory without these. */
WEFT_EXPORT int munmap(void* address, size_t length) {
  tell(address, length);
  return (int)syscall(SYS_munmap, address, length);
}

WEFT_EXPORT void* mremap(void* address, size_t old_length, size_t length, int flags, ...) {
  void* place = NULL;
  if (flags & MREMAP_FIXED) {
    va_list more;
    va_start(more, flags);
    place = va_arg(more, void*);
    va_end(more);
  }
  if (length < old_length) tell((char*)address + length, old_length - length);
  void* now = (void*)syscall(SYS_mremap, address, old_length, length, flags, place);
  if (now != MAP_FAILED && now != address) tell(address, old_length);
  return now;
}

WEFT_EXPORT int madvise(void* address, size_t length, int advice) {
  if (advice == MADV_DONTNEED || advice == MADV_REMOVE || advice == MADV_FREE)
    tell(address, length);
  return (int)syscall(SYS_madvise, address, length, advice);
}
