// A library of the machine's own rdma-core beside Weft: found by absolute path, loaded only when
// there is a reason to, and never required.
//
// Weft's libraries carry the same SONAMEs, so a plain dlopen() would find Weft itself.
#pragma once

#include <atomic>

namespace weft::ibverbs {

// One library of rdma-core: "libibverbs.so.1" or "librdmacm.so.1". Thread-safe.
class RealLibrary {
 public:
  // `built_against`: where to look first, may be empty. `on_load` runs once, after a success,
  // with the library. The strings must outlive the object.
  using OnLoad = void (*)(const RealLibrary& library);
  constexpr RealLibrary(const char* soname, const char* built_against, OnLoad on_load)
      : soname_(soname), built_against_(built_against), on_load_(on_load) {}

  // Loads it if that was not tried yet. False when there is none.
  bool load();
  // Null when it is not loaded (this does not load it) or has no such symbol.
  [[nodiscard]] void* symbol(const char* name) const;
  // Where it was found, or what was looked for: for messages.
  [[nodiscard]] const char* path() const { return path_; }

 private:
  void* open_first();

  const char* soname_;
  const char* built_against_;
  OnLoad on_load_;
  std::atomic<void*> handle_{nullptr};
  std::atomic<bool> tried_{false};
  char path_[512] = "";
};

}  // namespace weft::ibverbs
