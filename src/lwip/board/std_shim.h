// Before every C++ file of a board: what libstdc++ leaves out because newlib's configuration did
// not show it. The function is in runtime.c.
#pragma once
#ifdef __cplusplus
#include <cstdlib>
#ifndef _GLIBCXX_HAVE_ALIGNED_ALLOC
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size);
namespace std {
using ::aligned_alloc;
}
#endif
#endif
