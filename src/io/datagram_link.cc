#include "io/datagram_link.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/mixed_bits.h"
#include "io/link_pump.h"
#include "io/link_schedule.h"
#include "os/calls.h"
#include "os/clock.h"
#include "os/fd.h"
#include "os/guarded.h"
#include "os/lock.h"

namespace weft::io {
namespace {

// The kernel has no room: looked at again after so long.
constexpr Duration kRetry = std::chrono::microseconds(200);

class HeldDatagrams final : public DatagramLink,
                            public UnderWay,
                            public std::enable_shared_from_this<HeldDatagrams> {
 public:
  HeldDatagrams(LinkTrouble trouble, os::Fd socket)
      : socket_(std::move(socket)),
        trouble_(std::move(trouble)),
        schedule_(trouble_, os::now()),
        most_(schedule_.room()),
        dice_(mixed_bits(trouble_.seed + kMixStep)) {}

  void send(const msghdr& message) override {
    const os::MutexLock lock(mutex_);
    // Not analyzed: it does not know of the lock within. Without memory it is lost.
    static_cast<void>(os::guarded([&]() WEFT_NOT_ANALYZED -> Status {
      take(message, os::now());
      call_at(flush(os::now()));
      return {};
    }));
  }

  [[nodiscard]] std::optional<Instant> last_due() const override {
    const os::MutexLock lock(mutex_);
    return datagrams_.empty() ? std::nullopt : std::optional(datagrams_.back().due);
  }

 private:
  struct Datagram {
    std::vector<std::uint8_t> to, octets, marks;
    Instant due;
  };

  static std::vector<std::uint8_t> copy_of(const void* from, std::size_t size) {
    const auto* const octets = static_cast<const std::uint8_t*>(from);
    return size == 0 ? std::vector<std::uint8_t>() : std::vector(octets, octets + size);
  }

  // The draw is made for each, so that the same ones are lost in each run.
  [[nodiscard]] bool is_lost() WEFT_REQUIRES(mutex_) {
    constexpr double kAll = 18446744073709551616.0;  // 2^64
    return static_cast<double>(next_mixed(dice_)) / kAll * 100 < trouble_.loss_percent;
  }

  void take(const msghdr& message, Instant now) WEFT_REQUIRES(mutex_) {
    Datagram one;
    for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
      const auto piece = copy_of(message.msg_iov[i].iov_base, message.msg_iov[i].iov_len);
      one.octets.insert(one.octets.end(), piece.begin(), piece.end());
    }
    if (is_lost() || one.octets.empty() || queued_ + one.octets.size() > most_) return;
    // It leaves when its last octet does.
    for (std::size_t done = 0; done < one.octets.size();) {
      const auto piece = schedule_.next(one.octets.size() - done, now);
      done += piece.size;
      one.due = piece.due;
    }
    one.to = copy_of(message.msg_name, message.msg_namelen);
    one.marks = copy_of(message.msg_control, message.msg_controllen);
    queued_ += one.octets.size();
    datagrams_.push_back(std::move(one));
  }

  // When to come again. What the kernel refuses is as lost as on a wire that is cut.
  [[nodiscard]] Instant flush(Instant now) WEFT_REQUIRES(mutex_) {
    while (!datagrams_.empty()) {
      Datagram& first = datagrams_.front();
      if (first.due > now) return first.due;
      iovec piece{first.octets.data(), first.octets.size()};
      mmsghdr message{};
      message.msg_hdr.msg_name = first.to.data();
      message.msg_hdr.msg_namelen = static_cast<socklen_t>(first.to.size());
      message.msg_hdr.msg_iov = &piece;
      message.msg_hdr.msg_iovlen = 1;
      message.msg_hdr.msg_control = first.marks.empty() ? nullptr : first.marks.data();
      message.msg_hdr.msg_controllen = first.marks.size();
      const int sent = os::calls::sendmmsg(socket_.get(), &message, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return now + kRetry;
      queued_ -= first.octets.size();
      datagrams_.pop_front();
    }
    return schedule_.has_struck() ? now : Instant::never();
  }

  void call_at(Instant when) WEFT_REQUIRES(mutex_) {
    if (when >= called_at_) return;
    LinkPump::of_process().call(when, [self = shared_from_this()] { self->serve(); });
    called_at_ = when;
  }

  // In the thread: sends what is due.
  void serve() {
    std::vector<LinkSchedule::Struck> struck;
    {
      const os::MutexLock lock(mutex_);
      const Instant now = os::now();
      if (called_at_ > now) return;  // an earlier one came in between
      called_at_ = Instant::never();
      struck = schedule_.take_struck();
      static_cast<void>(os::guarded([&]() WEFT_NOT_ANALYZED -> Status {
        call_at(flush(now));
        return {};
      }));
    }
    if (!trouble_.on_rule) return;
    for (const LinkSchedule::Struck& one : struck)
      trouble_.on_rule(trouble_.rules[one.rule], one.octet, true);
  }

  const os::Fd socket_;
  const LinkTrouble trouble_;
  mutable os::Mutex mutex_;
  LinkSchedule schedule_ WEFT_GUARDED_BY(mutex_);
  const std::size_t most_;
  std::uint64_t dice_ WEFT_GUARDED_BY(mutex_);
  std::deque<Datagram> datagrams_ WEFT_GUARDED_BY(mutex_);
  std::size_t queued_ WEFT_GUARDED_BY(mutex_) = 0;
  Instant called_at_ WEFT_GUARDED_BY(mutex_) = Instant::never();
};

}  // namespace

std::shared_ptr<DatagramLink> make_datagram_link(LinkTrouble trouble, int socket) {
  // A datagram is whole or not there.
  std::erase_if(trouble.rules,
                [](const LinkRule& rule) { return rule.what != LinkRule::What::kStall; });
  if (!trouble.is_any()) return nullptr;
  os::Fd own(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!own) return nullptr;
  auto link = std::make_shared<HeldDatagrams>(std::move(trouble), std::move(own));
  LinkPump::of_process().add(link);
  return link;
}

}  // namespace weft::io
