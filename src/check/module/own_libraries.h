// Weft's libraries in this process: which addresses are theirs, and what their functions are
// called.
//
// Not by dladdr(): it takes the dynamic linker's lock, which a thread that loads a library holds
// while the constructors of that run. They may call Weft and wait for a lock that another thread
// has, and that one would wait here.
#pragma once

#include <link.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::check {

class OwnLibraries {
 public:
  OwnLibraries();  // those that are loaded now

  [[nodiscard]] bool has(const void* address) const;
  // The exported function that `address` is in. Empty: none.
  [[nodiscard]] std::string function_at(const void* address) const;

 private:
  struct Library {
    std::uintptr_t base = 0;
    std::uintptr_t begin = 0;  // of what is loaded
    std::uintptr_t end = 0;
    const ElfW(Dyn) * dynamic = nullptr;
  };
  static int look_at(dl_phdr_info* info, std::size_t size, void* own);
  [[nodiscard]] const Library* library_of(const void* address) const;

  std::array<Library, 8> libraries_;  // without memory: the dynamic linker calls
  std::size_t count_ = 0;
};

}  // namespace weft::check
