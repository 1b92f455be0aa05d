#include "weft/common/beside.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace weft::cli {

Outcome<std::string> find_beside(const std::string& program, const std::string& needs) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& at : {self / program, self / "../libexec/weft" / program}) {
    if (access(at.c_str(), X_OK) == 0) return at.lexically_normal().string();
  }
  return failure(fmt::format("{1} is not in {0} nor in {0}/../libexec/weft. It is built where {2}",
                             self.string(), program, needs));
}

}  // namespace weft::cli
