#include "raw_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace raw {
namespace {

// docs/path.md, "The memory".
constexpr std::size_t kControlBytes = 4096;
constexpr std::size_t kOurs = 1, kTheirs = 0;  // 0 belongs to who made the memory
constexpr std::uint32_t kWaitsForData = 1, kWaitsForRoom = 2;

// "What the two ends say".
constexpr std::size_t kHelloBytes = 20;
constexpr std::uint32_t kMagic = 0x57465247, kVersion = 1;

[[noreturn]] void fail_ring(const char* what) {
  throw Failure(std::string(what) + ": " + std::strerror(errno));
}

std::uint64_t random64() {
  std::uint64_t out = 0;
  if (::getrandom(&out, sizeof out, 0) != sizeof out) fail_ring("getrandom");
  return out;
}

}  // namespace

struct RingEnd::Side {
  alignas(128) std::atomic<std::uint32_t> head;
  alignas(128) std::atomic<std::uint32_t> tail;
  alignas(128) std::atomic<std::uint32_t> waiting;
  std::atomic<std::uint32_t> closed;
};

RingEnd::RingEnd() : name_(random64()), proof_(random64()) {
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) fail_ring("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The octet before the name is 0.
  const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                                   "weft-ring-%016llx", static_cast<unsigned long long>(name_));
  const std::size_t size = offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length);
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address),
             static_cast<socklen_t>(size)) != 0 ||
      ::listen(listener_, 1) != 0) {
    fail_ring("listen on a Unix socket");
  }
}

RingEnd::~RingEnd() {
  if (base_ != nullptr) ::munmap(base_, mapped_);
  if (bell_ >= 0) ::close(bell_);
  if (listener_ >= 0) ::close(listener_);
}

Bytes RingEnd::message(PathWord word) const {
  return write(static_cast<std::uint32_t>(word), word == PathWord::kName ? name_ : proof_, {});
}

// --- set-up ---

void RingEnd::take() {
  bell_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (bell_ < 0) fail_ring("the peer says that it has answered, but nobody came to the socket");
  std::array<std::uint8_t, kHelloBytes + 1> hello{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec data{hello.data(), hello.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(bell_, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) fail_ring("the peer left nothing at the socket");
  const cmsghdr* c = CMSG_FIRSTHDR(&message);
  if (c == nullptr || c->cmsg_type != SCM_RIGHTS) throw Failure("no memory came with the ring");
  int memory = -1;
  std::memcpy(&memory, CMSG_DATA(c), sizeof memory);
  try {
    adopt(View(hello).first(static_cast<std::size_t>(n)), memory);
  } catch (const Failure&) {
    ::close(memory);
    throw;
  }
  ::close(memory);
  ::close(listener_);
  listener_ = -1;
}

void RingEnd::adopt(View hello, int memory) {
  if (hello.size() != kHelloBytes || get32(hello, 0) != kMagic || get32(hello, 4) != kVersion) {
    throw Failure("what was left at the socket is not a ring: " + to_hex(hello));
  }
  bytes_ = get32(hello, 8);
  if (get64(hello, 12) != proof_) throw Failure("the ring has another proof");
  if (bytes_ < 1024 || (bytes_ & (bytes_ - 1)) != 0) throw Failure("the ring has an odd size");
  mapped_ = kControlBytes + 2 * std::size_t{bytes_};
  struct stat file {};
  if (::fstat(memory, &file) != 0) fail_ring("fstat of the ring");
  if (static_cast<std::size_t>(file.st_size) != mapped_) {
    throw Failure("the ring's file has another size than the ring");
  }
  if ((::fcntl(memory, F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
    throw Failure("the ring's file may shrink");
  }
  void* base = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (base == MAP_FAILED) fail_ring("mmap of the ring");
  base_ = static_cast<std::uint8_t*>(base);
}

RingEnd::Side& RingEnd::side(std::size_t which) const {
  return reinterpret_cast<Side*>(base_)[which];
}

std::uint8_t* RingEnd::buffer(std::size_t which) const {
  return base_ + kControlBytes + which * bytes_;
}

// --- octets ---

void RingEnd::wake(std::uint32_t reason) {
  std::atomic<std::uint32_t>& waiting = side(kTheirs).waiting;
  if ((waiting.load() & reason) == 0 || waiting.exchange(0) == 0) return;
  const char octet = 0;
  (void)!::send(bell_, &octet, 1, MSG_DONTWAIT | MSG_NOSIGNAL);  // full: it rings already
}

std::size_t RingEnd::send(View bytes) {
  const std::uint32_t used = head_ - side(kTheirs).tail.load();
  if (used > bytes_) throw Failure("the peer has read octets that were never sent by the ring");
  const std::size_t count = std::min<std::size_t>(bytes.size(), bytes_ - used);
  for (std::size_t i = 0; i < count; ++i) buffer(kOurs)[head_++ % bytes_] = bytes[i];
  side(kOurs).head.store(head_);
  if (count != 0) wake(kWaitsForData);
  return count;
}

Bytes RingEnd::receive() {
  const std::uint32_t there = side(kTheirs).head.load() - tail_;
  if (there > bytes_) throw Failure("the peer has written more than the ring holds");
  Bytes out(there);
  for (std::uint8_t& octet : out) octet = buffer(kTheirs)[tail_++ % bytes_];
  side(kOurs).tail.store(tail_);
  // All is read: half of the buffer is free, whatever the peer waits for.
  wake(kWaitsForRoom);
  return out;
}

void RingEnd::close_sending() { side(kOurs).closed.store(1); }

// --- sleep ---

bool RingEnd::prepare_sleep() {
  side(kOurs).waiting.store(kWaitsForData);
  return side(kTheirs).head.load() == tail_;
}

void RingEnd::awake() {
  side(kOurs).waiting.store(0);
  std::array<char, 16> octets{};
  while (::recv(bell_, octets.data(), octets.size(), MSG_DONTWAIT) > 0) {
  }
}

}  // namespace raw
