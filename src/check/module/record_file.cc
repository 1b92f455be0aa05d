#include "check/module/record_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "os/fd.h"

namespace weft::check {

using timeline::FileHeader;
using timeline::kHeaderBytes;

namespace {

constexpr std::size_t kRecordBytes = sizeof(timeline::Octets64);
// Storage is reserved in pieces: in a full file system a write to a mapping ends the program by
// SIGBUS.
constexpr std::size_t kPiece = 1U << 20U;

// A file that grows beyond the limit ends the program by SIGXFSZ.
std::size_t allowed(std::size_t bytes) {
  rlimit most{};
  if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return bytes;
  return static_cast<std::size_t>(std::min<rlim_t>(most.rlim_cur, bytes));
}

bool reserve(int fd, std::size_t from, std::size_t bytes) {
  int error = EINTR;
  while (error == EINTR)
    error = posix_fallocate(fd, static_cast<off_t>(from), static_cast<off_t>(bytes));
  errno = error;
  return error == 0;
}

}  // namespace

std::unique_ptr<RecordFile> RecordFile::open(const std::string& path, const FileHeader& header,
                                             std::size_t most, bool keeps_first) {
  const std::size_t bytes = allowed(kHeaderBytes + most * kRecordBytes);
  if (bytes < kHeaderBytes + kRecordBytes) {
    errno = EFBIG;
    return nullptr;
  }
  const os::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd || !reserve(fd.get(), 0, kHeaderBytes)) return nullptr;
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memcpy(memory, &header, sizeof header);
  // Programs close descriptors that are not theirs, so it is opened again to grow.
  return std::unique_ptr<RecordFile>(
      new (std::nothrow) RecordFile(static_cast<std::uint8_t*>(memory), bytes, path, keeps_first));
}

RecordFile::RecordFile(std::uint8_t* memory, std::size_t bytes, std::string path, bool keeps_first)
    : memory_(memory),
      bytes_(bytes),
      path_(std::move(path)),
      keeps_first_(keeps_first),
      capacity_((bytes - kHeaderBytes) / kRecordBytes) {}

RecordFile::~RecordFile() { munmap(memory_, bytes_); }

FileHeader& RecordFile::header() const noexcept { return *reinterpret_cast<FileHeader*>(memory_); }

bool RecordFile::grow() noexcept {
  const std::size_t from = kHeaderBytes + room_ * kRecordBytes;
  const std::size_t piece = std::min(kPiece, bytes_ - from);
  const os::Fd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (piece < kRecordBytes || !fd || !reserve(fd.get(), from, piece)) return false;
  room_ += piece / kRecordBytes;
  return true;
}

void RecordFile::write(const timeline::Octets64& record) noexcept {
  if (slot_ == room_ && (room_ == capacity_ || !grow())) {
    capacity_ = room_;
    if (!keeps_first_) slot_ = 0;
  }
  const std::atomic_ref<std::uint64_t> written(header().written);
  if (slot_ < room_) {
    std::memcpy(memory_ + kHeaderBytes + slot_ * kRecordBytes, record.data(), kRecordBytes);
    ++slot_;
  }
  header().capacity = capacity_;
  written.store(++written_, std::memory_order_release);
}

}  // namespace weft::check
