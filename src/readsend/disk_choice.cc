// Which Disk there is to be had.
#include "readsend/disk_threads.h"
#include "readsend/disk_uring.h"

namespace weft::readsend {

tl::expected<std::unique_ptr<Disk>, int> Disk::create(unsigned depth, Engine engine) {
  if (engine != Engine::kThreads) {
    auto uring = UringDisk::create(depth);
    if (uring || engine == Engine::kUring) return uring;
  }
  return ThreadDisk::create(depth);
}

}  // namespace weft::readsend
