// Whether the kernel has RDMA devices of its own.
#pragma once

namespace weft::ibverbs {

// Whether /sys/class/infiniband lists a device. The folder is there, and empty, where only the
// kernel's modules are loaded.
[[nodiscard]] bool kernel_has_rdma_device();

}  // namespace weft::ibverbs
