// FileTarget: placement into a file, by a thread that may wait for the disk.
#include <weft/placement.h>

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

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

}  // namespace

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

  [[nodiscard]] Buffer& at(std::uint64_t number) { return ring[number % ring.size()]; }
  // Octets that fit behind `offset` now.  REQUIRES: the lock.
  [[nodiscard]] std::size_t room(std::uint64_t offset) {
    const std::size_t unused = ring.size() - static_cast<std::size_t>(tail - head);
    return unused * kBufferBytes + (goes_on(offset) ? kBufferBytes - at(tail - 1).bytes : 0);
  }
  // The youngest buffer ends there, and the thread has not begun with it.
  [[nodiscard]] bool goes_on(std::uint64_t offset) {
    if (tail == head || (writing && tail - 1 == head)) return false;
    const Buffer& last = at(tail - 1);
    return last.offset + last.bytes == offset && last.bytes < kBufferBytes;
  }
  void run();

  const int fd;
  const std::uint64_t file_offset;
  std::mutex mutex;
  std::condition_variable work, idle;
  std::vector<Buffer> ring;
  std::uint64_t head = 0, tail = 0;  // free-running
  bool writing = false;              // the thread is at `head`
  bool ends = false;
  int error = 0;
  std::thread thread;
};

void FileTarget::Writer::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    work.wait(lock, [&] { return head != tail || ends; });
    if (head == tail) return;
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

Result<std::shared_ptr<FileTarget>> FileTarget::create(int fd, std::uint64_t file_offset,
                                                       std::size_t buffers) {
  if (fd < 0 || buffers < 2) return fail(Error::kInvalidArgument);
  try {
    auto writer = std::make_unique<Writer>(fd, file_offset, buffers);
    // The application's signals are not for this thread.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      writer->thread = std::thread([w = writer.get()] { w->run(); });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
    const std::lock_guard lock(writer_->mutex);
    writer_->ends = true;
    writer_->work.notify_one();
  }
  writer_->thread.join();
}

int FileTarget::flush() {
  std::unique_lock lock(writer_->mutex);
  const std::uint64_t placed = writer_->tail;  // peers may place more meanwhile
  writer_->idle.wait(lock, [&] { return writer_->head >= placed; });
  return writer_->error;
}

Placed FileTarget::place(std::uint64_t offset, std::span<const std::uint8_t> octets) noexcept {
  Writer& w = *writer_;
  std::uint64_t at = w.file_offset + offset;
  const std::lock_guard lock(w.mutex);
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
