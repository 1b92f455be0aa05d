// The writing half of a channel: octets into the ring, and signals to its reader.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sockets/channel_parts.h"
#include "sockets/pair_octets.h"
#include "sockets/real_calls.h"
#include "sockets/socket_channel.h"

namespace weft::sockets {

namespace {

// One signal leaves the pair writable (the kernel says so up to a quarter), one filler does not.
constexpr std::size_t kFiller = 3000;
// Writes into a ring whose reader does not move, before we look whether it still lives.
constexpr std::uint32_t kStalledWrites = 16;

}  // namespace

// Sends octets without meaning. Counted afterwards: an octet that is not counted yet stays in the
// pair a little longer, while one counted too early would take another's place.
bool Channel::send_octets(std::size_t count, bool wait) {
  static const std::uint8_t octets[kFiller] = {};
  const ssize_t n = put_octets(socket_, octets, count, wait);
  if (n > 0) out_->signals.fetch_add(static_cast<std::uint64_t>(n));
  return n > 0;
}

void Channel::signal() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (out_->reader_waits.load(std::memory_order_relaxed) == 0) return;
  if (out_->reader_waits.exchange(0) == 0) return;
  // A full pair is readable now. It may have been emptied by the time of the next octet, which then
  // sends a signal: the reader waits still.
  if (!send_octets(1, false)) out_->reader_waits.store(1);
}

// Makes the pair unwritable: one large run, then one octet that can stay behind alone. It may be
// writable although it has been filled: the reader, with an empty ring, has taken the filling for a
// late signal (take_stale) before there was anything to read.
void Channel::fill_up() {
  if (out_->writer_waits.load() == 0 || ready_for(socket_, POLLOUT, 0)) {
    send_octets(kFiller, false);
    send_octets(1, false);
    out_->writer_waits.store(1);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Channel::other_end_gone() const {
  pollfd one{socket_, 0, 0};
  return real().poll(&one, 1, 0) > 0 && (one.revents & (POLLHUP | POLLERR)) != 0;
}

ssize_t Channel::transmit(const iovec* parts, std::size_t count, bool wait) {
  const ssize_t n = try_transmit(parts, count, wait);
  if (n >= 0 || wait || errno != EAGAIN || !gave_way([this] { return room() > 0; })) return n;
  return try_transmit(parts, count, wait);
}

// How far a write has come in the memory that it was given.
struct Channel::Cursor {
  const iovec* parts;
  std::size_t count;
  std::size_t part = 0;
  std::size_t inside = 0;
  std::size_t done = 0;
};

// The end of a write, if it has come: its result, or an errno less than 0.
std::optional<ssize_t> Channel::end_of_write(std::size_t wanted, std::size_t done) {
  if (end_->write_shut.load() != 0) return -EPIPE;
  if (in_->ended.load(std::memory_order_acquire) == kReset) {
    return end_->reset_told.exchange(1) == 0 ? -ECONNRESET : -EPIPE;
  }
  if (out_->reader_gone.load(std::memory_order_acquire) == 0) return std::nullopt;
  // TCP learns of it by the answer to what it sends: the first octets go nowhere.
  if (done > 0 || end_->write_lost.exchange(1) != 0) return -EPIPE;
  return static_cast<ssize_t>(wanted);
}

// `read`: how far the reader was just now. False: it stands still, and is no more.
bool Channel::reader_lives(std::uint64_t read) {
  if (read != end_->seen_read || end_->write_cursor == read) {
    end_->seen_read = read;
    end_->stalled_writes = 0;
  } else if (++end_->stalled_writes >= kStalledWrites) {
    end_->stalled_writes = 0;
    return !other_end_gone();
  }
  return true;
}

// As much as there is `room` for, published at once.
void Channel::copy_in(Cursor& cursor, std::uint64_t room) {
  std::uint64_t at = end_->write_cursor;
  while (room > 0 && cursor.part < cursor.count) {
    const iovec& part = cursor.parts[cursor.part];
    const std::size_t n = std::min<std::size_t>(part.iov_len - cursor.inside, room);
    const auto* from = static_cast<const std::uint8_t*>(part.iov_base) + cursor.inside;
    const std::size_t to = at & (ring_bytes_ - 1);
    const std::size_t first = std::min<std::size_t>(n, ring_bytes_ - to);
    std::memcpy(out_data_ + to, from, first);
    std::memcpy(out_data_, from + first, n - first);
    at += n;
    room -= n;
    cursor.done += n;
    cursor.inside += n;
    if (cursor.inside != part.iov_len) continue;
    ++cursor.part;
    cursor.inside = 0;
  }
  if (at == end_->write_cursor) return;
  end_->write_cursor = at;
  out_->written.store(at, std::memory_order_release);
  signal();
}

// The ring is full, and the reader was at `read`. An errno, or 0: look again.
int Channel::await_reader(std::uint64_t read, bool wait, Hold& hold) {
  const auto moved_on = [&] { return out_->read.load(std::memory_order_acquire) != read; };
  if (wait && spin(end_->write_spin, moved_on)) return 0;
  fill_up();
  if (moved_on()) return 0;
  if (!wait) return other_end_gone() ? EPIPE : EAGAIN;
  // Sleeps in the kernel until the reader has taken the filling out: signals, time limits and
  // the other end's death are as on any socket.
  hold.drop();
  const int error = send_octets(1, true) ? 0 : errno;
  hold.take();
  return moved_on() ? 0 : error;
}

ssize_t Channel::try_transmit(const iovec* parts, std::size_t count, bool wait) {
  const std::size_t wanted = total_of(parts, count);
  const int saved_errno = errno;
  Cursor cursor{parts, count};
  const auto ended = [&](ssize_t result) -> ssize_t {
    if (result >= 0) return result;
    if (cursor.done > 0) return static_cast<ssize_t>(cursor.done);
    errno = static_cast<int>(-result);
    return -1;
  };
  Hold hold(end_->writing);
  if (!hold.held()) return ended(-EAGAIN);
  while (true) {
    if (const auto end = end_of_write(wanted, cursor.done)) return ended(*end);
    const std::uint64_t read = out_->read.load(std::memory_order_acquire);
    const std::uint64_t used = end_->write_cursor - read;
    if (corrupt(used)) return ended(-ECONNRESET);
    if (!reader_lives(read)) return ended(-EPIPE);
    copy_in(cursor, std::min(ring_bytes_ - used, kPiece));
    if (cursor.done == wanted) break;
    if (end_->write_cursor - read < ring_bytes_) continue;
    if (const int error = await_reader(read, wait, hold); error != 0) return ended(-error);
  }
  errno = saved_errno;
  return static_cast<ssize_t>(cursor.done);
}

}  // namespace weft::sockets
