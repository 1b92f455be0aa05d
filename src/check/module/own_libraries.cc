#include "check/module/own_libraries.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>

namespace weft::check {
namespace {

bool is_own(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // of none: npos + 1 is 0
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"libibverbs.so", "librdmacm.so", "libweft"},
      [name](std::string_view own) { return name.starts_with(own); });
}

// The dynamic section of a library, as the dynamic linker has left it.
class Dynamic {
 public:
  Dynamic(const ElfW(Dyn) * section, std::uintptr_t base) : section_(section), base_(base) {}

  [[nodiscard]] std::span<const ElfW(Sym)> symbols() const {
    const auto* const first = at<ElfW(Sym)>(DT_SYMTAB);
    const auto* const hash = at<std::uint32_t>(DT_GNU_HASH);
    if (first == nullptr || hash == nullptr) return {};
    return {first, count(hash)};
  }
  [[nodiscard]] const char* strings() const { return at<char>(DT_STRTAB); }

 private:
  // Null: there is none. Some machines leave places as they are in the file.
  template <class T>
  [[nodiscard]] const T* at(ElfW(Sxword) tag) const {
    for (const ElfW(Dyn)* entry = section_; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag != tag) continue;
      const std::uintptr_t place = entry->d_un.d_ptr;
      return reinterpret_cast<const T*>(place < base_ ? base_ + place : place);
    }
    return nullptr;
  }

  // Symbols are in the order of their buckets; the last of each chain has its lowest bit set.
  static std::size_t count(const std::uint32_t* hash) {
    constexpr std::size_t kHeader = 4;
    constexpr std::size_t kWordsOfBloom = sizeof(ElfW(Addr)) / sizeof(std::uint32_t);
    const std::span<const std::uint32_t> buckets(hash + kHeader + hash[2] * kWordsOfBloom, hash[0]);
    const std::uint32_t first = hash[1];
    const std::uint32_t* const chains = buckets.data() + buckets.size();
    std::uint32_t last = buckets.empty() ? 0 : *std::ranges::max_element(buckets);
    if (last < first) return first;
    while ((chains[last - first] & 1U) == 0) ++last;
    return last + 1;
  }

  const ElfW(Dyn) * section_;
  std::uintptr_t base_;
};

}  // namespace

OwnLibraries::OwnLibraries() { dl_iterate_phdr(look_at, this); }

int OwnLibraries::look_at(dl_phdr_info* info, std::size_t /*size*/, void* own) {
  auto& libraries = *static_cast<OwnLibraries*>(own);
  if (!is_own(info->dlpi_name) || libraries.count_ == libraries.libraries_.size()) return 0;
  Library& library = libraries.libraries_.at(libraries.count_++);
  library.base = info->dlpi_addr;
  library.begin = UINTPTR_MAX;
  for (const ElfW(Phdr) & part : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
    const std::uintptr_t at = library.base + part.p_vaddr;
    if (part.p_type == PT_DYNAMIC) library.dynamic = reinterpret_cast<const ElfW(Dyn)*>(at);
    if (part.p_type != PT_LOAD) continue;
    library.begin = std::min(library.begin, at);
    library.end = std::max(library.end, at + part.p_memsz);
  }
  return 0;
}

const OwnLibraries::Library* OwnLibraries::library_of(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Library& one : std::span(libraries_).first(count_)) {
    if (one.begin <= at && at < one.end) return &one;
  }
  return nullptr;
}

bool OwnLibraries::has(const void* address) const { return library_of(address) != nullptr; }

std::string OwnLibraries::function_at(const void* address) const {
  const Library* const library = library_of(address);
  if (library == nullptr || library->dynamic == nullptr) return {};
  const Dynamic dynamic(library->dynamic, library->base);
  const auto offset = reinterpret_cast<std::uintptr_t>(address) - library->base;
  for (const ElfW(Sym) & symbol : dynamic.symbols()) {
    if (symbol.st_shndx == SHN_UNDEF || (symbol.st_info & 0xfU) != STT_FUNC) continue;
    // A return address behind a call that does not return is the function's end.
    if (offset <= symbol.st_value || offset > symbol.st_value + symbol.st_size) continue;
    return dynamic.strings() + symbol.st_name;
  }
  return {};
}

}  // namespace weft::check
