// The operators and hooks of the C++ runtime, without exceptions. An allocation that may not fail
// stops the board when there is no memory.
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

void* or_stop(void* p) {
  if (p == nullptr) std::abort();
  return p;
}

}  // namespace

void* operator new(std::size_t size) { return or_stop(std::malloc(size)); }
void* operator new[](std::size_t size) { return or_stop(std::malloc(size)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

// Types ask to be aligned to cache lines, which matter where there are several cores.
void* operator new(std::size_t size, std::align_val_t, const std::nothrow_t&) noexcept {
  return std::malloc(size);
}
void* operator new[](std::size_t size, std::align_val_t, const std::nothrow_t&) noexcept {
  return std::malloc(size);
}
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

const std::nothrow_t std::nothrow{};

extern "C" {
void __cxa_pure_virtual() { std::abort(); }
int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }  // nothing ends
void* __dso_handle = nullptr;
}

namespace std {
void __throw_bad_alloc() { std::abort(); }
void __throw_length_error(const char*) { std::abort(); }
void __throw_bad_array_new_length() { std::abort(); }
void __throw_bad_optional_access() { std::abort(); }
void __throw_bad_function_call() { std::abort(); }
}  // namespace std
