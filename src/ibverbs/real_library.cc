#include "ibverbs/real_library.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/cancel.h"
#include "os/lock.h"
#include "os/say.h"

namespace weft::ibverbs {
namespace {

#if defined(__x86_64__)
#define WEFT_TRIPLET "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define WEFT_TRIPLET "aarch64-linux-gnu"
#elif defined(__powerpc64__)
#define WEFT_TRIPLET "powerpc64le-linux-gnu"
#else
#define WEFT_TRIPLET "."
#endif

constexpr std::array kSystemDirs = {
    "/usr/lib/" WEFT_TRIPLET, "/lib/" WEFT_TRIPLET, "/usr/lib64", "/lib64", "/usr/lib", "/lib"};

// Whether the file at `path` is one of Weft's own libraries: the one this code is in, or one in the
// same directory.
bool is_weft(const char* path) {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&is_weft), &self) == 0) return false;
  char own_dir[512];
  std::snprintf(own_dir, sizeof own_dir, "%s", self.dli_fname);
  char* slash = std::strrchr(own_dir, '/');
  if (slash == nullptr) return false;
  *slash = '\0';
  char dir[512];
  std::snprintf(dir, sizeof dir, "%s", path);
  slash = std::strrchr(dir, '/');
  if (slash != nullptr) *slash = '\0';
  struct stat own {};
  struct stat other {};
  return stat(own_dir, &own) == 0 && stat(dir, &other) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

void* open_at(const char* path) {
  const os::NoCancel guard;
  if (path[0] != '/' || is_weft(path)) return nullptr;
  struct stat found {};
  if (stat(path, &found) != 0) return nullptr;
  void* handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    os::say("weft: the real library %s is there but cannot be loaded: %s\n", path, dlerror());
  }
  return handle;
}

}  // namespace

void* RealLibrary::open_first() {
  // A directory, or empty for none at all: as if the machine had no rdma-core.
  if (const char* chosen = secure_getenv("WEFT_REAL_DIR"); chosen != nullptr) {
    if (chosen[0] == '\0') return nullptr;
    std::snprintf(path_, sizeof path_, "%s/%s", chosen, soname_);
    return open_at(path_);
  }
  std::snprintf(path_, sizeof path_, "%s", built_against_);
  if (void* handle = open_at(path_); handle != nullptr) return handle;
  for (const char* dir : kSystemDirs) {
    std::snprintf(path_, sizeof path_, "%s/%s", dir, soname_);
    if (void* handle = open_at(path_); handle != nullptr) return handle;
  }
  std::snprintf(path_, sizeof path_, "%s", soname_);
  return nullptr;
}

bool RealLibrary::load() {
  if (!tried_.load(std::memory_order_acquire)) {
    static os::Mutex mutex;
    const os::MutexLock lock(mutex);
    if (!tried_.load(std::memory_order_relaxed)) {
      handle_.store(open_first(), std::memory_order_release);
      tried_.store(true, std::memory_order_release);
      if (on_load_ != nullptr && handle_.load() != nullptr) on_load_(*this);
    }
  }
  return handle_.load(std::memory_order_acquire) != nullptr;
}

void* RealLibrary::symbol(const char* name) const {
  void* handle = handle_.load(std::memory_order_acquire);
  return handle != nullptr ? dlsym(handle, name) : nullptr;
}

}  // namespace weft::ibverbs
