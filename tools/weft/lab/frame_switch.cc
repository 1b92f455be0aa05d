#include "weft/lab/frame_switch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <queue>
#include <span>
#include <utility>

#include "lab/cable.h"

namespace weft::cli {
namespace {

using lab::Cable;
using Bytes = std::vector<unsigned char>;

constexpr int kHighest = -20;
constexpr std::size_t kHeader = 10;  // of virtio, before each frame
constexpr std::size_t kLargestFrame = kHeader + 14 + 65536;
constexpr std::size_t kAddress = 6;
constexpr unsigned kFramesInARow = 32;            // of one host
constexpr std::size_t kMostUnderWay = 512 << 20;  // bytes

Cable::Time now() {
  return std::chrono::duration_cast<Cable::Time>(
      std::chrono::steady_clock::now().time_since_epoch());
}

struct UnderWay {
  Cable::Time due;
  std::uint64_t order;  // of those that are due at the same moment
  unsigned to;
  Bytes frame;
  bool operator<(const UnderWay& other) const {  // the one that is due first is the greatest
    return std::pair(due, order) > std::pair(other.due, other.order);
  }
};

class Carrier {
 public:
  Carrier(const lab::Link& link, const std::vector<UniqueFd>& ports,
          std::atomic<std::uint64_t>& lost)
      : cable_(link, static_cast<unsigned>(ports.size())), ports_(ports), lost_(lost) {}

  // When there is something to do that no descriptor tells. Time{-1}: there is not.
  [[nodiscard]] Cable::Time wakes_at(Cable::Time time) const {
    Cable::Time out{-1};
    const auto earlier = [&](Cable::Time one) {
      if (out.count() < 0 || one < out) out = one;
    };
    if (!under_way_.empty()) earlier(under_way_.top().due);
    for (unsigned host = 0; host < ports_.size(); ++host) {
      if (cable_.next_from(host) > time) earlier(cable_.next_from(host));
    }
    return out;
  }
  [[nodiscard]] bool may_read(unsigned host, Cable::Time time) const {
    return cable_.next_from(host) <= time;
  }
  void read_from(unsigned host) {
    for (unsigned i = 0; i < kFramesInARow && may_read(host, now()); ++i) {
      const ssize_t got = read(ports_[host].get(), buffer_.data(), buffer_.size());
      if (got < 0) return note_empty(host);
      if (got <= static_cast<ssize_t>(kHeader + 2 * kAddress)) return;
      take(host, std::span(buffer_).first(static_cast<std::size_t>(got)));
    }
  }
  // Nothing waits for the line of this host.
  void note_empty(unsigned host) { empty_[host] = true; }
  void deliver_due() {
    while (!under_way_.empty() && under_way_.top().due <= now()) {
      const UnderWay& next = under_way_.top();
      // A host that takes no more loses it, as from a card whose ring is full.
      if (write(ports_[next.to].get(), next.frame.data(), next.frame.size()) < 0) count_lost();
      bytes_under_way_ -= next.frame.size();
      under_way_.pop();
    }
  }

 private:
  void take(unsigned from, std::span<const unsigned char> frame) {
    const std::uint64_t bytes = frame.size() - kHeader;
    cable_.take(from, bytes, now(), !empty_[from]);
    empty_[from] = false;
    const unsigned char* const address = frame.data() + kHeader;
    if ((address[0] & 1U) == 0) {  // not to several
      const unsigned to = address[kAddress - 1] - 1U;
      if (to < ports_.size() && to != from) send(from, to, frame);
      return;
    }
    for (unsigned to = 0; to < ports_.size(); ++to) {
      if (to != from) send(from, to, frame);
    }
  }
  void send(unsigned from, unsigned to, std::span<const unsigned char> frame) {
    const auto due = cable_.deliver(from, to, frame.size() - kHeader);
    if (!due || bytes_under_way_ + frame.size() > kMostUnderWay) return count_lost();
    bytes_under_way_ += frame.size();
    under_way_.push({*due, order_++, to, Bytes(frame.begin(), frame.end())});
  }
  void count_lost() { lost_.fetch_add(1, std::memory_order_relaxed); }

  Cable cable_;
  const std::vector<UniqueFd>& ports_;
  std::atomic<std::uint64_t>& lost_;
  std::vector<bool> empty_ = std::vector<bool>(ports_.size(), true);  // by host
  std::array<unsigned char, kLargestFrame> buffer_;
  std::priority_queue<UnderWay> under_way_;
  std::size_t bytes_under_way_ = 0;
  std::uint64_t order_ = 0;
};

}  // namespace

HostNetwork network_of(const lab::Link& link) {
  constexpr std::uint64_t kFast = 5'000'000'000;
  constexpr std::uint64_t kPacket = 1514;
  constexpr std::uint64_t kLarge = 64 << 10;
  // A kernel's interfaces have such a queue. Without it senders lose what their own line has no
  // room for, which no network card does to them.
  const std::uint64_t least = link.queue_bytes != 0 ? 16 : 1000;
  HostNetwork out;
  if (link.bits_per_s == 0) return out;
  out.large_frames = link.bits_per_s >= kFast;
  const std::uint64_t frames = lab::queue_of(link) / (out.large_frames ? kLarge : kPacket);
  out.queue = static_cast<unsigned>(std::max(frames, least));
  return out;
}

FrameSwitch::FrameSwitch(const lab::Link& link, std::vector<UniqueFd> ports)
    : ports_(std::move(ports)) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) == 0) {
    stopped_ = UniqueFd(ends[0]);
    stop_ = UniqueFd(ends[1]);
  }
  // Signals are the main thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, link] { carry(link); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FrameSwitch::~FrameSwitch() {
  stop_.reset();
  thread_.join();
}

void FrameSwitch::carry(const lab::Link& link) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // wakes on time, and not up to 50 us later
  // Before the programs, which may keep all cores busy. Only root gets it.
  static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kHighest));
  const auto carrier = std::make_unique<Carrier>(link, ports_, lost_);
  std::vector<pollfd> polled(ports_.size() + 1);
  polled.back() = {stopped_.get(), POLLIN, 0};
  for (;;) {
    carrier->deliver_due();
    const Cable::Time time = now();
    for (unsigned host = 0; host < ports_.size(); ++host) {
      const bool may_read = carrier->may_read(host, time);
      polled[host] = {may_read ? ports_[host].get() : -1, POLLIN, 0};
    }
    const Cable::Time wakes_at = carrier->wakes_at(time);
    const Cable::Time wait = std::max(wakes_at - time, Cable::Time{0});
    constexpr std::int64_t kNsPerSecond = 1'000'000'000;
    const timespec limit{wait.count() / kNsPerSecond, wait.count() % kNsPerSecond};
    ppoll(polled.data(), polled.size(), wakes_at.count() < 0 ? nullptr : &limit, nullptr);
    if (polled.back().revents != 0) return;
    for (unsigned host = 0; host < ports_.size(); ++host) {
      if ((polled[host].revents & POLLIN) != 0) {
        carrier->read_from(host);
      } else if (polled[host].fd >= 0) {
        carrier->note_empty(host);
      }
    }
  }
}

}  // namespace weft::cli
