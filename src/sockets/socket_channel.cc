#include "sockets/socket_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "sockets/channel_parts.h"
#include "sockets/pair_octets.h"
#include "sockets/real_calls.h"

namespace weft::sockets {
namespace {

constexpr std::uint32_t kMagic = 0x57667431;
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::uint32_t kRingBytes = 256 * 1024;
static_assert(sizeof(RingPage) <= kHeaderBytes);

// The pair holds a few kFiller.
constexpr int kPairBuffer = 4096;  // doubled by the kernel
// Reads of the pair at a time. More than it holds: a peer that sends without end must not keep us.
constexpr int kDrainTurns = 16;

constexpr int kPairEnded = -1;

bool init_lock(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attr;
  pthread_mutexattr_init(&attr);
  pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
  const bool done = pthread_mutex_init(&mutex, &attr) == 0;
  pthread_mutexattr_destroy(&attr);
  return done;
}

}  // namespace

void Channel::restrict_calls() { restrict_pair_calls(); }

bool Channel::create(const char* label, Parts& out) {
  out = {};
  out.memory = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (out.memory < 0) return false;
  const off_t bytes = static_cast<off_t>(kHeaderBytes) + 2 * off_t{kRingBytes};
  RingPage page{};
  page.magic = kMagic;
  page.ring_bytes = kRingBytes;
  // Both readers have nothing to read: the first octet is worth a signal.
  page.half[0].reader_waits = 1;
  page.half[1].reader_waits = 1;
  // A file that could shrink would kill who touches it.
  if (ftruncate(out.memory, bytes) != 0 ||
      pwrite(out.memory, &page, sizeof page, 0) != static_cast<ssize_t>(sizeof page) ||
      real().fcntl(out.memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      real().socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out.pair) != 0) {
    const int error = errno;
    discard(out);
    errno = error;
    return false;
  }
  for (const int fd : out.pair) {
    const int size = kPairBuffer;
    real().setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  }
  return true;
}

void Channel::discard(Parts& parts) {
  for (const int fd : {parts.memory, parts.pair[0], parts.pair[1]}) {
    if (fd >= 0) real().close(fd);
  }
  parts = {};
}

Channel* Channel::attach(int memory, int end, int socket) {
  struct stat info {};
  const int seals = real().fcntl(memory, F_GET_SEALS);
  constexpr auto kBytes = static_cast<off_t>(kHeaderBytes) + 2 * off_t{kRingBytes};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(memory, &info) != 0 ||
      info.st_size != kBytes) {
    errno = EPROTO;
    return nullptr;
  }
  void* at = mmap(nullptr, static_cast<std::size_t>(kBytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                  memory, 0);
  if (at == MAP_FAILED) return nullptr;
  void* own =
      mmap(nullptr, sizeof(EndState), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* made = own == MAP_FAILED ? nullptr : new (std::nothrow) Channel();
  auto* state = static_cast<EndState*>(own);
  if (made == nullptr || !init_lock(state->reading) || !init_lock(state->writing)) {
    munmap(at, static_cast<std::size_t>(kBytes));
    if (own != MAP_FAILED) munmap(own, sizeof(EndState));
    delete made;
    errno = ENOMEM;
    return nullptr;
  }
  state->read_spin.ns = state->write_spin.ns = kSpinMinNs;
  state->holders = 1;
  made->page_ = static_cast<RingPage*>(at);
  made->mapped_ = static_cast<std::size_t>(kBytes);
  made->end_ = state;
  made->ring_bytes_ = kRingBytes;
  auto* data = static_cast<std::uint8_t*>(at) + kHeaderBytes;
  made->out_ = &made->page_->half[end];
  made->in_ = &made->page_->half[1 - end];
  made->out_data_ = data + std::size_t{kRingBytes} * static_cast<std::size_t>(end);
  made->in_data_ = data + std::size_t{kRingBytes} * static_cast<std::size_t>(1 - end);
  made->socket_ = socket;
  return made;
}

void Channel::release() {
  munmap(end_, sizeof(EndState));
  munmap(page_, mapped_);
  delete this;
}

void Channel::set_names(const sockaddr* local, socklen_t local_length, const sockaddr* peer,
                        socklen_t peer_length) {
  std::memcpy(&end_->local, local, std::min<std::size_t>(local_length, sizeof end_->local));
  std::memcpy(&end_->peer, peer, std::min<std::size_t>(peer_length, sizeof end_->peer));
  end_->local_length = local_length;
  end_->peer_length = peer_length;
}

// --- reading ---

std::size_t Channel::copy_out(const iovec* parts, std::size_t count, std::size_t skip,
                              std::uint64_t most, bool discard) const {
  const std::uint64_t available = in_->written.load(std::memory_order_acquire) - end_->read_cursor;
  if (corrupt(available)) return 0;
  std::uint64_t at = end_->read_cursor;
  std::uint64_t left = most < available ? most : available;
  for (std::size_t i = 0; i < count && left > 0; ++i) {
    if (skip >= parts[i].iov_len) {
      skip -= parts[i].iov_len;
      continue;
    }
    const std::size_t n = std::min<std::size_t>(parts[i].iov_len - skip, left);
    if (!discard) {
      auto* out = static_cast<std::uint8_t*>(parts[i].iov_base) + skip;
      const std::size_t from = at & (ring_bytes_ - 1);
      const std::size_t first = std::min<std::size_t>(n, ring_bytes_ - from);
      std::memcpy(out, in_data_ + from, first);
      std::memcpy(out + first, in_data_, n - first);
    }
    at += n;
    left -= n;
    skip = 0;
  }
  return at - end_->read_cursor;
}

// Tells a writer that is stuck of the room there is. One octet stays: see arm().
void Channel::give_room() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (in_->writer_waits.load(std::memory_order_relaxed) == 0) return;
  const std::uint64_t used = in_->written.load(std::memory_order_acquire) - end_->read_cursor;
  if (used > ring_bytes_ - ring_bytes_ / 4) return;
  if (in_->writer_waits.exchange(0) != 0) drain(in_->signals.load() - 1);
}

// Takes octets out of the pair until `up_to` have been taken in all: never one that was sent later.
void Channel::drain(std::uint64_t up_to) {
  std::uint8_t trash[4096];
  for (int turn = 0; turn < kDrainTurns; ++turn) {
    const auto stale = static_cast<std::int64_t>(up_to - end_->drained);
    if (stale <= 0) return;
    const std::size_t most =
        std::min<std::uint64_t>(static_cast<std::uint64_t>(stale), sizeof trash);
    const ssize_t n = take_octets(socket_, trash, most);
    if (n <= 0) return;
    end_->drained += static_cast<std::uint64_t>(n);
  }
}

// With an empty ring: declares that we wait, and makes the pair unreadable. What keeps signals from
// being lost: while reader_waits is 0 a signal is in the pair, or under way; while it is 1 the
// ring was empty, and the next octet sends one. Only signals sent before the declaration are taken,
// the last of them when the others have gone: a writer that found the pair full has not sent its
// own. tests/model/socket_channel_model_test.cc searches all orders of these steps.
void Channel::arm() {
  if (in_->reader_waits.load() != 0) return;
  const bool stuck = in_->writer_waits.load() != 0;
  std::uint64_t stale = in_->signals.load();
  // The writer, which woke us by sending it, may not have counted it yet.
  const std::uint64_t least = 1 + end_->more_signals;
  if (static_cast<std::int64_t>(stale - end_->drained) < static_cast<std::int64_t>(least)) {
    stale = end_->drained + late_octets(least);
  }
  end_->more_signals = 0;
  in_->reader_waits.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  drain(stale - 1);
  if (stuck) in_->writer_waits.store(0);
  if (in_->written.load(std::memory_order_acquire) == end_->read_cursor) {
    drain(stale);
    return;
  }
  // Octets have come meanwhile. Taken back in time, the old signal stands for them.
  if (in_->reader_waits.exchange(0) == 0) end_->more_signals = 1;
}

// While reader_waits is 0: how many octets are in the pair. If fewer than `least`, the others are
// under way, and their writer runs or has lost its core in this moment. That is worth a wait: the
// program would find its socket readable for nothing, which TCP's never are.
std::size_t Channel::late_octets(std::size_t least) const {
  constexpr int kLooks = 30;
  constexpr int kLooksBeforeYield = 8;
  std::uint8_t trash[4096];
  std::size_t found = 0;
  for (int look = 0; look < kLooks; ++look) {
    const ssize_t there = peek_octets(socket_, trash, sizeof trash);
    found = static_cast<std::size_t>(std::max<ssize_t>(there, 0));
    if (there == 0 || found >= least) break;
    if (look < kLooksBeforeYield) continue;
    if (pair_calls_are_restricted()) break;
    sched_yield();
  }
  return found;
}

ssize_t Channel::reset_result() {
  if (end_->reset_told.exchange(1) != 0) return 0;
  errno = ECONNRESET;
  return -1;
}

ssize_t Channel::receive(const iovec* parts, std::size_t count, int flags, bool wait,
                         bool looked_after) {
  const ssize_t n = try_receive(parts, count, flags, wait, looked_after);
  const bool again = n < 0 && errno == EAGAIN && !wait && (flags & MSG_PEEK) == 0;
  if (!again || !gave_way([this] { return unread() > 0; })) return n;
  return try_receive(parts, count, flags, wait, looked_after);
}

ssize_t Channel::try_receive(const iovec* parts, std::size_t count, int flags, bool wait,
                             bool looked_after) {
  const bool peek = (flags & MSG_PEEK) != 0;
  const std::size_t wanted = total_of(parts, count);
  if (wanted == 0) return 0;
  const int saved_errno = errno;
  std::size_t done = 0;
  const auto finish = [&](int error) -> ssize_t {
    errno = error == 0 || done > 0 ? saved_errno : error;
    return error == 0 || done > 0 ? static_cast<ssize_t>(done) : -1;
  };
  const Hold hold(end_->reading);
  if (!hold.held()) return finish(EAGAIN);
  for (;;) {
    const std::size_t n = copy_out(parts, count, peek ? 0 : done, peek ? ring_bytes_ : kPiece,
                                   (flags & MSG_TRUNC) != 0);
    if (peek) {
      done = n;
    } else if (n > 0) {
      end_->read_cursor += n;
      in_->read.store(end_->read_cursor, std::memory_order_release);
      done += n;
      give_room();
      if (n == kPiece && done < wanted) continue;
    }
    if (peek && done > 0) return finish(0);
    const bool enough = done == wanted || (done > 0 && (flags & MSG_WAITALL) == 0);
    const bool told_later = looked_after || end_->mirrored.load(std::memory_order_relaxed) == 0;
    if (enough && told_later) return finish(0);
    const std::uint32_t ended = in_->ended.load(std::memory_order_acquire);
    const std::uint64_t left = in_->written.load(std::memory_order_acquire) - end_->read_cursor;
    if (corrupt(left)) return finish(ECONNRESET);
    if (left != 0 && done == wanted) return finish(0);
    if (left != 0) continue;
    if (end_->read_shut.load() != 0) return finish(0);
    if (ended == kReset) return done > 0 ? finish(0) : reset_result();
    if (ended == kEnded) return finish(0);
    const auto came = [this] {
      return in_->written.load(std::memory_order_acquire) != end_->read_cursor;
    };
    if (!enough && wait && spin(end_->read_spin, came)) continue;
    if (!wait && looked_after) return finish(EAGAIN);
    arm();
    if (done == wanted) return finish(0);
    if (in_->written.load(std::memory_order_acquire) != end_->read_cursor) continue;
    if (enough) return finish(0);
    const int error = await_signal(wait);
    if (in_->written.load(std::memory_order_acquire) != end_->read_cursor) continue;
    if (error == kPairEnded) return finish(0);
    if (error == ECONNRESET) return done > 0 ? finish(0) : reset_result();
    if (error != 0) return finish(error);
  }
}

// Sleeps in the kernel until there is a signal, without the lock. The kernel's socket knows about
// time limits, interrupting signals and the other end's death.
//   0: look again; kPairEnded; an errno, EAGAIN among them
int Channel::await_signal(bool wait) {
  if (wait) pthread_mutex_unlock(&end_->reading);
  const ssize_t got = peek_octet(socket_, wait);
  const int error = errno;
  if (wait) static_cast<void>(lock_robust(end_->reading));
  // The kernel says reset when signals were left unread, too. As with TCP, it is one if octets
  // were.
  if (got < 0) return error == ECONNRESET && unsent() == 0 ? kPairEnded : error;
  if (got == 0) return kPairEnded;
  // A signal, and yet nothing in the ring: it came late, for octets that were read long ago.
  if (in_->written.load(std::memory_order_acquire) == end_->read_cursor) {
    if (in_->reader_waits.load() == 0) {
      arm();  // another thread has read meanwhile
    } else {
      take_stale();
    }
    if (!wait && peek_octet(socket_, false) == 0) return unsent() == 0 ? kPairEnded : ECONNRESET;
  }
  return wait ? 0 : EAGAIN;
}

// With an empty ring and reader_waits set: takes signals that may not be counted yet. Their writer
// may have lost its core in between, to us: waiting for it to count would keep it from doing so.
// Those that are there while reader_waits is still set were sent before it was.
void Channel::take_stale() {
  std::uint8_t trash[4096];
  const ssize_t there = peek_octets(socket_, trash, sizeof trash);
  if (there <= 0 || in_->reader_waits.load() == 0) return;
  const ssize_t n = take_octets(socket_, trash, static_cast<std::size_t>(there));
  if (n > 0) end_->drained += static_cast<std::uint64_t>(n);
}

// --- ends and readiness ---

void Channel::shut(int how) {
  if (how != SHUT_WR) end_->read_shut = 1;
  if (how != SHUT_RD) {
    const Hold hold(end_->writing);
    end_->write_shut = 1;
    std::uint32_t open = 0;
    out_->ended.compare_exchange_strong(open, kEnded);
  }
  real().shutdown(socket_, how);
}

void Channel::reset() { out_->ended.store(kReset, std::memory_order_release); }

void Channel::leave() {
  in_->reader_gone.store(1, std::memory_order_release);
  if (unread() > 0) {
    // As TCP, which answers octets that nobody will read with a reset.
    std::uint32_t open = 0;
    out_->ended.compare_exchange_strong(open, kReset);
    return;
  }
  // The kernel takes octets that are left in the pair for unread data, and reports an error.
  std::uint8_t trash[4096];
  for (int turn = 0; turn < kDrainTurns && take_octets(socket_, trash, sizeof trash) > 0; ++turn) {
  }
}

bool Channel::hung_up() const { return end_->write_shut.load() != 0 || broken(); }

bool Channel::broken() const { return in_->ended.load() == kReset || unsent() > 0; }

bool Channel::has_error() const {
  return in_->ended.load() == kReset && end_->reset_told.load() == 0;
}

int Channel::take_error() {
  if (in_->ended.load() != kReset) return 0;
  return end_->reset_told.exchange(1) == 0 ? ECONNRESET : 0;
}

bool Channel::reading_ended() const {
  return in_->ended.load(std::memory_order_acquire) != 0 || end_->read_shut.load() != 0;
}

std::size_t Channel::unread() const {
  const std::uint64_t used = in_->written.load(std::memory_order_acquire) -
                             end_->read_cursor.load(std::memory_order_relaxed);
  return corrupt(used) ? 0 : used;
}

bool Channel::awaits_signal() const {
  return in_->reader_waits.load() != 0 && unread() == 0 && in_->ended.load() == 0;
}

std::size_t Channel::unsent() const {
  const std::uint64_t used =
      out_->written.load(std::memory_order_acquire) - out_->read.load(std::memory_order_acquire);
  return corrupt(used) ? 0 : used;
}

void Channel::await_room() {
  const Hold hold(end_->writing);
  if (hold.held() && room() == 0) fill_up();
}

std::size_t Channel::room() const { return ring_bytes_ - unsent(); }

bool Channel::has_room() const { return room() >= ring_bytes_ / 4; }

void Channel::mirror() {
  if (end_->mirrored.exchange(1) == 0) settle();
}

void Channel::settle() {
  const Hold hold(end_->reading);
  if (!hold.held()) return;
  if (in_->written.load(std::memory_order_acquire) == end_->read_cursor) arm();
}

bool Channel::really_readable() {
  if (unread() > 0 || in_->ended.load() != 0 || end_->read_shut.load() != 0) return true;
  const int error = errno;
  const Hold hold(end_->reading);
  if (!hold.held()) return false;
  arm();
  const int found = await_signal(false);
  errno = error;
  return found != EAGAIN || in_->written.load(std::memory_order_acquire) != end_->read_cursor;
}

}  // namespace weft::sockets
