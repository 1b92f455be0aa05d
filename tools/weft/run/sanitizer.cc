#include "weft/run/sanitizer.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <vector>

namespace weft::cli {
namespace {

// Numbers of a file, as far as they are there. The loader looks at it more closely.
template <class T>
bool read_at(std::ifstream& file, std::uint64_t offset, T& out) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&out), sizeof out));
}

std::string text_at(std::ifstream& file, std::uint64_t offset) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  std::string out;
  constexpr std::size_t kMost = 4096;
  for (char c = 0; out.size() < kMost && file.get(c) && c != '\0';) out += c;
  return out;
}

std::vector<Elf64_Phdr> segments_of(std::ifstream& file) {
  Elf64_Ehdr header{};
  if (!read_at(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return {};
  std::vector<Elf64_Phdr> out;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(file, header.e_phoff + i * sizeof segment, segment)) break;
    out.push_back(segment);
  }
  return out;
}

}  // namespace

bool is_sanitizer(std::string_view library) {
  const std::string_view name = library.substr(library.rfind('/') + 1);
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"libasan.so", "libtsan.so", "liblsan.so",
                                              "libhwasan.so", "libclang_rt.asan",
                                              "libclang_rt.tsan", "libclang_rt.hwasan"},
      [&](std::string_view one) { return name.starts_with(one); });
}

std::string sanitizer_of(const std::string& program) {
  std::ifstream file(program, std::ios::binary);
  const std::vector<Elf64_Phdr> segments = segments_of(file);
  const auto dynamic = std::ranges::find(segments, PT_DYNAMIC, &Elf64_Phdr::p_type);
  if (dynamic == segments.end()) return {};
  std::vector<std::uint64_t> names;
  std::uint64_t strings = 0;  // as an address
  constexpr std::uint64_t kMost = 4096;
  for (std::uint64_t i = 0; i < std::min(dynamic->p_filesz / sizeof(Elf64_Dyn), kMost); ++i) {
    Elf64_Dyn entry{};
    if (!read_at(file, dynamic->p_offset + i * sizeof entry, entry) || entry.d_tag == DT_NULL)
      break;
    if (entry.d_tag == DT_NEEDED) names.push_back(entry.d_un.d_val);
    if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
  }
  const auto place = std::ranges::find_if(segments, [&](const Elf64_Phdr& one) {
    return one.p_type == PT_LOAD && strings - one.p_vaddr < one.p_filesz;
  });
  if (place == segments.end()) return {};
  for (const std::uint64_t name : names) {
    std::string library = text_at(file, place->p_offset + (strings - place->p_vaddr) + name);
    if (is_sanitizer(library)) return library;
  }
  return {};
}

std::string preloaded_before(const std::string& entry, std::string_view before) {
  std::string first;
  std::string rest;
  while (!before.empty()) {
    const std::size_t end = std::min(before.find_first_of(": "), before.size());
    const std::string_view one = before.substr(0, end);
    before.remove_prefix(std::min(end + 1, before.size()));
    if (one.empty()) continue;
    if (is_sanitizer(one)) {
      first += std::string(one) + ":";
    } else {
      rest += ":" + std::string(one);
    }
  }
  return first + entry + rest;
}

}  // namespace weft::cli
