#include "rddp/tcp_network.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

namespace weft::rddp {

namespace {

constexpr int kBacklog = 16;
constexpr std::size_t kReadBytes = 256U << 10U;
constexpr std::size_t kIovecs = 256;  // of one sendmsg
// Reads per turn of one connection, so that one peer cannot keep the others waiting.
constexpr int kReadsPerTurn = 4;
// A listener that the kernel gives no descriptor for is left alone for so long.
constexpr Duration kAcceptPause{10'000'000};

Instant steady_now() {
  return Instant{std::chrono::steady_clock::now().time_since_epoch().count()};
}

std::uint32_t kernel_random() {
  std::uint32_t bits = 0;
  // Fails only where the kernel has no getrandom(); a guessable STag is no way out.
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) std::abort();
  return bits;
}

// What poll(2) looks at: a connection or a listener.
class Watched {
 public:
  virtual ~Watched() = default;
  // A negative descriptor: nothing now, and again at rested_at().
  [[nodiscard]] virtual pollfd wanted() const noexcept = 0;
  [[nodiscard]] virtual Instant rested_at() const noexcept { return Instant::never(); }
  virtual void ready(short events) = 0;
};

// Everything of one network that poll(2) looks at. Outlives its members.
struct Watch {
  std::vector<Watched*> all;
  std::vector<std::uint8_t> buffer;
  void add(Watched* w) { all.push_back(w); }
  void forget(const Watched* w) {
    std::replace(all.begin(), all.end(), const_cast<Watched*>(w), static_cast<Watched*>(nullptr));
  }
};

class TcpLink final : public Link, public Watched {
 public:
  TcpLink(Watch& watch, Channel& channel, int fd, bool connecting)
      : watch_(watch), channel_(channel), fd_(fd), connecting_(connecting) {
    watch_.add(this);
    if (!connecting) established();
  }
  ~TcpLink() override {
    watch_.forget(this);
    if (fd_ < 0) return;
    channel_.lost(false);
    close_socket(true);
  }

  void progress() override {
    if (fd_ < 0 || connecting_) return;
    while (!blocked_ && send_some()) {
    }
    if (fd_ < 0) return;
    if (!blocked_ && channel_.take_fin()) shutdown(fd_, SHUT_WR);
    if (channel_.finished()) close_socket(channel_.wants_reset());
  }
  [[nodiscard]] bool closed() const noexcept override { return fd_ < 0; }

  [[nodiscard]] pollfd wanted() const noexcept override {
    short events = peer_closed_ ? 0 : POLLIN;
    if (connecting_ || blocked_) events |= POLLOUT;
    return {fd_, events, 0};
  }
  void ready(short events) override {
    if (fd_ < 0) return;
    if (connecting_) return finish_connect();
    if ((events & POLLOUT) != 0) blocked_ = false;
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read_some();
    progress();
  }

 private:
  void established() {
    int mss = 0;
    socklen_t size = sizeof mss;
    if (getsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &mss, &size) == 0 && mss > 0) {
      channel_.set_segment_size(static_cast<std::uint32_t>(mss));
    }
    const int on = 1;
    (void)setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  void finish_connect() {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return lose(error == ETIMEDOUT);
    connecting_ = false;
    established();
    progress();
  }

  void read_some() {
    for (int i = 0; i < kReadsPerTurn && fd_ >= 0 && !peer_closed_; ++i) {
      const ssize_t n = recv(fd_, watch_.buffer.data(), watch_.buffer.size(), 0);
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) lose(errno == ETIMEDOUT);
        return;
      }
      if (n == 0) {
        peer_closed_ = true;
        channel_.peer_closed();
        return;
      }
      channel_.received({watch_.buffer.data(), static_cast<std::size_t>(n)});
      if (static_cast<std::size_t>(n) < watch_.buffer.size()) return;
    }
  }

  // False: nothing more to send, or no room.
  bool send_some() {
    iovec pieces[kIovecs];
    const std::span<const proto::Slice> slices = channel_.next_slices();
    const std::size_t count = std::min(slices.size(), kIovecs);
    for (std::size_t i = 0; i < count; ++i) {
      pieces[i] = {const_cast<std::uint8_t*>(slices[i].data), slices[i].size};
    }
    if (count == 0) {
      channel_.taken(0);
      return false;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t n = sendmsg(fd_, &message, MSG_NOSIGNAL);
    const int error = errno;
    channel_.taken(n > 0 ? static_cast<std::size_t>(n) : 0);
    if (n > 0) {
      channel_.released(static_cast<std::size_t>(n));  // the kernel has copied them
      return true;
    }
    if (n < 0 && error == EINTR) return true;
    blocked_ = n < 0 && (error == EAGAIN || error == EWOULDBLOCK);
    if (!blocked_) lose(false);
    return false;
  }

  void lose(bool timed_out) {
    channel_.lost(timed_out);
    close_socket(true);
  }

  void close_socket(bool reset) {
    if (reset) {
      const linger now{1, 0};
      (void)setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    ::close(fd_);
    fd_ = -1;
    channel_.transport_closed();
  }

  Watch& watch_;
  Channel& channel_;
  int fd_;
  bool connecting_;
  bool blocked_ = false;
  bool peer_closed_ = false;
};

class TcpPort final : public Port, public Watched {
 public:
  TcpPort(Watch& watch, Acceptor& acceptor, int fd) : watch_(watch), acceptor_(acceptor), fd_(fd) {
    watch_.add(this);
  }
  ~TcpPort() override {
    watch_.forget(this);
    ::close(fd_);
  }
  [[nodiscard]] std::uint16_t number() const noexcept override {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
    if (address.ss_family == AF_INET) {
      return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
    }
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  [[nodiscard]] pollfd wanted() const noexcept override {
    return {steady_now() < rested_at_ ? -1 : fd_, POLLIN, 0};
  }
  [[nodiscard]] Instant rested_at() const noexcept override { return rested_at_; }
  void ready(short /*events*/) override {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Out of descriptors: the listener stays readable. It is looked at again later.
      if (errno == EMFILE || errno == ENFILE) rested_at_ = steady_now() + kAcceptPause;
      return;
    }
    Channel* channel = acceptor_.next_channel();
    std::unique_ptr<TcpLink> link;
    if (channel != nullptr) link.reset(new (std::nothrow) TcpLink(watch_, *channel, fd, false));
    if (link == nullptr) {
      ::close(fd);
      return;
    }
    channel->respond();
    acceptor_.connected(*channel, std::move(link));
  }

 private:
  Watch& watch_;
  Acceptor& acceptor_;
  const int fd_;
  Instant rested_at_{0};
};

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> resolve(const char* host, std::uint16_t port, bool passive) {
  char service[8];
  (void)std::snprintf(service, sizeof service, "%u", static_cast<unsigned>(port));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host, service, &hints, &found);
  if (status == EAI_MEMORY) return fail(Error::kNoMemory);
  if (status != 0) return fail(Error::kUnreachable);
  return Addresses(found);
}

Error error_of(int error) {
  switch (error) {
    case EADDRINUSE: return Error::kAddressInUse;
    case ECONNREFUSED: return Error::kRefused;
    case EADDRNOTAVAIL:
    case ENETUNREACH:
    case EHOSTUNREACH: return Error::kUnreachable;
    default: return Error::kSystem;
  }
}

class TcpNetwork final : public Network {
 public:
  TcpNetwork() { watch_.buffer.resize(kReadBytes); }

  Result<std::unique_ptr<Link>> connect(Channel& channel, const char* host, std::uint16_t port,
                                        const proto::StartupOffer& offer) override {
    if (host == nullptr) return fail(Error::kInvalidArgument);
    auto addresses = resolve(host, port, false);
    if (!addresses) return fail(addresses.error());
    if (const Status begun = channel.initiate(offer); !begun) return fail(begun.error());
    // Only the first address is tried: the answer of a non-blocking connect comes later.
    const addrinfo& to = **addresses;
    const int fd = socket(to.ai_family, to.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail(Error::kSystem);
    if (::connect(fd, to.ai_addr, to.ai_addrlen) != 0 && errno != EINPROGRESS) {
      const Error error = error_of(errno);
      ::close(fd);
      return fail(error);
    }
    return std::unique_ptr<Link>(new TcpLink(watch_, channel, fd, true));
  }

  Result<std::unique_ptr<Port>> listen(Acceptor& acceptor, const char* host,
                                       std::uint16_t port) override {
    auto addresses = resolve(host, port, true);
    if (!addresses) return fail(addresses.error());
    const addrinfo& at = **addresses;
    const int fd = socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail(Error::kSystem);
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at.ai_addr, at.ai_addrlen) != 0 || ::listen(fd, kBacklog) != 0) {
      const Error error = error_of(errno);
      ::close(fd);
      return fail(error);
    }
    return std::unique_ptr<Port>(new TcpPort(watch_, acceptor, fd));
  }

  void wait(Instant until) override {
    polled_.clear();
    std::erase(watch_.all, nullptr);
    for (const Watched* w : watch_.all) {
      polled_.push_back(w->wanted());  // poll(2) leaves out what is negative
      if (polled_.back().fd < 0) until = std::min(until, w->rested_at());
    }
    if (poll(polled_.data(), polled_.size(), milliseconds(until)) <= 0) return;
    for (std::size_t i = 0; i < polled_.size(); ++i) {
      // Another one's callback may have ended it; its place stays empty until the next wait.
      Watched* const w = watch_.all[i];
      if (w != nullptr && polled_[i].revents != 0) w->ready(polled_[i].revents);
    }
  }

  [[nodiscard]] Clock clock() const noexcept override { return steady_now; }
  [[nodiscard]] Random random() const noexcept override { return kernel_random; }

  Result<Mapping> map(int fd, std::uint64_t offset, std::uint64_t length, bool writable) override {
    struct stat file {};
    if (fstat(fd, &file) != 0) return fail(Error::kSystem);
    // Beyond the end of the file an access is a signal, not an error.
    const auto there = static_cast<std::uint64_t>(file.st_size);
    if (offset > there || length > there - offset) return fail(Error::kInvalidArgument);
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = offset / page * page;
    const std::uint64_t size = length + (offset - begin);
    const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    void* base = mmap(nullptr, size, protection, MAP_SHARED, fd, static_cast<off_t>(begin));
    if (base == MAP_FAILED) return fail(Error::kSystem);
    return Mapping{static_cast<std::uint8_t*>(base) + (offset - begin), base, size};
  }
  void unmap(const Mapping& mapping) override { munmap(mapping.base, mapping.size); }

 private:
  // poll(2) counts in milliseconds; rounded up, so that a deadline has passed when it returns.
  static int milliseconds(Instant until) {
    if (until.is_never()) return -1;
    const std::int64_t left = (until - steady_now()).count();
    if (left <= 0) return 0;
    return static_cast<int>(std::min<std::int64_t>((left + 999'999) / 1'000'000, 60'000));
  }

  Watch watch_;
  std::vector<pollfd> polled_;  // as watch_.all
};

}  // namespace

std::unique_ptr<Network> make_tcp_network() { return std::make_unique<TcpNetwork>(); }

}  // namespace weft::rddp
