#include "readsend/disk.h"

#include <cerrno>

#include "os/event_fd.h"

namespace weft::readsend {

Disk::~Disk() = default;

int Disk::open_event() {
  event_ = os::make_event();
  return event_ ? 0 : errno;
}

void Disk::clear_event() const { (void)os::lower_event(event_.get()); }

}  // namespace weft::readsend
