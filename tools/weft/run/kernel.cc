#include "weft/run/kernel.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace weft::cli {

KernelRdma look_at_kernel_rdma() {
  KernelRdma out;
  // As on a machine without rdma-core: programs do not see the kernel's devices.
  if (const char* folder = std::getenv("WEFT_REAL_DIR"); folder != nullptr && *folder == '\0') {
    return out;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    const std::string name = entry.path().filename().string();
    // `weft run` shows Weft's device there, to a `weft` that it started too.
    if (!name.starts_with("weft")) out.devices.push_back(name);
  }
  std::ranges::sort(out.devices);
  out.cm = access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0;
  return out;
}

bool is_real_cm(const KernelRdma& kernel, std::string_view wish) {
  if (wish == "on") return true;
  return wish != "off" && kernel.cm && !kernel.devices.empty();
}

}  // namespace weft::cli
