#include "counted_heap.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

bool counting = false;
unsigned taken = 0;
unsigned failing = 0;

// False: this allocation fails.
bool may_take() { return !counting || ++taken != failing; }

void* take(std::size_t size) { return may_take() ? std::malloc(size) : nullptr; }
void* take_or_throw(std::size_t size) {
  if (void* p = take(size)) return p;
  throw std::bad_alloc();
}

}  // namespace

namespace weft::testing {

void begin_counting(unsigned fails_at) {
  taken = 0;
  failing = fails_at;
  counting = true;
}
unsigned end_counting() {
  counting = false;
  return taken;
}

}  // namespace weft::testing

void* operator new(std::size_t size) { return take_or_throw(size); }
void* operator new[](std::size_t size) { return take_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return take(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return take(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

extern "C" {
void* __real_calloc(std::size_t count, std::size_t size);
void* __wrap_calloc(std::size_t count, std::size_t size) {
  return may_take() ? __real_calloc(count, size) : nullptr;
}
void* __real_aligned_alloc(std::size_t alignment, std::size_t size);
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  return may_take() ? __real_aligned_alloc(alignment, size) : nullptr;
}
}
