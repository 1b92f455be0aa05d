#include "readsend/disk.h"

#include <cerrno>

#include "os/event_fd.h"
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

Disk::~Disk() = default;

int Disk::open_event() {
  event_ = os::make_event();
  return event_ ? 0 : errno;
}

void Disk::clear_event() const { (void)os::lower_event(event_.get()); }

}  // namespace weft::readsend
