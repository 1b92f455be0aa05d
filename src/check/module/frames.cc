#include "check/module/frames.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "check/module/own_libraries.h"

namespace weft::check {
namespace {

constexpr std::size_t kDeepest = 48;  // frames of a backtrace
constexpr std::string_view kDebugFolder = "/usr/lib/debug";

struct FreeIt {
  void operator()(void* memory) const { std::free(memory); }
};

std::string last_part(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

// With its slash; empty: there is none.
std::string directory_of(std::string_view path) {
  return std::string(path.substr(0, path.rfind('/') + 1));
}

// In hexadecimal digits; empty: it has none.
std::string build_id(Dwfl_Module* module) {
  const unsigned char* octets = nullptr;
  GElf_Addr place = 0;
  const int size = dwfl_module_build_id(module, &octets, &place);
  std::string out;
  for (int i = 0; i < size; ++i) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out += kDigits[octets[i] >> 4U];
    out += kDigits[octets[i] & 0xfU];
  }
  return out;
}

std::string plain(const char* name) {
  if (name == nullptr) return {};
  // A compiler's copies of a function have a suffix: f.constprop.0, f(int) [clone .isra.0].
  // A C function's name may be the code of a type: "t" is unsigned short.
  const std::string_view all = name;
  if (!all.starts_with("_Z")) return std::string(all.substr(0, all.find('.', 1)));
  int status = 0;
  const std::unique_ptr<char, FreeIt> clear(abi::__cxa_demangle(name, nullptr, nullptr, &status));
  const std::string_view shown = clear != nullptr ? clear.get() : name;
  return std::string(shown.substr(0, shown.find(" [clone ")));
}

// Inline functions of headers: ibv_post_send, weft_own.
bool is_of_header(std::string_view file) {
  return file.ends_with("infiniband/verbs.h") || file.ends_with("rdma/rdma_verbs.h") ||
         file.ends_with("rdma/rdma_cma.h") || file.ends_with("weft/check.h");
}

// Where debug information of a module may be. `link` names the file; with a checksum the module's
// own, without one what several modules share.
std::vector<std::string> debug_places(Dwfl_Module* module, const char* file, const char* link,
                                      bool shared) {
  const std::string root(kDebugFolder);
  const std::string id = build_id(module);
  std::vector<std::string> out;
  if (!shared && id.size() > 2)
    out.push_back(root + "/.build-id/" + id.substr(0, 2) + "/" + id.substr(2) + ".debug");
  if (link == nullptr) return out;
  const std::string folder = directory_of(file != nullptr ? file : "");
  if (link[0] == '/') out.emplace_back(link);
  out.push_back(folder + link);
  out.push_back(folder + ".debug/" + link);
  out.push_back(root + folder + link);
  return out;
}

// In place of dwfl_standard_find_debuginfo(): where DEBUGINFOD_URLS is set that one asks servers in
// the network, and the program would wait for them.
int find_debug_file(Dwfl_Module* module, void** /*data*/, const char* /*name*/, Dwarf_Addr /*base*/,
                    const char* file, const char* link, GElf_Word checksum, char** found) {
  const bool shared = link != nullptr && checksum == 0;
  for (const std::string& place : debug_places(module, file, link, shared)) {
    const int fd = open(place.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    *found = strdup(place.c_str());
    return fd;
  }
  return -1;
}

// A function of the C library that calls main() or a thread's function.
bool is_start(std::string_view function) {
  return function.starts_with("__libc_start_") || function == "start_thread" ||
         function.starts_with("__clone") || function == "clone";
}

class Symbols {
 public:
  Symbols() : dwfl_(dwfl_begin(&kCallbacks)) { read_modules(); }

  // The frames at `pc`, the innermost inlined function first.
  std::vector<Frame> at(Dwarf_Addr pc) {
    if (dwfl_ == nullptr) return {};
    Dwfl_Module* module = dwfl_addrmodule(dwfl_, pc);
    if (module == nullptr) {
      read_modules();  // one that was loaded since
      module = dwfl_addrmodule(dwfl_, pc);
    }
    if (module == nullptr) return {};
    std::vector<Frame> out = frames_of(module, pc);
    // For addr2line, where there is nothing else to say.
    GElf_Addr bias = 0;
    if (out[0].function.empty() && dwfl_module_getelf(module, &bias) != nullptr) {
      char text[24];
      std::snprintf(text, sizeof text, "+0x%llx", static_cast<unsigned long long>(pc - bias));
      out[0].file += text;
    }
    return out;
  }

 private:
  static constexpr Dwfl_Callbacks kCallbacks = {dwfl_linux_proc_find_elf, find_debug_file, nullptr,
                                                nullptr};

  void read_modules() {
    if (dwfl_ == nullptr) return;
    dwfl_report_begin_add(dwfl_);
    dwfl_linux_proc_report(dwfl_, getpid());
    dwfl_report_end(dwfl_, nullptr, nullptr);
  }

  static Frame innermost(Dwfl_Module* module, Dwarf_Addr pc) {
    Frame frame;
    frame.function = plain(dwfl_module_addrname(module, pc));
    if (Dwfl_Line* line = dwfl_module_getsrc(module, pc)) {
      const char* file = dwfl_lineinfo(line, nullptr, &frame.line, nullptr, nullptr, nullptr);
      if (file != nullptr) frame.file = file;
    }
    return frame;
  }

  static std::vector<Frame> frames_of(Dwfl_Module* module, Dwarf_Addr pc) {
    std::vector<Frame> out{innermost(module, pc)};
    Dwarf_Addr bias = 0;
    Dwarf_Die* unit = dwfl_module_addrdie(module, pc, &bias);
    Dwarf_Files* files = nullptr;
    if (unit == nullptr || dwarf_getsrcfiles(unit, &files, nullptr) != 0) {
      if (out[0].file.empty()) out[0].file = object_file(module);
      return out;
    }
    Dwarf_Die* found = nullptr;
    int count = dwarf_getscopes(unit, pc - bias, &found);
    std::unique_ptr<Dwarf_Die, FreeIt> scopes(found);
    if (count <= 0) return out;
    Dwarf_Die inner = scopes.get()[0];
    count = dwarf_getscopes_die(&inner, &found);
    if (count <= 0) return out;
    scopes.reset(found);
    for (int i = 0; i < count; ++i) {
      Dwarf_Die* scope = &scopes.get()[i];
      if (dwarf_tag(scope) != DW_TAG_inlined_subroutine) continue;
      // The outermost so far is this function; where it was called is a frame around it.
      Frame around;
      around.function = out.back().function;
      if (const char* name = dwarf_diename(scope)) out.back().function = name;
      around.line = static_cast<int>(number(scope, DW_AT_call_line));
      const char* file = dwarf_filesrc(files, number(scope, DW_AT_call_file), nullptr, nullptr);
      if (file != nullptr) around.file = file;
      out.push_back(around);
    }
    return out;
  }

  static Dwarf_Word number(Dwarf_Die* die, unsigned name) {
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (dwarf_attr(die, name, &attribute) != nullptr) dwarf_formudata(&attribute, &value);
    return value;
  }

  static std::string object_file(Dwfl_Module* module) {
    const char* file =
        dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    return file != nullptr ? file : "";
  }

  Dwfl* dwfl_;
};

}  // namespace

Caller look_back() {
  std::array<void*, kDeepest> trace{};
  const auto depth = static_cast<std::size_t>(backtrace(trace.data(), kDeepest));
  const OwnLibraries own;
  Caller out;
  const void* outermost = nullptr;  // of Weft's libraries, before the program's first
  for (void* const address : std::span(trace).first(depth)) {
    const bool is_own = own.has(address);
    if (is_own && out.trace.empty()) outermost = address;
    // A sanitizer stands between this and backtrace().
    if (!is_own && outermost != nullptr) out.trace.push_back(address);
  }
  if (outermost != nullptr) out.call = own.function_at(outermost);
  return out;
}

std::vector<Frame> program_frames(const std::vector<void*>& trace, std::size_t most) {
  static auto* const symbols = new Symbols;  // programs call until their very end
  std::vector<Frame> out;
  for (void* const address : trace) {
    // A return address may be that of the next line.
    for (Frame& frame : symbols->at(reinterpret_cast<std::uintptr_t>(address) - 1)) {
      if (is_of_header(frame.file)) continue;
      if (is_start(frame.function) && !out.empty()) return out;
      frame.file = last_part(frame.file);
      const bool is_main = frame.function == "main";
      out.push_back(std::move(frame));
      if (out.size() == most || is_main) return out;
    }
  }
  return out;
}

}  // namespace weft::check
