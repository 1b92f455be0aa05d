// The RDMA devices of the kernel, beside which Weft's stands, and which of them programs get under
// `weft run`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

struct KernelRdma {
  std::vector<std::string> devices;  // names in /sys/class/infiniband, in order
  bool cm = false;                   // /dev/infiniband/rdma_cm can be opened
};
[[nodiscard]] KernelRdma look_at_kernel_rdma();

// Whether rdma_cm is the machine's own under WEFT_REAL_CM=`wish` ("auto", "on" or "off"; others
// count as auto). As src/rdmacm/forward.cc decides it.
[[nodiscard]] bool is_real_cm(const KernelRdma& kernel, std::string_view wish);

// One line that says which device programs get and how to choose the other one. Empty: the kernel
// has none.
[[nodiscard]] std::string describe_choice(const KernelRdma& kernel, std::string_view wish);

}  // namespace weft::cli
