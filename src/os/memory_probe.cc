#include "os/memory_probe.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <weft/system_error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::os {

namespace {

// From <linux/mman.h>, which may be older than the kernel (Linux 5.14).
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;

// PROCMAP_QUERY of <linux/fs.h> (Linux 6.11): asks an open /proc/self/maps for one mapping.
struct MappingQuery {
  std::uint64_t size = sizeof(MappingQuery);
  std::uint64_t query_flags = 0;  // the mapping that covers query_addr
  std::uint64_t query_addr = 0;
  std::uint64_t begin = 0, end = 0, flags = 0, page_size = 0, offset = 0, inode = 0;
  std::uint32_t dev_major = 0, dev_minor = 0, name_size = 0, build_id_size = 0;
  std::uint64_t name_addr = 0, build_id_addr = 0;
};
static_assert(sizeof(MappingQuery) == 104);
constexpr unsigned long kQueryMapping = _IOWR('f', 17, MappingQuery);
constexpr std::uint64_t kQueryReadable = 1;
constexpr std::uint64_t kQueryWritable = 2;

struct ProbedMapping {
  std::uintptr_t begin = 0, end = 0;
  bool readable = false, writable = false;
  bool of_file = false;
};

using Unusable = std::optional<UnusableMemory>;

Unusable fault_at(std::uintptr_t at, const char* why) {
  return UnusableMemory{at, why, system_error(EFAULT)};
}

// The system calls are made without the C library: there open and others are points where a
// thread may be cancelled, which registering memory is not.

std::uintptr_t probe_page_size() {
  static const auto size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

int populate(std::uintptr_t begin, std::uintptr_t end, int how) {
  return syscall(SYS_madvise, begin, end - begin, how) == 0 ? 0 : errno;
}

class OpenMaps {
 public:
  // The maps of this thread, since /proc/self is the main thread, which has no mappings once it has
  // ended. Before Linux 3.17 there is no thread-self.
  OpenMaps() : fd_(open_path("/proc/thread-self/maps")) {
    if (fd_ < 0 && errno == ENOENT) fd_ = open_path("/proc/self/maps");
  }
  ~OpenMaps() {
    if (is_open()) syscall(SYS_close, fd_);
  }
  OpenMaps(const OpenMaps&) = delete;
  OpenMaps& operator=(const OpenMaps&) = delete;
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int query(MappingQuery& query) const {
    return syscall(SYS_ioctl, fd_, kQueryMapping, &query) == 0 ? 0 : errno;
  }

 private:
  static int open_path(const char* path) {
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  }
  int fd_;
};

// Goes through the mappings of a range in the order of their addresses.
class RangeCheck {
 public:
  RangeCheck(std::uintptr_t begin, std::uintptr_t end, bool writable)
      : at_(begin), end_(end), writable_(writable) {}

  [[nodiscard]] bool done() const { return at_ >= end_ || result_; }
  [[nodiscard]] std::uintptr_t at() const { return at_; }
  [[nodiscard]] Unusable result() const { return result_; }

  void fail(const char* why) { result_ = fault_at(at_, why); }
  void take(const ProbedMapping& m) {  // it ends behind at()
    if (m.begin > at_) return fail("is not mapped");
    if (!m.readable && !writable_) return fail("cannot be read");
    if (!m.writable && writable_) return fail("cannot be written");
    const std::uintptr_t end = std::min(m.end, end_);
    if (m.of_file && populate(end - probe_page_size(), end, kPopulateRead) == EFAULT) {
      at_ = end - probe_page_size();
      return fail("is behind the end of its file, or has no huge page");
    }
    at_ = end;
  }

 private:
  std::uintptr_t at_;
  const std::uintptr_t end_;
  const bool writable_;
  Unusable result_;
};

// False: the kernel does not answer.
bool check_by_query(const OpenMaps& maps, RangeCheck& check) {
  while (!check.done()) {
    MappingQuery query;
    query.query_addr = check.at();
    const int error = maps.query(query);
    if (error == ENOENT) {
      check.fail("is not mapped");
    } else if (error != 0) {
      return false;
    } else {
      check.take({.begin = static_cast<std::uintptr_t>(query.begin),
                  .end = static_cast<std::uintptr_t>(query.end),
                  .readable = (query.flags & kQueryReadable) != 0,
                  .writable = (query.flags & kQueryWritable) != 0,
                  .of_file = query.inode != 0});
    }
  }
  return true;
}

// Finds the first page that is not mapped. The cost grows with the mappings in the range only.
Unusable check_for_holes(std::uintptr_t begin, std::uintptr_t end) {
  constexpr int kAsync = 1;  // MS_ASYNC: nothing is written
  const auto has_hole = [](std::uintptr_t from, std::uintptr_t to) {
    return syscall(SYS_msync, from, to - from, kAsync) != 0 && errno == ENOMEM;
  };
  if (!has_hole(begin, end)) return {};
  const std::uintptr_t page = probe_page_size();
  while (end - begin > page) {
    const std::uintptr_t half = begin + (end - begin) / page / 2 * page;
    (has_hole(begin, half) ? end : begin) = half;
  }
  return fault_at(begin, "is not mapped");
}

// EINVAL: the kernel does not populate memory without the right, nor memory of devices, and older
// kernels populate nothing. A page that can be populated for reading only is read-only.
Unusable check_rights(std::uintptr_t page, bool writable) {
  const std::uintptr_t end = page + probe_page_size();
  const int error = populate(page, end, writable ? kPopulateWrite : kPopulateRead);
  if (error == EFAULT) return fault_at(page, "is behind the end of its file, or has no huge page");
  if (error == EINVAL && writable && populate(page, end, kPopulateRead) == 0) {
    return fault_at(page, "cannot be written");
  }
  return {};
}

// For kernels without queries. The list of all mappings is not read: it would cost every
// registration more the more mappings the process has.
Unusable check_without_query(std::uintptr_t begin, std::uintptr_t end, bool writable) {
  if (const Unusable hole = check_for_holes(begin, end)) return hole;
  const std::uintptr_t page = probe_page_size();
  const bool every_page = end - begin <= kTouchedMax + page;
  const std::uintptr_t step = every_page ? page : end - begin - page;
  for (std::uintptr_t at = begin; at < end; at += step) {
    if (const Unusable wrong = check_rights(at, writable)) return wrong;
  }
  return {};
}

}  // namespace

Unusable probe_mappings(std::uintptr_t begin, std::uintptr_t end, bool writable, MappingsBy by) {
  if (by == MappingsBy::kQuery) {
    const OpenMaps maps;
    RangeCheck check(begin, end, writable);
    if (maps.is_open() && check_by_query(maps, check)) return check.result();
  }
  return check_without_query(begin, end, writable);
}

Unusable probe_memory(const void* addr, std::size_t length, bool writable) {
  if (length == 0) return {};
  const std::uintptr_t page = probe_page_size();
  const auto first = reinterpret_cast<std::uintptr_t>(addr);
  const std::uintptr_t begin = first / page * page;
  const std::uintptr_t end = ((first + length - 1) / page + 1) * page;
  if (end <= begin) return fault_at(first, "is not mapped");  // beside the end of the address space
  int error = 0;
  if (length <= kTouchedMax) {
    error = populate(begin, end, writable ? kPopulateWrite : kPopulateRead);
    if (error == 0) return {};
  }
  // Memory that the kernel does not populate may be usable all the same: memory of devices. An
  // older kernel knows no populating.
  const Unusable found = probe_mappings(begin, end, writable, MappingsBy::kQuery);
  if (found || error == 0 || error == EINVAL) return found;
  if (error == ENOMEM) return UnusableMemory{begin, "has no memory left", Error::kNoMemory};
  if (error == EFAULT || error == EHWPOISON) return fault_at(begin, "cannot be touched");
  return {};
}

bool copy_if_mapped(void* to, const void* from, std::size_t size) {
  const iovec source{const_cast<void*>(from), size};
  const iovec target{to, size};
  const ssize_t copied = process_vm_writev(getpid(), &source, 1, &target, 1, 0);
  if (copied >= 0) return static_cast<std::size_t>(copied) == size;
  if (errno == EFAULT) return false;
  std::memcpy(to, from, size);
  return true;
}

}  // namespace weft::os
