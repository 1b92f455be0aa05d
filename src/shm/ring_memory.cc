#include "shm/ring_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include <cassert>
#include <cerrno>
#include <utility>

#include "os/cancel.h"

#ifndef MFD_NOEXEC_SEAL  // Linux 6.3
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE  // Linux 5.1
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace weft::shm {

namespace {

constexpr std::size_t kControlBytes = 4096;
static_assert(2 * sizeof(RingSide) <= kControlBytes);

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

constexpr std::size_t file_bytes(std::uint32_t bytes) {
  return kControlBytes + 2 * std::size_t{bytes};
}

Error memory_error(int error) {
  return error == ENOMEM || error == ENOSPC ? Error::kNoMemory : Error::kSystem;
}

int open_memory() {
  const int fd = memfd_create("weft-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd >= 0 || errno != EINVAL) return fd;
  return memfd_create("weft-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

// Gives every octet of the file a page, so that no access needs one later.
Status fill_with_pages(int fd, std::uint32_t bytes) {
  const auto size = static_cast<off_t>(file_bytes(bytes));
  const os::NoCancel guard;
  int done = fallocate(fd, 0, 0, size);
  while (done != 0 && errno == EINTR) done = fallocate(fd, 0, 0, size);
  if (done != 0) return fail(memory_error(errno));
  return {};
}

// No page is missing, for sure. Cheaper than filling it once more. More blocks than octets (huge
// pages) say nothing.
bool has_all_pages(int fd, std::uint32_t bytes) {
  constexpr std::size_t kBlock = 512;  // stat(2)
  struct stat file {};
  return fstat(fd, &file) == 0 &&
         static_cast<std::size_t>(file.st_blocks) == file_bytes(bytes) / kBlock;
}

// A file in memory, of that size, for good. Huge pages are refused: they are not filled in advance.
bool is_ring_file(int fd, std::uint32_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) return false;
  struct statfs system {};
  if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) return false;
  struct stat file {};
  return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
         file.st_size == static_cast<off_t>(file_bytes(bytes));
}

}  // namespace

RingMemory::RingMemory(os::Fd file, void* base, std::uint32_t bytes) noexcept
    : file_(std::move(file)), base_(static_cast<std::uint8_t*>(base)), bytes_(bytes) {}

RingMemory::RingMemory(RingMemory&& o) noexcept
    : fork_(o.fork_),
      file_(std::move(o.file_)),
      base_(std::exchange(o.base_, nullptr)),
      bytes_(o.bytes_) {}

RingMemory::~RingMemory() {
  // In a child of fork() something else may be at this address.
  if (base_ != nullptr && !fork_.forked()) munmap(base_, file_bytes(bytes_));
}

Result<RingMemory> RingMemory::map(os::Fd file, std::uint32_t bytes) {
  assert(file && is_ring_size(bytes));
  void* base = mmap(nullptr, file_bytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                    file.get(), 0);
  if (base == MAP_FAILED) return fail(memory_error(errno));
  RingMemory made(std::move(file), base, bytes);
  if (madvise(base, file_bytes(bytes), MADV_DONTFORK) != 0) return fail(Error::kSystem);
  return made;
}

Result<RingMemory> RingMemory::create(std::uint32_t bytes) {
  assert(is_ring_size(bytes));
  os::Fd file = os::Fd::closed_in_child(open_memory());
  if (!file) return fail(Error::kSystem);
  if (ftruncate(file.get(), static_cast<off_t>(file_bytes(bytes))) != 0) {
    return fail(memory_error(errno));
  }
  if (fcntl(file.get(), F_ADD_SEALS, kSizeSeals) != 0) return fail(Error::kSystem);
  if (auto filled = fill_with_pages(file.get(), bytes); !filled) return fail(filled.error());
  return map(std::move(file), bytes);
}

Result<RingMemory> RingMemory::adopt(os::Fd file, std::uint32_t bytes) {
  if (!is_ring_size(bytes) || !is_ring_file(file.get(), bytes)) return fail(Error::kProtocol);
  return map(std::move(file), bytes);
}

Status RingMemory::secure() {
  if (!file_) return {};
  // A process that maps the file from now on can't write, and nobody can punch a hole, not even
  // through a mapping. The two mappings there are go on.
  int added = fcntl(file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  const bool unknown_here = added != 0 && errno == EINVAL;
  if (unknown_here) added = fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SEAL);
  if (added != 0) {
    // The peer was first, which is fine if it did the same.
    const int seals = fcntl(file_.get(), F_GET_SEALS);
    if (seals < 0) return fail(Error::kProtocol);
    if (!unknown_here && (seals & F_SEAL_FUTURE_WRITE) == 0) return fail(Error::kProtocol);
  }
  // The peer may have punched holes before.
  if (!has_all_pages(file_.get(), bytes_)) {
    if (auto filled = fill_with_pages(file_.get(), bytes_); !filled) return filled;
  }
  file_.reset();
  return {};
}

RingSide& RingMemory::side(std::size_t which) const noexcept {
  assert(which < 2 && base_ != nullptr);
  return reinterpret_cast<RingSide*>(base_)[which];
}

std::uint8_t* RingMemory::buffer(std::size_t which) const noexcept {
  assert(which < 2 && base_ != nullptr);
  return base_ + kControlBytes + which * bytes_;
}

}  // namespace weft::shm
