#include "verbs/memory_probe.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/system_error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

namespace weft::verbs {

namespace {

// Of <linux/mman.h>, which may be older than the kernel (Linux 5.14).
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

// The system calls are made without the C library: there open, read and others are points where a
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
  // Of this thread, since /proc/self is the main thread: its list is empty once that has ended.
  // Before Linux 3.17 there is no thread-self.
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
  [[nodiscard]] long read(char* to, std::size_t size) const {
    return syscall(SYS_read, fd_, to, size);
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
  // Mappings before at() are skipped.
  void take(const ProbedMapping& m) {
    if (m.end <= at_) return;
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

// False: this kernel has no such query.
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

// "7f00-7fff rw-p 00000000 08:01 1234   /path": proc_pid_maps(5).
std::optional<ProbedMapping> parse_mapping(std::string_view line) {
  ProbedMapping m;
  const char* const end = line.data() + line.size();
  const auto begin_part = std::from_chars(line.data(), end, m.begin, 16);
  if (begin_part.ec != std::errc{} || begin_part.ptr == end || *begin_part.ptr != '-') return {};
  const auto end_part = std::from_chars(begin_part.ptr + 1, end, m.end, 16);
  if (end_part.ec != std::errc{} || end - end_part.ptr < 5) return {};
  m.readable = end_part.ptr[1] == 'r';
  m.writable = end_part.ptr[2] == 'w';
  std::string_view rest = line.substr(static_cast<std::size_t>(end_part.ptr - line.data()));
  for (int skipped = 0; skipped < 4; ++skipped) {  // the blank, rights, offset, device
    const std::size_t blank = rest.find(' ');
    if (blank == std::string_view::npos) return {};
    rest.remove_prefix(blank + 1);
  }
  m.of_file = !rest.starts_with("0 ") && rest != "0";
  return m;
}

// False: there is no list to be read.
bool check_by_list(const OpenMaps& maps, RangeCheck& check) {
  std::array<char, 32768> buffer;  // a line has at most 4096 bytes of path, each perhaps as "\ooo"
  std::size_t filled = 0;
  for (bool empty = true; !check.done(); empty = false) {
    const long got = maps.read(buffer.data() + filled, buffer.size() - filled);
    if (got < 0 || (got == 0 && empty)) return false;
    if (got == 0) check.fail("is not mapped");
    filled += static_cast<std::size_t>(got);
    std::string_view lines(buffer.data(), filled);
    for (std::size_t length = 0; (length = lines.find('\n')) != std::string_view::npos;) {
      const auto mapping = parse_mapping(lines.substr(0, length));
      lines.remove_prefix(length + 1);
      if (mapping && !check.done()) check.take(*mapping);
    }
    std::copy(lines.begin(), lines.end(), buffer.begin());
    filled = lines.size();
  }
  return true;
}

// Finds what is not mapped, and nothing else. It needs no file.
Unusable check_for_holes(std::uintptr_t begin, std::uintptr_t end) {
  constexpr int kAsync = 1;  // MS_ASYNC: nothing is written
  if (syscall(SYS_msync, begin, end - begin, kAsync) == 0 || errno != ENOMEM) return {};
  return fault_at(begin, "is not mapped");
}

}  // namespace

Unusable probe_mappings(std::uintptr_t begin, std::uintptr_t end, bool writable, MappingsBy by) {
  const OpenMaps maps;
  RangeCheck check(begin, end, writable);
  const bool known = maps.is_open() && ((by == MappingsBy::kQuery && check_by_query(maps, check)) ||
                                        check_by_list(maps, check));
  // Without /proc, or without a descriptor, the rights cannot be known. What is unmapped can.
  return known ? check.result() : check_for_holes(begin, end);
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
  // What the kernel does not populate may be usable all the same: memory of devices. An older
  // kernel knows no populating.
  const Unusable found = probe_mappings(begin, end, writable, MappingsBy::kQuery);
  if (found || error == 0 || error == EINVAL) return found;
  if (error == ENOMEM) return UnusableMemory{begin, "has no memory left", Error::kNoMemory};
  if (error == EFAULT || error == EHWPOISON) return fault_at(begin, "cannot be touched");
  return {};
}

}  // namespace weft::verbs
