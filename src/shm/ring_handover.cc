#include "shm/ring_handover.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "os/abstract_address.h"
#include "os/calls.h"

namespace weft::shm {

namespace {

// Strangers who queue before the peer are turned away, so many in one look.
constexpr int kBacklog = 8;
// The responder makes the memory.
constexpr std::size_t kResponderSide = 0;
constexpr std::size_t kInitiatorSide = 1;
constexpr uid_t kOverflowUid = 65534;  // what the kernel says of users it has no name for

// The octets that go with the memory: magic, version, size of a direction, proof.
constexpr std::uint32_t kMagic = 0x57465247;       // "WFRG"
constexpr std::uint32_t kMagicAgain = 0x57465241;  // "WFRA": no memory comes, the spare one serves
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHelloBytes = 20;
using Hello = std::array<std::uint8_t, kHelloBytes>;

std::uint64_t unguessable() {
  const os::NoCancel guard;
  std::uint64_t out = 0;
  ssize_t n = 0;
  do {
    n = getrandom(&out, sizeof out, 0);
  } while (n < 0 && errno == EINTR);
  // As with STags: better to stop than to go on with what can be guessed.
  if (n != sizeof out) std::abort();
  return out;
}

os::AbstractAddress address_of(std::uint64_t name) {
  return os::AbstractAddress(fmt::format("weft-ring-{:016x}", name));
}

Result<os::Fd> open_unix_socket() {
  os::Fd socket =
      os::Fd::closed_in_child(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(Error::kSystem);
  return socket;
}

uid_t overflow_uid() {
  static const uid_t uid = [] {
    uid_t found = kOverflowUid;
    std::ifstream("/proc/sys/kernel/overflowuid") >> found;
    return found;
  }();
  return uid;
}

// The process that has opened the other end.   kPermission: not a process of our own user. Users of
// other user namespaces all look like one and the same, which is then nobody's.
Result<RingParties> parties_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return fail(Error::kPermission);
  const RingParties parties{peer.pid, peer.uid, peer.gid, geteuid(), getegid()};
  if (peer.uid != parties.user || peer.uid == overflow_uid()) return fail(Error::kPermission);
  return parties;
}

Hello make_hello(std::uint32_t magic, std::uint32_t bytes, std::uint64_t proof) {
  Hello hello;
  ByteWriter out(hello);
  out.be32(magic);
  out.be32(kVersion);
  out.be32(bytes);
  out.be64(proof);
  assert(out.room() == 0);
  return hello;
}

// `memory`: -1 for none.
bool send_hello(int socket, const Hello& hello, int memory) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof memory)> control{};
  iovec data{const_cast<std::uint8_t*>(hello.data()), hello.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (memory >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof memory);
    std::memcpy(CMSG_DATA(c), &memory, sizeof memory);
  }
  ssize_t n = 0;
  do {
    n = os::calls::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(hello.size());
}

// False: not a hello with one descriptor or none.
bool receive_hello(int socket, Hello& hello, os::Fd& memory) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec data{hello.data(), hello.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  // Not CMSG_SPACE: its padding is room for a second descriptor, which nobody would close.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  ssize_t n = 0;
  do {
    n = os::calls::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return false;
  if (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(sizeof(int))) {
      return false;
    }
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    memory = os::Fd::closed_in_child(fd);
  }
  // The kernel closes the descriptors that there is no room for, and says so.
  return n == static_cast<ssize_t>(hello.size()) && (message.msg_flags & MSG_CTRUNC) == 0;
}

// Between the same two processes, which run as the same users.
bool is_fit(const std::optional<SpareRing>& spare, const RingParties& parties,
            std::uint32_t bytes) {
  return spare && spare->parties == parties && spare->memory.buffer_bytes() == bytes;
}

}  // namespace

Result<RingOffer> RingOffer::open() {
  auto socket = open_unix_socket();
  if (!socket) return fail(socket.error());
  const RingTicket ticket{unguessable(), unguessable()};
  const os::AbstractAddress at = address_of(ticket.name);
  if (::bind(socket->get(), at.get(), at.size()) != 0 || ::listen(socket->get(), kBacklog) != 0) {
    return fail(Error::kSystem);
  }
  return RingOffer(std::move(*socket), ticket);
}

Result<Ring> RingOffer::take(std::optional<SpareRing> spare) {
  assert(listener_);  // once
  const os::Fd listener = std::move(listener_);
  Error why = Error::kNotFound;
  for (int turn = 0; turn <= kBacklog; ++turn) {
    const int fd = os::uncancelled(
        [&] { return accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (fd < 0) {
      if (errno == EINTR) continue;
      break;
    }
    auto ring = take_from(os::Fd::closed_in_child(fd), spare);
    if (ring) return ring;
    // A stranger says nothing of the peer, so the clearest reason stays.
    if (ring.error() != Error::kNotFound) why = ring.error();
  }
  return fail(why);
}

Result<Ring> RingOffer::take_from(os::Fd socket, std::optional<SpareRing>& spare) const {
  Hello hello;
  os::Fd memory;
  if (!receive_hello(socket.get(), hello, memory)) return fail(Error::kNotFound);
  ByteReader in(hello);
  const std::uint32_t magic = in.be32();
  const bool ours = magic == (memory ? kMagic : kMagicAgain) && in.be32() == kVersion;
  const std::uint32_t bytes = in.be32();
  if (!ours || in.be64() != ticket_.proof) return fail(Error::kNotFound);
  const auto parties = parties_of(socket.get());
  if (!parties) return fail(parties.error());
  if (magic == kMagicAgain) {
    if (!is_fit(spare, *parties, bytes)) return fail(Error::kProtocol);
    assert(spare->side == kInitiatorSide);
    return Ring(std::move(*spare), std::move(socket));
  }
  auto mapped = RingMemory::adopt(std::move(memory), bytes);
  if (!mapped) return fail(mapped.error());
  Ring ring(std::move(*mapped), std::move(socket), kInitiatorSide, *parties);
  if (auto secured = ring.secure(); !secured) return fail(secured.error());
  return ring;
}

Result<Ring> answer_ring_offer(const RingTicket& ticket, std::uint32_t bytes,
                               std::optional<SpareRing> spare) {
  auto socket = open_unix_socket();
  if (!socket) return fail(socket.error());
  const os::AbstractAddress at = address_of(ticket.name);
  // Never waits: the name is there with room in its queue, or it fails.
  if (os::uncancelled([&] { return ::connect(socket->get(), at.get(), at.size()); }) != 0) {
    return fail(errno == ECONNREFUSED ? Error::kNotFound : Error::kSystem);
  }
  const auto parties = parties_of(socket->get());
  if (!parties) return fail(parties.error());
  if (is_fit(spare, *parties, bytes)) {
    assert(spare->side == kResponderSide);
    Ring ring(std::move(*spare), std::move(*socket));
    const Hello hello = make_hello(kMagicAgain, bytes, ticket.proof);
    if (!send_hello(ring.bell(), hello, -1)) return fail(Error::kSystem);
    return ring;
  }
  auto memory = RingMemory::create(bytes);
  if (!memory) return fail(memory.error());
  if (!send_hello(socket->get(), make_hello(kMagic, bytes, ticket.proof), memory->fd())) {
    return fail(Error::kSystem);
  }
  return Ring(std::move(*memory), std::move(*socket), kResponderSide, *parties);
}

std::string describe_ring_error(Error error) {
  switch (error) {
    case Error::kNotFound: return "the peer shares no abstract socket namespace with us";
    case Error::kPermission: return "the peer runs as another user";
    case Error::kProtocol: return "what the peer offered is not a ring";
    case Error::kNoMemory: return "no memory for a ring";
    case Error::kUnsupported: return "path=tcp is set here";
    case Error::kLimitExceeded: return "this process has as many rings as it may";
    default: return fmt::format("the system refused a ring ({})", describe(error));
  }
}

}  // namespace weft::shm
