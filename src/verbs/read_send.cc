// ReadSender: the pipeline of readsend/ with queue pairs as its links and device memory as its
// segments.
#include <weft/read_send.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <weft/device.h>
#include <weft/system_error.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <deque>
#include <limits>
#include <unordered_map>
#include <vector>

#include "os/cancel.h"
#include "os/clock.h"
#include "os/fd.h"
#include "readsend/pipeline.h"

namespace weft {
namespace {

using readsend::Disk;
using readsend::Link;
using readsend::Piece;
using readsend::Pipeline;

constexpr std::uint64_t kOurs = std::uint64_t{1} << 63U;  // set in the wr_id of each piece
constexpr std::uint64_t kInOrder = 1;                     // messages and immediates of a queue pair

std::uint64_t id_of(const Piece& piece) { return reinterpret_cast<std::uintptr_t>(&piece) | kOurs; }

class QpLink;

struct Outgoing final : readsend::Request {
  ReadSend asked;
  ReadSendHandle handle = 0;
  QpLink* link = nullptr;
  WorkCompletion failed;  // the first message that did, if any
};

class Sender final : public ReadSender {
 public:
  Sender(std::shared_ptr<ProtectionDomain> pd, const ReadSenderOptions& options,
         std::unique_ptr<Disk> disk)
      : pd_(std::move(pd)),
        options_(options),
        disk_(std::move(disk)),
        pipeline_(*disk_, options.segment_bytes) {}
  ~Sender() override;
  [[nodiscard]] Status set_up();

  [[nodiscard]] std::shared_ptr<CompletionQueue> completion_queue() const override { return cq_; }
  [[nodiscard]] Result<ReadSendHandle> post(std::shared_ptr<QueuePair> qp,
                                            const ReadSend& request) override;
  std::size_t poll(std::span<ReadSendCompletion> out) override;
  [[nodiscard]] Result<ReadSendCompletion> wait(
      ReadSendHandle handle, std::optional<std::chrono::nanoseconds> timeout) override;
  [[nodiscard]] int fd() const override { return epoll_.get(); }
  void arm() override;

  // The requests of the links.
  [[nodiscard]] std::optional<readsend::Segment> take_segment();
  void give_back(std::uint64_t number) { free_.push_back(number); }
  [[nodiscard]] std::uint32_t lkey(std::uint64_t number) const { return segments_[number]->lkey(); }
  void finished(QpLink& link, Outgoing& out);

 private:
  std::size_t step();
  void completed(const WorkCompletion& wc);
  [[nodiscard]] bool is_file_range(const ReadSend& request) const;

  std::shared_ptr<ProtectionDomain> pd_;
  const ReadSenderOptions options_;
  os::Fd epoll_;
  std::shared_ptr<CompletionChannel> channel_;
  std::shared_ptr<CompletionQueue> cq_;
  std::shared_ptr<DeviceMemoryOwner> memory_;
  std::vector<std::shared_ptr<MemoryRegion>> segments_;
  std::vector<std::uint64_t> free_;  // numbers of segments
  std::unique_ptr<Disk> disk_;
  Pipeline pipeline_;
  std::unordered_map<const QueuePair*, std::unique_ptr<QpLink>> links_;
  std::unordered_map<ReadSendHandle, std::unique_ptr<Outgoing>> requests_;
  std::deque<ReadSendCompletion> done_;
  std::vector<const QueuePair*> idle_;  // whose links may go
  ReadSendHandle next_handle_ = 1;
  bool armed_ = false;
};

// A queue pair while it has requests.
class QpLink final : public Link {
 public:
  QpLink(Sender& sender, std::shared_ptr<QueuePair> whose, unsigned max_pieces)
      : Link(max_pieces), qp(std::move(whose)), sender_(sender) {}
  const std::shared_ptr<QueuePair> qp;
  std::size_t requests = 0;

 private:
  [[nodiscard]] std::optional<readsend::Segment> take_segment(std::uint32_t /*bytes*/) override {
    return sender_.take_segment();
  }
  void give_back(const readsend::Segment& segment) override { sender_.give_back(segment.handle); }
  [[nodiscard]] int post(readsend::Request& request, Piece& piece) override;
  void sent(readsend::Request& /*request*/) override {}
  void finished(readsend::Request& request) override {
    sender_.finished(*this, static_cast<Outgoing&>(request));
  }

  Sender& sender_;
};

int QpLink::post(readsend::Request& request, Piece& piece) {
  auto& out = static_cast<Outgoing&>(request);
  SendWr wr;
  wr.wr_id = id_of(piece);
  wr.op = piece.is_tail() ? SendOp::kWriteImm : out.asked.op;
  wr.flags = SendFlags::kSignaled;
  if (out.asked.solicited && (piece.is_tail() || wr.op == SendOp::kSend)) {
    wr.flags = wr.flags | SendFlags::kSolicited;
  }
  wr.remote_addr = out.asked.remote_addr;
  wr.rkey = out.asked.rkey;
  wr.imm_data = out.asked.imm_data;
  Sge sge;
  if (!piece.is_tail()) {
    if (wr.op == SendOp::kWriteImm) wr.op = SendOp::kWrite;
    wr.remote_addr += piece.at;
    sge = {.addr = piece.skew, .length = piece.got, .lkey = sender_.lkey(piece.segment->handle)};
    wr.sges = {&sge, 1};
  }
  const Status posted = qp->post_send(wr);
  if (posted) return 0;
  if (posted.error() == Error::kNoSpace) return EAGAIN;
  out.failed.status = WcStatus::kLocalQpOperation;
  return ENOTCONN;
}

// ---- Set-up and end

Status Sender::set_up() {
  auto heap = options_.heap;
  if (heap == nullptr) {
    DeviceMemoryOptions own;
    own.bytes = std::uint64_t{options_.segment_bytes} * options_.segments;
    auto made = DeviceMemoryHeap::create(own);
    if (!made) return fail(made.error());
    heap = std::move(*made);
  }
  memory_ = heap->add_owner();
  for (std::uint32_t i = 0; i < options_.segments; ++i) {
    const auto handle = memory_->allocate(options_.segment_bytes, 12);
    if (!handle) return fail(handle.error());
    auto region =
        memory_->register_memory(*pd_, *handle, 0, options_.segment_bytes, Access::kLocalWrite);
    if (!region) return fail(region.error());
    segments_.push_back(std::move(*region));
    free_.push_back(i);
  }
  auto channel = pd_->device().create_channel();
  if (!channel) return fail(channel.error());
  channel_ = std::move(*channel);
  auto cq = pd_->device().create_cq({.depth = options_.cq_depth, .channel = channel_});
  if (!cq) return fail(cq.error());
  cq_ = std::move(*cq);
  epoll_ = os::Fd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  for (const int fd : {channel_->fd(), disk_->fd()}) {
    if (!epoll_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return fail(system_error(errno));
    }
  }
  return {};
}

Sender::~Sender() {
  const os::NoCancel guard;
  for (auto& [qp, link] : links_) pipeline_.close(*link);
  while (disk_->pending() != 0) {
    if (disk_->progress() != 0) continue;
    pollfd one{.fd = disk_->fd(), .events = POLLIN, .revents = 0};
    ::poll(&one, 1, -1);
    disk_->clear_event();
  }
}

Result<std::unique_ptr<ReadSender>> create_sender(std::shared_ptr<ProtectionDomain> pd,
                                                  const ReadSenderOptions& options) {
  const auto& o = options;
  const bool good = pd != nullptr && o.segment_bytes != 0 &&
                    o.segment_bytes % Pipeline::kPage == 0 && o.segments >= 2 &&
                    o.segments_per_qp != 0 && o.max_requests != 0;
  if (!good) return fail(Error::kInvalidArgument);
  auto disk = Disk::create(std::max(o.segments, 8U));
  if (!disk) return fail(system_error(disk.error()));
  auto sender = std::make_unique<Sender>(std::move(pd), options, std::move(*disk));
  if (const Status ready = sender->set_up(); !ready) return fail(ready.error());
  return sender;
}

// ---- Requests

bool Sender::is_file_range(const ReadSend& request) const {
  struct stat about {};
  if (request.fd < 0 || fstat(request.fd, &about) != 0) return false;
  if (!S_ISREG(about.st_mode) && !S_ISBLK(about.st_mode)) return false;
  constexpr auto kEnd = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  return request.bytes != 0 && request.offset <= kEnd && request.bytes <= kEnd - request.offset;
}

Result<ReadSendHandle> Sender::post(std::shared_ptr<QueuePair> qp, const ReadSend& request) {
  const bool is_send = request.op == SendOp::kSend;
  const bool is_write = request.op == SendOp::kWrite || request.op == SendOp::kWriteImm;
  if (qp == nullptr || (!is_send && !is_write) || !is_file_range(request)) {
    return fail(Error::kInvalidArgument);
  }
  auto out = std::make_unique<Outgoing>();
  out->fd = request.fd;
  out->direct = (fcntl(request.fd, F_GETFL) & O_DIRECT) != 0;
  out->offset = request.offset;
  out->bytes = request.bytes;
  out->whole = is_send;
  out->has_tail = request.op == SendOp::kWriteImm;
  out->order = out->whole || out->has_tail ? kInOrder : 0;
  out->asked = request;
  const bool too_long = is_send ? !pipeline_.fits(*out, options_.segment_bytes)
                                : request.bytes - 1 > ~request.remote_addr;
  if (too_long) return fail(Error::kInvalidArgument);
  if (requests_.size() >= options_.max_requests) return fail(Error::kNoSpace);
  auto& link = links_[qp.get()];
  if (link == nullptr) {
    const unsigned most = std::min(options_.segments_per_qp, options_.segments);
    link = std::make_unique<QpLink>(*this, std::move(qp), most);
  }
  ++link->requests;
  out->link = link.get();
  out->handle = next_handle_++;
  Outgoing& posted = *out;
  requests_.emplace(posted.handle, std::move(out));
  pipeline_.submit(*link, posted);
  const ReadSendHandle handle = posted.handle;
  step();
  return handle;
}

std::optional<readsend::Segment> Sender::take_segment() {
  if (free_.empty()) return std::nullopt;
  const std::uint64_t number = free_.back();
  free_.pop_back();
  assert(number < segments_.size());
  return readsend::Segment{static_cast<std::uint8_t*>(segments_[number]->addr()), number};
}

void Sender::finished(QpLink& link, Outgoing& out) {
  assert(out.link == &link && link.requests > 0);
  ReadSendCompletion done;
  done.handle = out.handle;
  done.work = out.failed;
  done.work.wr_id = out.asked.wr_id;
  done.work.op = out.whole ? WcOp::kSend : WcOp::kWrite;
  done.work.qp_num = link.qp->number();
  if (done.work.status == WcStatus::kSuccess && !out.complete()) {
    done.work.status = WcStatus::kLocalAccess;
    done.disk_error = out.error != 0 ? out.error : ENODATA;
  }
  done_.push_back(done);
  requests_.erase(out.handle);
  // The pipeline still holds the link: it goes once that has returned.
  if (--link.requests == 0) idle_.push_back(link.qp.get());
}

// ---- Progress

void Sender::completed(const WorkCompletion& wc) {
  if ((wc.wr_id & kOurs) == 0) {
    done_.push_back({.work = wc});
    return;
  }
  auto& piece = *reinterpret_cast<Piece*>(wc.wr_id & ~kOurs);
  assert(piece.request != nullptr);
  const bool good = wc.status == WcStatus::kSuccess;
  auto& out = static_cast<Outgoing&>(*piece.request);
  if (!good && out.failed.status == WcStatus::kSuccess) out.failed = wc;
  pipeline_.network_done(piece, good);
}

// One round; returns how much was done.
std::size_t Sender::step() {
  std::size_t count = disk_->progress();
  WorkCompletion wcs[32];
  const std::size_t polled = cq_->poll(wcs);
  for (std::size_t i = 0; i < polled; ++i) completed(wcs[i]);
  count += polled + pipeline_.pump();
  // Requests that the pump has queued go to the kernel now.
  count += disk_->progress();
  for (const QueuePair* qp : idle_) {
    const auto at = links_.find(qp);
    if (at == links_.end() || at->second->requests != 0) continue;
    pipeline_.close(*at->second);
    links_.erase(at);
  }
  idle_.clear();
  return count;
}

std::size_t Sender::poll(std::span<ReadSendCompletion> out) {
  while (step() != 0 && done_.empty()) {
  }
  const std::size_t count = std::min(out.size(), done_.size());
  std::copy_n(done_.begin(), count, out.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void Sender::arm() {
  // An event of an earlier arming must not wake again.
  if (armed_) {
    while (channel_->wait(std::chrono::nanoseconds(0))) cq_->ack_events(1);
    disk_->clear_event();
  }
  armed_ = true;
  static_cast<void>(cq_->arm(CompletionQueue::Arm::kNext));
}

Result<ReadSendCompletion> Sender::wait(ReadSendHandle handle,
                                        std::optional<std::chrono::nanoseconds> timeout) {
  const auto start = os::now();
  for (bool armed = false;;) {
    const bool moved = step() != 0;
    const auto at = std::find_if(done_.begin(), done_.end(),
                                 [handle](const auto& one) { return one.handle == handle; });
    if (at != done_.end()) {
      const ReadSendCompletion done = *at;
      done_.erase(at);
      return done;
    }
    if (handle == 0 || !requests_.contains(handle)) return fail(Error::kNotFound);
    int left_ms = -1;
    if (timeout) {
      const auto left = *timeout - (os::now() - start);
      if (left.count() <= 0) return fail(Error::kTimedOut);
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      left_ms = static_cast<int>(std::min<std::int64_t>(ms, 1'000'000));
    }
    // Sleeps only after a round that found nothing with the queue armed.
    if (moved || !armed) {
      armed = !moved;
      if (armed) arm();
      continue;
    }
    armed = false;
    epoll_event event{};
    // EINTR: a signal, or io_uring has to run something on this thread.
    if (epoll_wait(epoll_.get(), &event, 1, left_ms) < 0 && errno != EINTR) {
      return fail(system_error(errno));
    }
  }
}

}  // namespace

Result<std::unique_ptr<ReadSender>> ReadSender::create(std::shared_ptr<ProtectionDomain> pd,
                                                       const ReadSenderOptions& options) {
  return create_sender(std::move(pd), options);
}

}  // namespace weft
