#include "weft/run/program.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kInterpreterDepth = 4;  // as the kernel allows

bool has_dropin(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "libibverbs.so.1", ignored);
}

// lib/weft, lib64/weft, lib/x86_64-linux-gnu/weft...
Outcome<std::string> search_beside(const fs::path& prefix) {
  std::error_code error;
  std::vector<fs::path> folders = {prefix / "lib", prefix / "lib64"};
  for (const auto& entry : fs::directory_iterator(prefix / "lib", error)) {
    if (entry.is_directory(error)) folders.push_back(entry.path());
  }
  for (const fs::path& folder : folders) {
    if (has_dropin(folder / "weft")) return (folder / "weft").lexically_normal().string();
  }
  return failure(
      fmt::format("Weft's libibverbs.so.1 is not in {}/lib*/weft. It is built where rdma-core's "
                  "headers are (Debian: libibverbs-dev librdmacm-dev); WEFT_LIB_DIR names another "
                  "place",
                  prefix.string()));
}

bool may_execute(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// The first bytes of a file, as many as are there.
std::vector<char> read_head(const std::string& path, std::size_t length) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> head(length);
  file.read(head.data(), static_cast<std::streamsize>(length));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return head;
}

// The interpreter of a "#!" line, or nothing.
std::string interpreter_of(const std::vector<char>& head) {
  if (head.size() < 3 || head[0] != '#' || head[1] != '!') return {};
  std::string line(head.begin() + 2, head.end());
  line.resize(std::min(line.size(), line.find('\n')));
  const std::size_t start = line.find_first_not_of(" \t");
  if (start == std::string::npos) return {};
  const std::size_t end = line.find_first_of(" \t", start);
  return line.substr(start, end == std::string::npos ? end : end - start);
}

Outcome<void> check_privileges(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return {};
  const bool other_user = (found.st_mode & S_ISUID) != 0 && found.st_uid != geteuid();
  const bool other_group = (found.st_mode & S_ISGID) != 0 && found.st_gid != getegid();
  const bool capabilities =
      getuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  if (!other_user && !other_group && !capabilities) return {};
  return failure(fmt::format(
      "{} gains privileges when it starts ({}), and the system then ignores LD_LIBRARY_PATH and "
      "LD_PRELOAD. Run a copy without them: cp {} /tmp && weft run -- /tmp/{}",
      path,
      capabilities ? "file capabilities"
      : other_user ? "set-user-id"
                   : "set-group-id",
      path, fs::path(path).filename().string()));
}

Outcome<void> check_elf(const std::string& path) {
  // Program headers follow the file header in practice; one page holds both.
  const std::vector<char> head = read_head(path, 4096);
  Elf64_Ehdr file{};
  if (head.size() < sizeof file) return {};  // not ELF: exec will say what is wrong
  std::memcpy(&file, head.data(), sizeof file);
  if (std::memcmp(file.e_ident, ELFMAG, SELFMAG) != 0) return {};
  const std::vector<char> own = read_head("/proc/self/exe", sizeof(Elf64_Ehdr));
  Elf64_Ehdr self{};
  if (own.size() == sizeof self) std::memcpy(&self, own.data(), sizeof self);
  if (file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_machine != self.e_machine) {
    return failure(fmt::format(
        "{} is for another processor than Weft's libraries, which it could not load", path));
  }
  for (unsigned i = 0; i < file.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const std::size_t at = file.e_phoff + i * sizeof segment;
    if (at + sizeof segment > head.size()) return {};
    std::memcpy(&segment, head.data() + at, sizeof segment);
    if (segment.p_type == PT_INTERP) return {};
  }
  return failure(fmt::format(
      "{} is statically linked: it carries its own libibverbs, which cannot be replaced. Build it "
      "against the shared libraries",
      path));
}

Outcome<void> check_file(const std::string& path, int depth) {
  if (auto fine = check_privileges(path); !fine) return fine;
  const std::string interpreter = interpreter_of(read_head(path, 256));
  if (!interpreter.empty() && depth < kInterpreterDepth) return check_file(interpreter, depth + 1);
  return check_elf(path);
}

}  // namespace

Outcome<std::string> find_dropin_folder() {
  if (const char* chosen = std::getenv("WEFT_LIB_DIR"); chosen != nullptr && chosen[0] != '\0') {
    const fs::path folder = fs::path(chosen) / "weft";
    if (has_dropin(folder)) return fs::absolute(folder).string();
    return failure(
        fmt::format("WEFT_LIB_DIR is {}, and there is no weft/libibverbs.so.1 in it", chosen));
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return failure(fmt::format("/proc/self/exe: {}", error.message()));
  return search_beside(self.parent_path().parent_path());
}

Outcome<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (may_execute(name)) return name;
    if (access(name.c_str(), F_OK) != 0) {
      return failure(fmt::format("{}: {}", name, std::strerror(errno)), 127);
    }
    return failure(fmt::format("{}: this file cannot be executed", name), kExitCannotExecute);
  }
  const char* variable = std::getenv("PATH");
  std::string path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  std::size_t start = 0;
  while (start <= path.size()) {
    const std::size_t end = std::min(path.find(':', start), path.size());
    const std::string folder = end > start ? path.substr(start, end - start) : ".";
    const std::string candidate = fmt::format("{}/{}", folder, name);
    if (may_execute(candidate)) return candidate;
    start = end + 1;
  }
  return failure(fmt::format("there is no program {} in PATH", name), 127);
}

Outcome<void> check_program(const std::string& path) { return check_file(path, 0); }

}  // namespace weft::cli
