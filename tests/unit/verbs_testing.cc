#include "verbs_testing.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/bytes.h"
#include "io/socket.h"

namespace weft::verbs::test {

Config quiet_config() {
  Config config;
  config.log = LogLevel::kOff;
  config.close_timeout = 2s;
  return config;
}

Config patient_config() {
  Config config = quiet_config();
  config.request_timeout = 10min;
  return config;
}

Host::Host(const Config& config)
    : device(std::move(*DeviceImpl::create(config))),
      pd(std::move(*ProtectionDomainImpl::create(device))) {}

QpSet::QpSet(Host& host, QpType type, std::function<bool(const Gid&)> has_gid) {
  cq = std::move(*host.device->create_cq({}));
  QpOptions options;
  options.send_cq = options.recv_cq = cq;
  options.type = type;
  options.has_gid = std::move(has_gid);
  options.on_late_receive = [counts = lates](LateReceive what, std::chrono::nanoseconds) {
    ++(*counts)[static_cast<std::size_t>(what)];
  };
  qp = std::move(*host.pd->create_qp(options));
}

std::shared_ptr<EventChannel> new_channel() { return std::move(*EventChannel::create()); }

ConnectionEvent next_event(EventChannel& channel) {
  auto event = channel.next(kPatience);
  if (event) return std::move(*event);
  ADD_FAILURE() << "no event: " << describe(event.error());
  return {};
}

ConnectionEvent expect_event(EventChannel& channel, EventType type) {
  ConnectionEvent event = next_event(channel);
  EXPECT_EQ(describe(event.type), describe(type))
      << (event.error ? describe(*event.error) : "without error");
  return event;
}

bool no_event(EventChannel& channel) { return !channel.next(kGlance); }

Passive::Passive(Host& host, int backlog) : channel(new_channel()) {
  listener = std::move(*host.device->create_listener(channel));
  EXPECT_TRUE(listener->bind(*SocketAddress::parse("127.0.0.1:0")));
  EXPECT_TRUE(listener->listen(backlog));
}

namespace {

// Bounds recv() and accept().
void bound_waits(int fd) {
  const timeval limit{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

}  // namespace

RawSocket::RawSocket(os::Fd fd) : fd_(std::move(fd)) { bound_waits(fd_.get()); }

RawSocket RawSocket::connect(const SocketAddress& peer) {
  RawSocket out(os::Fd(socket(peer.family(), SOCK_STREAM | SOCK_CLOEXEC, 0)));
  EXPECT_EQ(::connect(out.fd(), peer.get(), peer.size()), 0);
  return out;
}

void RawSocket::send(const Bytes& bytes) const {
  EXPECT_EQ(::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

Bytes RawSocket::receive(std::size_t count) const {
  Bytes out(count);
  std::size_t got = 0;
  while (got < count) {
    const ssize_t n = recv(fd(), out.data() + got, count - got, 0);
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  out.resize(got);
  return out;
}

bool RawSocket::is_open() const {
  std::uint8_t octet = 0;
  return recv(fd(), &octet, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

bool RawSocket::closed() const {
  std::uint8_t octet = 0;
  const ssize_t n = recv(fd(), &octet, 1, 0);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

RawListener::RawListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const SocketAddress local = *SocketAddress::parse("127.0.0.1:0");
  EXPECT_EQ(bind(fd_.get(), local.get(), local.size()), 0);
  EXPECT_EQ(listen(fd_.get(), 4), 0);
  bound_waits(fd_.get());
}

SocketAddress RawListener::address() const { return io::local_address(fd_.get()); }

RawSocket RawListener::accept() const {
  return RawSocket(os::Fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
}

bool raise_descriptor_limit(std::uint64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < wanted) return false;
  if (limit.rlim_cur >= wanted) return true;
  limit.rlim_cur = wanted;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

namespace {

Bytes frame_bytes(const MpaFrame& frame) {
  Bytes out(frame.encoded_size());
  ByteWriter writer(out);
  encode(frame, writer);
  return out;
}

}  // namespace

Bytes request(std::uint8_t revision, const Bytes& private_data) {
  MpaFrame frame;
  frame.revision = revision;
  frame.crc = true;
  frame.private_data = private_data;
  return frame_bytes(frame);
}

Bytes reply(bool reject, const Bytes& private_data) {
  MpaFrame frame;
  frame.is_reply = true;
  frame.revision = 1;
  frame.crc = true;
  frame.reject = reject;
  frame.private_data = private_data;
  return frame_bytes(frame);
}

ConnectionParams plain_params() {
  ConnectionParams params;
  params.policy.mpa_revision = 1;
  return params;
}

}  // namespace weft::verbs::test
