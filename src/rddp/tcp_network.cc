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
#include <utility>

namespace weft::rddp {

namespace {

constexpr int kBacklog = 16;
constexpr std::size_t kReadBytes = 256U << 10U;
constexpr std::size_t kIovecs = 256;  // of one sendmsg
// Reads per turn of one connection, so that one peer cannot keep the others waiting.
constexpr int kReadsPerTurn = 4;
// A listener that the kernel gives no descriptor for is left alone for so long.
constexpr Duration kAcceptPause{std::chrono::milliseconds(10)};
// How long one address of a name is tried if there are more.
constexpr Duration kAddressLimit{std::chrono::seconds(2)};

Instant steady_now() {
  return Instant{std::chrono::steady_clock::now().time_since_epoch().count()};
}

std::uint32_t kernel_random() {
  std::uint32_t bits = 0;
  // Fails only where the kernel has no getrandom(); a guessable STag is no way out.
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) std::abort();
  return bits;
}

// A descriptor for poll(2): a connection or a listener.
class Watched {
 public:
  virtual ~Watched() = default;
  // A negative descriptor: nothing now.
  [[nodiscard]] virtual pollfd wanted() const noexcept = 0;
  // When ready(0) is to be called, whatever poll(2) says.
  [[nodiscard]] virtual Instant alarm() const noexcept = 0;
  virtual void ready(short events) = 0;
};

// Everything of one network that poll(2) looks at. Outlives its members.
class Watch {
 public:
  // False: no memory.
  [[nodiscard]] bool allocate() {
    buffer_.reset(new (std::nothrow) std::uint8_t[kReadBytes]);
    return buffer_ != nullptr;
  }
  [[nodiscard]] std::span<std::uint8_t> buffer() const { return {buffer_.get(), kReadBytes}; }

  // Room for one member more, before it is made. False: no memory.
  [[nodiscard]] bool make_room();
  // REQUIRES: make_room() said yes.
  void add(Watched* w) { all_[count_++] = w; }
  // Its place stays empty until the next turn().
  void forget(const Watched* w) {
    std::replace(all_.get(), all_.get() + count_, const_cast<Watched*>(w),
                 static_cast<Watched*>(nullptr));
  }
  // Waits until `until` for one of them to be ready, and calls those that are.
  void turn(Instant until);

 private:
  std::unique_ptr<std::uint8_t[]> buffer_;
  std::unique_ptr<Watched*[]> all_;
  std::unique_ptr<pollfd[]> polled_;  // as all_
  std::size_t count_ = 0, capacity_ = 0;
};

bool Watch::make_room() {
  if (count_ < capacity_) return true;
  const std::size_t capacity = 2 * capacity_ + 16;
  std::unique_ptr<Watched*[]> all(new (std::nothrow) Watched*[capacity]);
  std::unique_ptr<pollfd[]> polled(new (std::nothrow) pollfd[capacity]);
  if (all == nullptr || polled == nullptr) return false;
  std::copy_n(all_.get(), count_, all.get());
  std::copy_n(polled_.get(), count_, polled.get());  // a turn may be reading them
  all_ = std::move(all);
  polled_ = std::move(polled);
  capacity_ = capacity;
  return true;
}

// poll(2) counts in milliseconds; rounded up, so that a deadline has passed when it returns.
int milliseconds(Instant until) {
  if (until.is_never()) return -1;
  const std::int64_t left = (until - steady_now()).count();
  if (left <= 0) return 0;
  return static_cast<int>(std::min<std::int64_t>((left + 999'999) / 1'000'000, 60'000));
}

void Watch::turn(Instant until) {
  count_ = static_cast<std::size_t>(
      std::remove(all_.get(), all_.get() + count_, static_cast<Watched*>(nullptr)) - all_.get());
  for (std::size_t i = 0; i < count_; ++i) {
    polled_[i] = all_[i]->wanted();  // poll(2) leaves out what is negative
    until = std::min(until, all_[i]->alarm());
  }
  const std::size_t count = count_;  // more may come meanwhile
  if (poll(polled_.get(), count, milliseconds(until)) < 0) return;
  const Instant now = steady_now();
  for (std::size_t i = 0; i < count; ++i) {
    // Another one's callback may have ended it.
    if (all_[i] != nullptr && (polled_[i].revents != 0 || now >= all_[i]->alarm())) {
      all_[i]->ready(polled_[i].revents);
    }
  }
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// errno says why, where the result is kSystem.
Result<Addresses> resolve(const char* host, std::uint16_t port, bool passive) {
  char service[8];
  (void)std::snprintf(service, sizeof service, "%u", static_cast<unsigned>(port));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host, service, &hints, &found);
  if (status == EAI_MEMORY) return fail(Error::kNoMemory);
  if (status == EAI_SYSTEM) return fail(Error::kSystem);
  if (status != 0) return fail(Error::kUnreachable);
  return Addresses(found);
}

// Chooses among the addresses that stand for all: the one of IPv6 takes peers of IPv4 as well.
const addrinfo& widest(const addrinfo& list) {
  for (const addrinfo* a = &list; a != nullptr; a = a->ai_next) {
    if (a->ai_family != AF_INET6) continue;
    const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) break;  // a kernel without IPv6
    ::close(probe);
    return *a;
  }
  return list;
}

Error error_of(int error) {
  switch (error) {
    case EADDRINUSE: return Error::kAddressInUse;
    case ECONNREFUSED: return Error::kRefused;
    case ETIMEDOUT: return Error::kTimedOut;
    case EADDRNOTAVAIL:
    case ENETUNREACH:
    case EHOSTUNREACH: return Error::kUnreachable;
    case ENOMEM:
    case ENOBUFS: return Error::kNoMemory;
    default: return Error::kSystem;
  }
}

class TcpLink final : public Link, public Watched {
 public:
  // To connect with, see try_next(). REQUIRES: watch.make_room() said yes.
  TcpLink(Watch& watch, Channel& channel, Addresses addresses)
      : watch_(watch), channel_(channel), addresses_(std::move(addresses)) {
    next_ = addresses_.get();
    watch_.add(this);
  }
  // A connection that was accepted. REQUIRES: watch.make_room() said yes.
  TcpLink(Watch& watch, Channel& channel, int fd) : watch_(watch), channel_(channel), fd_(fd) {
    watch_.add(this);
    established();
  }
  ~TcpLink() override {
    watch_.forget(this);
    if (fd_ < 0) return;
    channel_.lost(false);
    close_socket(true);
  }

  // Begins to connect to the next address that can be tried. False: there is none; see failure().
  [[nodiscard]] bool try_next();

  void progress() override {
    if (fd_ < 0) return;
    if (connecting_) {
      if (channel_.finished()) close_socket(true);  // given up meanwhile
      return;
    }
    while (!blocked_ && send_some()) {
    }
    if (fd_ < 0) return;
    if (!blocked_ && channel_.take_fin()) shutdown(fd_, SHUT_WR);
    if (channel_.finished()) close_socket(channel_.wants_reset());
  }
  [[nodiscard]] bool closed() const noexcept override { return fd_ < 0; }
  [[nodiscard]] std::optional<Failure> failure() const noexcept override {
    if (fd_ >= 0 || connect_error_ == 0) return std::nullopt;
    return Failure{error_of(connect_error_), connect_error_};
  }

  [[nodiscard]] Instant alarm() const noexcept override { return alarm_; }
  [[nodiscard]] pollfd wanted() const noexcept override {
    short events = peer_closed_ ? 0 : POLLIN;
    if (connecting_ || blocked_) events |= POLLOUT;
    return {fd_, events, 0};
  }
  void ready(short events) override {
    if (fd_ < 0) return;
    if (connecting_) return finish_connect(events);
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

  // `events` 0: this address has had its time.
  void finish_connect(short events) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (events == 0 && error == 0) error = ETIMEDOUT;
    if (error != 0) {
      note(error);
      ::close(fd_);
      fd_ = -1;
      if (try_next()) return;
      channel_.lost(error == ETIMEDOUT);
      channel_.transport_closed();
      return;
    }
    connecting_ = false;
    connect_error_ = 0;
    alarm_ = Instant::never();
    established();
    progress();
  }

  void read_some() {
    for (int i = 0; i < kReadsPerTurn && fd_ >= 0 && !peer_closed_; ++i) {
      const std::span<std::uint8_t> buffer = watch_.buffer();
      const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
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
      channel_.received(buffer.first(static_cast<std::size_t>(n)));
      if (static_cast<std::size_t>(n) < buffer.size()) return;
    }
  }

  // False: nothing more to send, or no room.
  bool send_some() {
    iovec pieces[kIovecs];
    const std::span<const Slice> slices = channel_.next_slices();
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

  // With several addresses, the error of the one that was reached says most.
  void note(int error) {
    if (connect_error_ == 0 || error_of(connect_error_) == Error::kUnreachable) {
      connect_error_ = error;
    }
  }

  Watch& watch_;
  Channel& channel_;
  Addresses addresses_;
  const addrinfo* next_ = nullptr;  // among them
  int fd_ = -1;
  int connect_error_ = 0;  // errno
  Instant alarm_ = Instant::never();
  bool connecting_ = false;
  bool blocked_ = false;
  bool peer_closed_ = false;
};

bool TcpLink::try_next() {
  while (next_ != nullptr) {
    const addrinfo& to = *std::exchange(next_, next_->ai_next);
    fd_ = socket(to.ai_family, to.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ >= 0 && (::connect(fd_, to.ai_addr, to.ai_addrlen) == 0 || errno == EINPROGRESS)) {
      connecting_ = true;
      alarm_ = next_ != nullptr ? steady_now() + kAddressLimit : Instant::never();
      return true;
    }
    note(errno);
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  connecting_ = false;
  alarm_ = Instant::never();
  return false;
}

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
    return {alarm_.is_never() ? fd_ : -1, POLLIN, 0};
  }
  [[nodiscard]] Instant alarm() const noexcept override { return alarm_; }
  void ready(short events) override {
    alarm_ = Instant::never();
    if (events == 0) return;
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Out of descriptors: the listener stays readable. It is looked at again later.
      if (errno == EMFILE || errno == ENFILE) alarm_ = steady_now() + kAcceptPause;
      return;
    }
    Channel* channel = watch_.make_room() ? acceptor_.next_channel() : nullptr;
    std::unique_ptr<TcpLink> link;
    if (channel != nullptr) link.reset(new (std::nothrow) TcpLink(watch_, *channel, fd));
    if (link == nullptr) {
      if (channel != nullptr) channel->abort();
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
  Instant alarm_ = Instant::never();
};

class TcpNetwork final : public Network {
 public:
  // False: no memory.
  [[nodiscard]] bool allocate() { return watch_.allocate(); }

  Result<std::unique_ptr<Link>> connect(Channel& channel, const char* host, std::uint16_t port,
                                        const proto::StartupOffer& offer) override {
    if (host == nullptr) return fail(Error::kInvalidArgument);
    auto addresses = resolve(host, port, false);
    if (!addresses) return fail(addresses.error());
    if (!watch_.make_room()) return fail(Error::kNoMemory);
    std::unique_ptr<TcpLink> link(new (std::nothrow)
                                      TcpLink(watch_, channel, std::move(*addresses)));
    if (link == nullptr) return fail(Error::kNoMemory);
    if (const Status begun = channel.initiate(offer); !begun) return fail(begun.error());
    if (link->try_next()) return std::unique_ptr<Link>(std::move(link));
    const Link::Failure failure = link->failure().value_or(Link::Failure{});
    link.reset();
    errno = failure.system_error;
    return fail(failure.error);
  }

  Result<std::unique_ptr<Port>> listen(Acceptor& acceptor, const char* host,
                                       std::uint16_t port) override {
    auto addresses = resolve(host, port, true);
    if (!addresses) return fail(addresses.error());
    const addrinfo& at = host != nullptr ? **addresses : widest(**addresses);
    const int fd = socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail(error_of(errno));
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const int off = 0;
    if (at.ai_family == AF_INET6) {
      (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd, at.ai_addr, at.ai_addrlen) != 0 || ::listen(fd, kBacklog) != 0) {
      const int error = errno;
      ::close(fd);
      errno = error;
      return fail(error_of(error));
    }
    std::unique_ptr<Port> made;
    if (watch_.make_room()) made.reset(new (std::nothrow) TcpPort(watch_, acceptor, fd));
    if (made != nullptr) return made;
    ::close(fd);
    return fail(Error::kNoMemory);
  }

  void wait(Instant until) override { watch_.turn(until); }
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
  Watch watch_;
};

}  // namespace

std::unique_ptr<Network> make_tcp_network() {
  std::unique_ptr<TcpNetwork> made(new (std::nothrow) TcpNetwork);
  if (made == nullptr || !made->allocate()) return nullptr;
  return made;
}

}  // namespace weft::rddp
