#include "check/module/frames.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <execinfo.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace weft::check {
namespace {

constexpr std::size_t kDeepest = 48;  // frames of a backtrace

struct FreeIt {
  void operator()(void* memory) const { std::free(memory); }
};

std::string last_part(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string plain(const char* name) {
  if (name == nullptr) return {};
  int status = 0;
  const std::unique_ptr<char, FreeIt> clear(abi::__cxa_demangle(name, nullptr, nullptr, &status));
  return clear != nullptr ? clear.get() : name;
}

bool is_of_weft(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  const std::string name = last_part(info.dli_fname);
  for (const std::string_view own : {"libibverbs.so", "librdmacm.so", "libweft"}) {
    if (name.starts_with(own)) return true;
  }
  return false;
}

// Inline functions of rdma-core's headers, such as ibv_post_send.
bool is_of_rdma_core(std::string_view file) {
  return file.ends_with("infiniband/verbs.h") || file.ends_with("rdma/rdma_verbs.h") ||
         file.ends_with("rdma/rdma_cma.h");
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
    return frames_of(module, pc);
  }

 private:
  static constexpr Dwfl_Callbacks kCallbacks = {dwfl_linux_proc_find_elf,
                                                dwfl_standard_find_debuginfo, nullptr, nullptr};

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

std::vector<void*> take_backtrace() {
  std::vector<void*> trace(kDeepest);
  const int count = backtrace(trace.data(), static_cast<int>(trace.size()));
  trace.resize(static_cast<std::size_t>(count));
  return trace;
}

std::vector<Frame> program_frames(const std::vector<void*>& trace, std::size_t most) {
  static auto* const symbols = new Symbols;  // programs call until their very end
  std::vector<Frame> out;
  for (void* const address : trace) {
    if (is_of_weft(address)) continue;
    // A return address may be that of the next line.
    for (Frame& frame : symbols->at(reinterpret_cast<std::uintptr_t>(address) - 1)) {
      if (is_of_rdma_core(frame.file)) continue;
      frame.file = last_part(frame.file);
      const bool is_main = frame.function == "main";
      out.push_back(std::move(frame));
      if (out.size() == most || is_main) return out;
    }
  }
  return out;
}

const void* calling_address(const std::vector<void*>& trace) {
  const auto at = std::ranges::find_if_not(trace, is_of_weft);
  return at != trace.end() ? *at : nullptr;
}

std::string called_function(const std::vector<void*>& trace) {
  const void* outermost = nullptr;
  for (void* const address : trace) {
    if (is_of_weft(address)) {
      outermost = address;
    } else if (outermost != nullptr) {
      break;
    }
  }
  Dl_info info{};
  void* extra = nullptr;
  if (outermost == nullptr || dladdr1(outermost, &info, &extra, RTLD_DL_SYMENT) == 0) return {};
  const auto* symbol = static_cast<const ElfW(Sym)*>(extra);
  if (info.dli_sname == nullptr || symbol == nullptr) return {};
  const auto offset = reinterpret_cast<std::uintptr_t>(outermost) -
                      reinterpret_cast<std::uintptr_t>(info.dli_saddr);
  return offset <= symbol->st_size ? info.dli_sname : "";
}

}  // namespace weft::check
