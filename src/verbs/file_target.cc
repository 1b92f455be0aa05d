// FileTarget: placement into a file, and octets out of it, by a thread that may wait for the disk.
#include <weft/placement.h>

#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#include <weft/limits.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "os/calls.h"
#include "os/clock.h"
#include "os/lock.h"
#include "os/signals_blocked.h"

namespace weft {

namespace {

// 0 or an errno.
int write_all(int fd, const std::uint8_t* data, std::size_t bytes, std::uint64_t offset) {
  while (bytes != 0) {
    const ssize_t took = pwrite(fd, data, bytes, static_cast<off_t>(offset));
    if (took < 0 && errno == EINTR) continue;
    if (took <= 0) return took < 0 ? errno : EIO;
    data += took;
    bytes -= static_cast<std::size_t>(took);
    offset += static_cast<std::uint64_t>(took);
  }
  return 0;
}

// Octets read, fewer where the file ends, or a negative errno.
ssize_t read_all(int fd, std::uint8_t* to, std::size_t bytes, std::uint64_t offset) {
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t n = pread(fd, to + got, bytes - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(got);
}

// The disk is asked for this much beyond the bytes that are wanted at once.
constexpr off_t kReadAhead = off_t{4} << 20U;
// Bytes read for one connection are kept for this long before another one gets the buffer.
constexpr auto kKept = std::chrono::milliseconds(20);

}  // namespace

// Octets that were not in the page cache, for the connection that asked. It asks again, for all
// ranges of an FPDU at once; so there are as many of these as an FPDU may have ranges. Most have no
// memory.
struct ReadAhead {
  enum class State : std::uint8_t { kEmpty, kWanted, kThere };
  State state = State::kEmpty;
  std::uint64_t offset = 0;  // in the file
  std::size_t wanted = 0;
  ssize_t got = 0;  // or a negative errno
  Instant since;
  std::unique_ptr<std::uint8_t[]> data;  // the thread's while kWanted

  [[nodiscard]] bool covers(std::uint64_t from, std::size_t bytes) const {
    return state == State::kThere && got >= 0 && from >= offset &&
           from - offset <= static_cast<std::uint64_t>(got) &&
           bytes <= static_cast<std::uint64_t>(got) - (from - offset);
  }
  // Whoever goes on where it ends is the one it was read for.
  [[nodiscard]] bool ends_at(std::uint64_t from) const {
    return state == State::kThere && got > 0 && from > offset &&
           from - offset <= static_cast<std::uint64_t>(got);
  }
};

// The buffers are a ring: the thread writes the oldest, the peer fills the youngest. Each holds
// octets that lie next to each other in the file.
struct FileTarget::Writer {
  struct Buffer {
    std::unique_ptr<std::uint8_t[]> data;
    std::uint64_t offset = 0;  // in the file
    std::size_t bytes = 0;
  };

  Writer(int file, std::uint64_t first, std::size_t count)
      : fd(file), file_offset(first), ring(count) {
    for (Buffer& one : ring) one.data.reset(new std::uint8_t[kBufferBytes]);
  }

  [[nodiscard]] Buffer& at(std::uint64_t number) WEFT_REQUIRES(mutex) {
    return ring[number % ring.size()];
  }
  // Octets that fit behind `offset` now.
  [[nodiscard]] std::size_t room(std::uint64_t offset) WEFT_REQUIRES(mutex) {
    const std::size_t unused = ring.size() - static_cast<std::size_t>(tail - head);
    return unused * kBufferBytes + (goes_on(offset) ? kBufferBytes - at(tail - 1).bytes : 0);
  }
  // The youngest buffer ends there, and the thread has not begun with it.
  [[nodiscard]] bool goes_on(std::uint64_t offset) WEFT_REQUIRES(mutex) {
    if (tail == head || (writing && tail - 1 == head)) return false;
    const Buffer& last = at(tail - 1);
    return last.offset + last.bytes == offset && last.bytes < kBufferBytes;
  }
  void run();
  void read_ahead(ReadAhead& ahead) WEFT_REQUIRES(mutex);
  [[nodiscard]] ReadAhead* wanted() WEFT_REQUIRES(mutex);
  [[nodiscard]] ReadAhead* place_for(std::uint64_t offset) WEFT_REQUIRES(mutex);
  [[nodiscard]] Placed from_buffer(std::uint64_t offset, std::span<std::uint8_t> octets)
      WEFT_REQUIRES(mutex);

  const int fd;
  const std::uint64_t file_offset;
  os::Mutex mutex;
  os::Condition work, idle;
  std::vector<Buffer> ring WEFT_GUARDED_BY(mutex);
  // Free-running.
  std::uint64_t head WEFT_GUARDED_BY(mutex) = 0, tail WEFT_GUARDED_BY(mutex) = 0;
  bool writing WEFT_GUARDED_BY(mutex) = false;  // the thread is at `head`
  bool ends WEFT_GUARDED_BY(mutex) = false;
  int error WEFT_GUARDED_BY(mutex) = 0;
  std::array<ReadAhead, limits::kSgesPerRequest> aheads WEFT_GUARDED_BY(mutex);
  int read_error WEFT_GUARDED_BY(mutex) = 0;
  std::thread thread;
};

void FileTarget::Writer::run() {
  os::MutexLock lock(mutex);
  for (;;) {
    while (head == tail && !ends && wanted() == nullptr) work.wait(mutex);
    if (head == tail && ends) return;
    if (ReadAhead* const ahead = wanted()) read_ahead(*ahead);
    if (head == tail) continue;
    const Buffer& oldest = at(head);
    writing = true;
    const bool good = error == 0;  // behind a gap nothing more is written
    lock.unlock();
    const int result = good ? write_all(fd, oldest.data.get(), oldest.bytes, oldest.offset) : 0;
    lock.lock();
    if (error == 0) error = result;
    writing = false;
    ++head;
    idle.notify_all();
  }
}

ReadAhead* FileTarget::Writer::wanted() {
  for (ReadAhead& one : aheads) {
    if (one.state == ReadAhead::State::kWanted) return &one;
  }
  return nullptr;
}

// Where the octets at `offset` are to be read; null: each place is somebody's.
ReadAhead* FileTarget::Writer::place_for(std::uint64_t offset) {
  using State = ReadAhead::State;
  for (ReadAhead& one : aheads) {
    if (one.ends_at(offset)) return &one;
  }
  const auto old = os::now() - kKept;
  for (ReadAhead& one : aheads) {
    if (one.state == State::kEmpty || (one.state == State::kThere && one.since < old)) return &one;
  }
  return nullptr;
}

// Without the lock while it reads.
void FileTarget::Writer::read_ahead(ReadAhead& ahead) {
  mutex.unlock();
  static_cast<void>(
      posix_fadvise(fd, static_cast<off_t>(ahead.offset), kReadAhead, POSIX_FADV_WILLNEED));
  if (ahead.data == nullptr) ahead.data.reset(new (std::nothrow) std::uint8_t[kBufferBytes]);
  ssize_t got = -ENOMEM;
  if (ahead.data != nullptr) got = read_all(fd, ahead.data.get(), kBufferBytes, ahead.offset);
  if (got >= 0 && static_cast<std::size_t>(got) < ahead.wanted) got = -ENODATA;
  mutex.lock();
  ahead.got = got;
  ahead.since = os::now();
  ahead.state = ReadAhead::State::kThere;
}

// The bytes that the thread has read, or a request to read them.
Placed FileTarget::Writer::from_buffer(std::uint64_t offset, std::span<std::uint8_t> octets) {
  using State = ReadAhead::State;
  for (ReadAhead& one : aheads) {
    if (one.state == State::kWanted && one.offset == offset) return Placed::kLater;
    if (one.state == State::kThere && one.offset == offset && one.got < 0) {
      read_error = static_cast<int>(-one.got);
      one.state = State::kEmpty;
      return Placed::kRefused;
    }
    if (!one.covers(offset, octets.size())) continue;
    const std::uint64_t skip = offset - one.offset;
    std::memcpy(octets.data(), one.data.get() + skip, octets.size());
    if (octets.size() == static_cast<std::uint64_t>(one.got) - skip) one.state = State::kEmpty;
    return Placed::kTaken;
  }
  if (ReadAhead* const place = place_for(offset)) {
    place->state = State::kWanted;
    place->offset = offset;
    place->wanted = octets.size();
    work.notify_one();
  }
  return Placed::kLater;
}

Result<std::shared_ptr<FileTarget>> FileTarget::create(int fd, std::uint64_t file_offset,
                                                       std::size_t buffers) {
  if (fd < 0 || buffers < 2) return fail(Error::kInvalidArgument);
  try {
    auto writer = std::make_unique<Writer>(fd, file_offset, buffers);
    writer->thread = os::start_thread([w = writer.get()] { w->run(); });
    return std::shared_ptr<FileTarget>(new FileTarget(std::move(writer)));
  } catch (const std::bad_alloc&) {
    return fail(Error::kNoMemory);
  } catch (const std::system_error&) {
    return fail(Error::kLimitExceeded);
  }
}

FileTarget::FileTarget(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}

FileTarget::~FileTarget() {
  {
    const os::MutexLock lock(writer_->mutex);
    writer_->ends = true;
    writer_->work.notify_one();
  }
  const os::NoCancel guard;
  writer_->thread.join();
}

int FileTarget::flush() {
  const os::NoCancel guard;
  const os::MutexLock lock(writer_->mutex);
  const std::uint64_t placed = writer_->tail;  // peers may place more meanwhile
  while (writer_->head < placed) writer_->idle.wait(writer_->mutex);
  return writer_->error;
}

int FileTarget::read_error() const {
  const os::MutexLock lock(writer_->mutex);
  return writer_->read_error;
}

Placed FileTarget::fetch(std::uint64_t offset, std::span<std::uint8_t> octets) noexcept {
  Writer& w = *writer_;
  if (octets.size() > kBufferBytes) return Placed::kRefused;
  const std::uint64_t at = w.file_offset + offset;
  const iovec all{octets.data(), octets.size()};
  const ssize_t got = os::calls::preadv2(w.fd, &all, 1, static_cast<off_t>(at), RWF_NOWAIT);
  const os::MutexLock lock(w.mutex);
  if (got != static_cast<ssize_t>(octets.size())) return w.from_buffer(at, octets);
  // Bytes that were read ahead for this came by the page cache.
  for (ReadAhead& one : w.aheads) {
    const bool ours = one.state == ReadAhead::State::kThere && one.offset == at;
    if (ours && one.got >= 0) one.state = ReadAhead::State::kEmpty;
  }
  return Placed::kTaken;
}

Placed FileTarget::place(std::uint64_t offset, std::span<const std::uint8_t> octets) noexcept {
  Writer& w = *writer_;
  std::uint64_t at = w.file_offset + offset;
  const os::MutexLock lock(w.mutex);
  if (w.error != 0 || octets.size() > (w.ring.size() - 1) * kBufferBytes) return Placed::kRefused;
  if (octets.size() > w.room(at)) return Placed::kLater;
  while (!octets.empty()) {
    if (!w.goes_on(at)) {
      Writer::Buffer& next = w.at(w.tail++);
      next.offset = at;
      next.bytes = 0;
    }
    Writer::Buffer& buffer = w.at(w.tail - 1);
    const std::size_t count = std::min(octets.size(), kBufferBytes - buffer.bytes);
    std::memcpy(buffer.data.get() + buffer.bytes, octets.data(), count);
    buffer.bytes += count;
    at += count;
    octets = octets.subspan(count);
  }
  w.work.notify_one();
  return Placed::kTaken;
}

}  // namespace weft
