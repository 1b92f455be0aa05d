#include "io/link_transport.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "io/link_pump.h"
#include "io/link_schedule.h"
#include "os/clock.h"
#include "os/event_fd.h"
#include "os/guarded.h"
#include "os/lock.h"

namespace weft::io {
namespace {

// The kernel has no room: looked at again after so long.
constexpr Duration kPause = std::chrono::microseconds(200);
// A stream is closed, and its peer takes nothing: for so long once all is due.
constexpr Duration kLinger = std::chrono::seconds(60);

// Shared by a transport and the thread. It lives until all that was taken has left.
class Link : public UnderWay, public std::enable_shared_from_this<Link> {
 public:
  Link(LinkTrouble trouble, os::Fd bell)
      : bell_(std::move(bell)),
        trouble_(std::move(trouble)),
        schedule_(trouble_, os::now()),
        most_(schedule_.room()) {}

  // Once, before anything else.
  void carry_by(std::unique_ptr<Transport> inner) { inner_ = std::move(inner); }
  [[nodiscard]] std::ptrdiff_t send(std::span<const Slice> slices);
  void shutdown_send();
  void close(bool reset);
  // In the thread: sends what is due.
  void serve();
  [[nodiscard]] std::uint64_t queued() const {
    const os::MutexLock lock(mutex_);
    return queued_;
  }
  [[nodiscard]] bool has_room() const { return queued() < most_; }
  [[nodiscard]] std::optional<Instant> last_due() const override {
    const os::MutexLock lock(mutex_);
    return chunks_.empty() ? std::nullopt : std::optional(chunks_.back().due);
  }
  [[nodiscard]] bool is_cut() const { return cut_.load(std::memory_order_acquire); }
  [[nodiscard]] Transport& inner() { return *inner_; }
  [[nodiscard]] int bell() const { return bell_.get(); }

 private:
  struct Chunk {
    std::vector<std::uint8_t> octets;
    std::size_t sent = 0;
    Instant due;
    bool cut = false;
  };
  std::size_t take(std::span<const Slice> slices, Instant now) WEFT_REQUIRES(mutex_);
  [[nodiscard]] Instant flush(Instant now) WEFT_REQUIRES(mutex_);
  void call_at(Instant when) WEFT_REQUIRES(mutex_);
  void end(int error) WEFT_REQUIRES(mutex_);
  void settle() WEFT_REQUIRES(mutex_);

  std::unique_ptr<Transport> inner_;  // for good, once it is there
  const os::Fd bell_;
  const LinkTrouble trouble_;
  mutable os::Mutex mutex_;
  LinkSchedule schedule_ WEFT_GUARDED_BY(mutex_);
  const std::size_t most_;
  std::deque<Chunk> chunks_ WEFT_GUARDED_BY(mutex_);
  std::size_t queued_ WEFT_GUARDED_BY(mutex_) = 0;
  Instant called_at_ WEFT_GUARDED_BY(mutex_) = Instant::never();
  int error_ WEFT_GUARDED_BY(mutex_) = 0;
  bool ends_ WEFT_GUARDED_BY(mutex_) = false;     // a chunk with the cut is queued
  bool blocked_ WEFT_GUARDED_BY(mutex_) = false;  // somebody waits for room
  bool fin_ WEFT_GUARDED_BY(mutex_) = false;      // behind the chunks
  bool closing_ WEFT_GUARDED_BY(mutex_) = false;  // behind the chunks
  bool reset_ WEFT_GUARDED_BY(mutex_) = false;    // so it is closed
  Instant given_up_at_ WEFT_GUARDED_BY(mutex_) = Instant::never();
  bool closed_ WEFT_GUARDED_BY(mutex_) = false;
  std::atomic<bool> cut_{false};
};

std::size_t Link::take(std::span<const Slice> slices, Instant now) {
  std::size_t taken = 0;
  for (const Slice& slice : slices) {
    for (std::size_t done = 0; done < slice.size;) {
      if (queued_ >= most_ || ends_) return taken;
      const auto piece = schedule_.next(std::min(slice.size - done, most_ - queued_), now);
      const std::uint8_t* const from = slice.data + done;
      Chunk& chunk = chunks_.emplace_back();
      chunk.octets.assign(from, from + piece.size);
      if (piece.flipped) chunk.octets.front() ^= 1U;
      chunk.due = piece.due;
      chunk.cut = ends_ = piece.cut;
      queued_ += piece.size;
      done += piece.size;
      taken += piece.size;
    }
  }
  return taken;
}

std::ptrdiff_t Link::send(std::span<const Slice> slices) {
  const os::MutexLock lock(mutex_);
  if (error_ != 0) return -error_;
  std::size_t all = 0, taken = 0;
  for (const Slice& slice : slices) all += slice.size;
  // Not analyzed: it does not know of the lock within.
  const Status done = os::guarded([&]() WEFT_NOT_ANALYZED -> Status {
    const Instant now = os::now();
    taken = take(slices, now);
    blocked_ = taken < all;
    const Instant next = flush(now);
    // The room was filled, and all has left already: nothing else would ring.
    call_at(blocked_ && chunks_.empty() ? now : next);
    return {};
  });
  if (!done) {  // no memory, no thread
    end(ECONNABORTED);
    return -ECONNABORTED;
  }
  return taken == 0 && all != 0 ? -EAGAIN : static_cast<std::ptrdiff_t>(taken);
}

void Link::call_at(Instant when) {
  if (when >= called_at_) return;
  LinkPump::of_process().call(when, [self = shared_from_this()] { self->serve(); });
  called_at_ = when;
}

// Nothing of it gets any further.
void Link::end(int error) {
  error_ = error;
  chunks_.clear();
  queued_ = 0;
}

Instant Link::flush(Instant now) {
  while (!chunks_.empty()) {
    Chunk& first = chunks_.front();
    if (first.due > now) return first.due;
    const Slice rest{first.octets.data() + first.sent, first.octets.size() - first.sent};
    const std::ptrdiff_t sent = inner_->send({&rest, 1});
    if (sent == -EAGAIN || sent == -ENOBUFS || sent == -ENOMEM) {
      if (now < given_up_at_) return now + kPause;
      reset_ = true;
      end(ETIMEDOUT);
      break;
    }
    if (sent < 0) {
      end(static_cast<int>(-sent));
      break;
    }
    first.sent += static_cast<std::size_t>(sent);
    queued_ -= static_cast<std::size_t>(sent);
    if (first.sent < first.octets.size()) continue;
    const bool cut = first.cut;
    chunks_.pop_front();
    if (!cut) continue;
    cut_.store(true, std::memory_order_release);
    end(ECONNRESET);
    static_cast<void>(::shutdown(inner_->fd(), SHUT_RDWR));  // epoll reports it
  }
  settle();
  return schedule_.has_struck() ? now : Instant::never();
}

// All has left.
void Link::settle() {
  if (closed_) return;
  if (std::exchange(fin_, false)) inner_->shutdown_send();
  if (!std::exchange(closing_, false)) return;
  closed_ = true;
  inner_->close(reset_ || cut_.load(std::memory_order_relaxed));
}

void Link::serve() {
  std::vector<LinkSchedule::Struck> struck;
  bool room = false;
  {
    const os::MutexLock lock(mutex_);
    const Instant now = os::now();
    if (called_at_ > now) return;  // an earlier one came in between
    called_at_ = Instant::never();
    struck = schedule_.take_struck();
    const Status done = os::guarded([&]() WEFT_NOT_ANALYZED -> Status {
      if (!closed_) call_at(flush(now));
      return {};
    });
    if (!done) {
      end(ECONNABORTED);
      settle();
    }
    room = blocked_ && queued_ <= most_ / 2;
    if (room) blocked_ = false;
  }
  if (room) os::raise_event(bell_.get());
  if (!trouble_.on_rule) return;
  for (const LinkSchedule::Struck& one : struck)
    trouble_.on_rule(trouble_.rules[one.rule], one.octet, true);
}

void Link::shutdown_send() {
  const os::MutexLock lock(mutex_);
  if (chunks_.empty()) return inner_->shutdown_send();
  fin_ = true;
}

// Behind what is under way, as TCP's own end is: octets that are late are not lost.
void Link::close(bool reset) {
  const os::MutexLock lock(mutex_);
  closing_ = true;
  reset_ = reset;
  if (chunks_.empty()) return settle();
  given_up_at_ = std::max(os::now(), chunks_.back().due) + kLinger;
}

class LinkTransport final : public Transport {
 public:
  explicit LinkTransport(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  ~LinkTransport() override = default;

  [[nodiscard]] std::ptrdiff_t send(std::span<const Slice> slices) override {
    return link_->send(slices);
  }
  [[nodiscard]] std::ptrdiff_t receive(std::span<const Slice> slices) override {
    return link_->is_cut() ? -ECONNRESET : link_->inner().receive(slices);
  }
  [[nodiscard]] int fd() const noexcept override { return link_->inner().fd(); }
  [[nodiscard]] std::uint32_t events(bool /*blocked*/) const noexcept override {
    return link_->inner().events(false);  // the bell tells of room
  }
  [[nodiscard]] int bell() const noexcept override { return link_->bell(); }
  void reported() noexcept override { link_->inner().reported(); }
  void attend() noexcept override { link_->inner().attend(); }
  [[nodiscard]] bool settle() noexcept override { return link_->inner().settle(); }
  [[nodiscard]] bool short_read_is_all() const noexcept override {
    return link_->inner().short_read_is_all();
  }
  [[nodiscard]] std::size_t read_ahead() const noexcept override {
    return link_->inner().read_ahead();
  }
  // A peer that asks for a change of the path is answered, and refused.
  [[nodiscard]] PathTransport* movable() noexcept override { return link_->inner().movable(); }
  [[nodiscard]] bool may_have_room() const noexcept override { return link_->has_room(); }
  void shutdown_send() noexcept override { link_->shutdown_send(); }
  void close(bool reset) noexcept override { link_->close(reset); }
  void keep_alive(Duration limit) override { link_->inner().keep_alive(limit); }
  [[nodiscard]] PeerLiveness liveness() const override {
    const std::uint64_t queued = link_->queued();  // first: octets only move on
    PeerLiveness out = link_->inner().liveness();
    out.unacknowledged += queued;
    return out;
  }
  [[nodiscard]] std::uint64_t unacknowledged() const override {
    const std::uint64_t queued = link_->queued();
    return queued + link_->inner().unacknowledged();
  }
  [[nodiscard]] const char* path() const noexcept override { return link_->inner().path(); }

 private:
  const std::shared_ptr<Link> link_;
};

// It has no effect.
void tell_impossible(const LinkTrouble& trouble, const LinkRule& rule) {
  if (!trouble.on_rule) return;
  static_cast<void>(os::guarded([&]() -> Status {
    LinkPump::of_process().call(os::now(),
                                [tell = trouble.on_rule, rule] { tell(rule, rule.at, false); });
    return {};
  }));
}

}  // namespace

void put_on_bad_link(std::unique_ptr<Transport>& transport, LinkTrouble trouble, LinkUse use) {
  trouble.loss_percent = 0;  // TCP repeats what is lost
  if (!trouble.is_any()) return;
  os::Fd bell = os::make_event();
  const bool possible = (transport->movable() == nullptr || use.stays_on_tcp) && bell;
  std::erase_if(trouble.rules, [&](const LinkRule& rule) {
    const bool fits = possible && (use.crc || rule.what != LinkRule::What::kFlip);
    if (!fits) tell_impossible(trouble, rule);
    return !fits;
  });
  if (!possible || !trouble.is_any()) return;
  auto link = std::make_shared<Link>(std::move(trouble), std::move(bell));
  auto on_link = std::make_unique<LinkTransport>(link);
  LinkPump::of_process().add(link);
  link->carry_by(std::move(transport));
  transport = std::move(on_link);
}

}  // namespace weft::io
