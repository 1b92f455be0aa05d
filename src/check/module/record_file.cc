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

#include "os/cancel.h"
#include "os/fd.h"
#include "os/guest_output.h"

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

// From its beginning. Null with errno.
void* map(int fd, std::size_t bytes) {
  if (!reserve(fd, 0, kHeaderBytes)) return nullptr;
  // The mapping goes beyond the end: the file is only as long as it has storage.
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory != MAP_FAILED ? memory : nullptr;
}

// A process may be killed meanwhile: the magic makes it a file of records, so it comes last.
void put_header(void* memory, FileHeader header) {
  const auto magic = std::exchange(header.magic, {});
  std::memcpy(memory, &header, sizeof header);
  std::atomic_signal_fence(std::memory_order_release);
  std::memcpy(memory, magic.data(), magic.size());
}

}  // namespace

void say_no_room(const std::string& path, int error) noexcept {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  os::tell_user("weft: --timeline: %s: %s: records are lost\n", path.c_str(), std::strerror(error));
}

std::unique_ptr<RecordFile> RecordFile::open(const std::string& path, const FileHeader& header,
                                             std::size_t most) {
  const std::size_t bytes = allowed(kHeaderBytes + most * kRecordBytes);
  if (bytes < kHeaderBytes + kRecordBytes) {
    errno = EFBIG;
    return nullptr;
  }
  const os::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd) return nullptr;
  void* const memory = map(fd.get(), bytes);
  if (memory == nullptr) {
    const int error = errno;
    unlink(path.c_str());
    errno = error;
    return nullptr;
  }
  put_header(memory, header);
  // Programs close descriptors that are not theirs, so it is opened again to grow.
  return std::unique_ptr<RecordFile>(
      new RecordFile(static_cast<std::uint8_t*>(memory), bytes, path));
}

RecordFile::RecordFile(std::uint8_t* memory, std::size_t bytes, std::string path)
    : memory_(memory),
      bytes_(bytes),
      path_(std::move(path)),
      capacity_((bytes - kHeaderBytes) / kRecordBytes) {}

RecordFile::~RecordFile() { munmap(memory_, bytes_); }

FileHeader& RecordFile::header() const noexcept { return *reinterpret_cast<FileHeader*>(memory_); }

bool RecordFile::grow() noexcept {
  const std::size_t from = kHeaderBytes + room_ * kRecordBytes;
  const std::size_t piece = std::min(kPiece, bytes_ - from);
  const os::NoCancel guard;
  errno = EFBIG;
  if (piece < kRecordBytes || allowed(from + piece) < from + piece) return false;
  const os::Fd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd || !reserve(fd.get(), from, piece)) return false;
  room_ += piece / kRecordBytes;
  return true;
}

void RecordFile::write(const timeline::Octets64& record) noexcept {
  if (slot_ == room_ && room_ < capacity_ && !grow()) {
    say_no_room(path_, errno);
    capacity_ = room_;
  }
  if (slot_ == capacity_) slot_ = 0;
  const std::atomic_ref<std::uint64_t> written(header().written);
  if (slot_ < room_) {
    std::memcpy(memory_ + kHeaderBytes + slot_ * kRecordBytes, record.data(), kRecordBytes);
    ++slot_;
  }
  header().capacity = capacity_;
  written.store(++written_, std::memory_order_release);
}

void RecordFile::set_lost(std::uint64_t records) noexcept { header().lost = records; }

}  // namespace weft::check
