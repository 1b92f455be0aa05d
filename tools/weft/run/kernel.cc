#include "weft/run/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
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

std::string describe_choice(const KernelRdma& kernel, std::string_view wish) {
  if (kernel.devices.empty()) return {};
  const std::string names = fmt::format("{}", fmt::join(kernel.devices, ", "));
  const bool real = is_real_cm(kernel, wish);
  const std::string other = real        ? "--real-cm=off for weft0"
                            : kernel.cm ? fmt::format("--real-cm=on for {}", names)
                                        : "/dev/infiniband/rdma_cm cannot be opened";
  return fmt::format(
      "this machine has {0}: programs that use rdma_cm get {1} ({2}); others are shown {0} before "
      "weft0, and choose by name",
      names, real ? names : "weft0", other);
}

}  // namespace weft::cli
