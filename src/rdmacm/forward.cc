#include "rdmacm/forward.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "ibverbs/kernel_devices.h"
#include "os/cancel.h"
#include "os/fd.h"
#include "os/say.h"

namespace weft::rdmacm {
namespace {

// Without a device the machine's own librdmacm fails: "No RDMA devices were detected".
bool kernel_has_rdma_cm() {
  if (!ibverbs::kernel_has_rdma_device()) return false;
  const os::Fd opened(open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC));
  return static_cast<bool>(opened);
}

ibverbs::RealLibrary* choose() {
  const os::NoCancel guard;
  static constinit ibverbs::RealLibrary library("librdmacm.so.1", WEFT_SYSTEM_RDMACM, nullptr);
  const char* wish = secure_getenv("WEFT_REAL_CM");
  const std::string_view text = wish != nullptr ? wish : "auto";
  if (text == "off") return nullptr;
  if (text == "on") {
    if (library.load()) return &library;
    os::say("weft: WEFT_REAL_CM=on, but no real librdmacm.so.1 was found\n");
    return nullptr;
  }
  if (text != "auto") {
    os::say("weft: WEFT_REAL_CM=%s: it can be on, off or auto; taking auto\n", wish);
  }
  return kernel_has_rdma_cm() && library.load() ? &library : nullptr;
}

}  // namespace

ibverbs::RealLibrary* real_cm() {
  static ibverbs::RealLibrary* const chosen = choose();
  return chosen;
}

}  // namespace weft::rdmacm
