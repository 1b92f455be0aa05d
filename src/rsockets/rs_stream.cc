#include "rsockets/rs_stream.h"

#include <weft/limits.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace weft::rsockets {

// Kinds of completions; the low 32 bits of a data request hold the octets of the send ring.
namespace kind {
constexpr std::uint64_t kControl = 2ULL << 56U;
constexpr std::uint64_t kReceive = 3ULL << 56U;
constexpr std::uint64_t kMask = 0xffULL << 56U;
}  // namespace kind

namespace {

constexpr std::uint32_t kRingMin = 4096;
constexpr std::uint32_t kRingMax = 1U << 28U;
constexpr std::uint16_t kRequestsMin = 16;
constexpr std::uint16_t kRequestsMax = 8192;
constexpr std::uint32_t kInlineMin = RsIomap::kSize;
constexpr std::size_t kBatch = 32;

}  // namespace

void RsOptions::clamp() {
  // Even, so that the halves of the receive ring are equal.
  send_bytes = std::clamp(send_bytes, kRingMin, kRingMax);
  recv_bytes = std::clamp(recv_bytes, kRingMin, kRingMax) & ~1U;
  send_requests = std::clamp(send_requests, kRequestsMin, kRequestsMax);
  recv_requests = std::clamp(recv_requests, kRequestsMin, kRequestsMax);
  inline_bytes = std::clamp(inline_bytes, kInlineMin, limits::kInlineBytes);
}

Result<std::unique_ptr<RsStream>> RsStream::create(Device& device, RsOptions options) {
  options.clamp();
  std::unique_ptr<RsStream> made(new RsStream(options));
  if (auto ready = made->set_up(device); !ready) return fail(ready.error());
  return made;
}

RsStream::~RsStream() {
  // The queue pair first: nobody writes into the rings after it.
  qp_.reset();
  maps_.clear();
}

Status RsStream::set_up(Device& device) {
  auto pd = device.create_pd();
  if (!pd) return fail(pd.error());
  pd_ = std::move(*pd);
  auto channel = device.create_channel();
  if (!channel) return fail(channel.error());
  channel_ = std::move(*channel);
  CqOptions cq;
  cq.depth = options_.send_requests + options_.recv_requests + kExtraReceives;
  cq.channel = channel_;
  auto made = device.create_cq(cq);
  if (!made) return fail(made.error());
  cq_ = std::move(*made);
  QpOptions qp;
  qp.send_cq = qp.recv_cq = cq_;
  qp.max_send_wr = options_.send_requests;
  qp.max_recv_wr = options_.recv_requests + kExtraReceives;
  qp.max_send_sge = 2;
  qp.max_recv_sge = 1;
  qp.max_inline_bytes = options_.inline_bytes;
  qp.signal_all = true;
  auto pair = pd_->create_qp(qp);
  if (!pair) return fail(pair.error());
  qp_ = std::move(*pair);
  if (auto rings = register_rings(); !rings) return rings;
  return post_receives();
}

Status RsStream::register_rings() {
  constexpr Access kRemote = Access::kLocalWrite | Access::kRemoteWrite;
  const std::size_t strip =
      std::size_t{RsMessage::kSize} * (options_.recv_requests + kExtraReceives);
  const std::size_t tables =
      std::size_t{RsSge::kSize} * kSglEntries + std::size_t{RsIomap::kSize} * options_.iomap_count;
  if (auto done = recv_memory_.create(*pd_, options_.recv_bytes, kRemote); !done) return done;
  if (auto done = tables_.create(*pd_, tables, kRemote); !done) return done;
  if (auto done = send_memory_.create(*pd_, options_.send_bytes, Access::kLocalWrite); !done) {
    return done;
  }
  if (auto done = strip_.create(*pd_, strip, Access::kLocalWrite); !done) return done;
  qp_->set_remote_access(Access::kRemoteWrite);

  requests_free_ = options_.send_requests - kControlSlots;
  sending_.open(send_memory_.size());
  reading_.open(recv_memory_.size(), options_.recv_requests);
  return {};
}

Status RsStream::post_receives() {
  for (std::uint32_t slot = 0; slot < options_.recv_requests + kExtraReceives; ++slot) {
    if (!post_receive(slot)) return fail(Error::kNoSpace);
  }
  return {};
}

bool RsStream::post_receive(std::uint32_t slot) {
  const Sge sge = strip_.sge(std::size_t{slot} * RsMessage::kSize, RsMessage::kSize);
  return static_cast<bool>(
      qp_->post_recv(RecvWr{.wr_id = kind::kReceive | slot, .sges = std::span(&sge, 1)}));
}

std::array<std::uint8_t, RsConnect::kSize> RsStream::private_data() const {
  RsConnect value;
  value.credits = options_.recv_requests;
  value.iomap_count = options_.iomap_count;
  value.target_sgl = {tables_.region().iova(), tables_.region().rkey(), kSglEntries};
  value.data_buffer = {recv_memory_.region().iova(), recv_memory_.region().rkey(),
                       static_cast<std::uint32_t>(reading_.half())};
  value.from_weft = true;
  std::array<std::uint8_t, RsConnect::kSize> out{};
  encode(value, out);
  return out;
}

Status RsStream::start(std::span<const std::uint8_t> private_data) {
  const auto peer = decode_connect(private_data);
  if (!peer) return fail(peer.error());
  credits_.allow(peer->credits);
  remote_.open(*peer);
  maps_.open(peer->iomap_count);
  if (peer->data_buffer.length != 0) targets_.push_back(peer->data_buffer);
  life_ = std::max(life_, Life::kRunning);
  return {};
}

void RsStream::arm() {
  while (channel_->wait(std::chrono::nanoseconds(0))) cq_->ack_events(1);
  armed_ = static_cast<bool>(cq_->arm(CompletionQueue::Arm::kNext));
}

bool RsStream::rest() {
  const auto arrived = this->arrived();
  const bool could = can_send();
  const bool over = peer_finished() || down();
  // One event at most: there is one completion queue.
  const bool taken = armed_ && channel_->wait(std::chrono::nanoseconds(0));
  if (taken) cq_->ack_events(1);
  if (taken || !armed_) armed_ = static_cast<bool>(cq_->arm(CompletionQueue::Arm::kNext));
  process();
  const bool news =
      this->arrived() != arrived || can_send() != could || (peer_finished() || down()) != over;
  return !news && channel_->begin_sleep();
}

bool RsStream::process() {
  std::array<WorkCompletion, kBatch> batch;
  bool some = false;
  for (;;) {
    const std::size_t count = cq_->poll(batch);
    for (std::size_t i = 0; i < count; ++i) completed(batch[i]);
    some = some || count > 0;
    if (count < batch.size()) break;
  }
  if (!running()) return some;
  // Before credits, which would take the slots.
  if (farewell_.disconnect_due()) {
    static_cast<void>(say_disconnect());
  } else if (farewell_.shutdown_due()) {
    static_cast<void>(say_shutdown());
  }
  give_credit();
  send_pending_maps();
  return some;
}

void RsStream::completed(const WorkCompletion& wc) {
  const std::uint64_t what = wc.wr_id & kind::kMask;
  if (wc.status != WcStatus::kSuccess) end(Life::kDown);
  if (what == kind::kReceive) {
    if (wc.status == WcStatus::kSuccess) received(wc);
  } else if (what == kind::kControl) {
    assert(control_outstanding_ != 0);
    --control_outstanding_;
  } else {
    assert(data_outstanding_ != 0);
    --data_outstanding_;
    ++requests_free_;
    sending_.give_back(static_cast<std::uint32_t>(wc.wr_id));
    assert(requests_free_ + kControlSlots <= options_.send_requests);
  }
}

void RsStream::received(const WorkCompletion& wc) {
  const auto slot = static_cast<std::uint32_t>(wc.wr_id);
  assert(slot < options_.recv_requests + kExtraReceives);
  const std::uint8_t* at = strip_.at(std::size_t{slot} * RsMessage::kSize);
  std::array<std::uint8_t, RsMessage::kSize> bytes{};
  std::memcpy(bytes.data(), at, bytes.size());
  const bool posted = post_receive(slot);
  if (violated()) return;
  const auto message = decode_message(bytes);
  if (wc.byte_len != RsMessage::kSize || !message) {
    violation();
    return;
  }
  if (!posted) end(Life::kDown);
  switch (message->op) {
    case RsOp::kData: on_data(message->data); return;
    case RsOp::kCredit: on_credit(static_cast<std::uint16_t>(message->data)); return;
    // It costs the sender a credit, so it counts as read at once (H6).
    case RsOp::kIomap: reading_.message_read(); return;
    case RsOp::kShutdown: peer_ = std::max(peer_, Peer::kFinished); return;
    case RsOp::kDisconnect: peer_ = Peer::kLeft; return;
  }
}

void RsStream::on_data(std::uint32_t length) {
  if (peer_finished() || !reading_.announced(length)) violation();
}

// The target that may have come with it is taken only now, when it is whole (H3).
void RsStream::on_credit(std::uint16_t value) {
  credits_.allow(value);
  std::uint8_t* entry = tables_.at(std::size_t{RsSge::kSize} * next_own_entry_);
  const RsSge target = load_sge(entry);
  if (target.length == 0) return;
  if (targets_.size() >= kSglEntries) {
    violation();
    return;
  }
  targets_.push_back(target);
  store_sge(entry, RsSge{});
  next_own_entry_ = (next_own_entry_ + 1) % kSglEntries;
}

void RsStream::violation() {
  end(Life::kViolated);
  static_cast<void>(qp_->modify(QpState::kError));
}

void RsStream::give_credit() {
  const bool over = farewell_.left() || peer_left();
  if (over || control_outstanding_ + 2 > kControlSlots) return;
  if (!reading_.has_half() && !reading_.credit_is_due()) return;
  if (reading_.has_half()) {
    const RsSge target{recv_memory_.region().iova() + reading_.half_at(),
                       recv_memory_.region().rkey(), static_cast<std::uint32_t>(reading_.half())};
    if (!post_target_and_credit(target)) return;
    reading_.half_offered();
    remote_.target_written();
  } else {
    if (!post_message({RsOp::kCredit, reading_.credit()}, kind::kControl)) return;
  }
  reading_.credited();
}

bool RsStream::post_message(RsMessage message, std::uint64_t what) {
  assert(control_outstanding_ < kControlSlots);
  const auto bytes = encode(message);
  const Sge sge{reinterpret_cast<std::uintptr_t>(bytes.data()), RsMessage::kSize, 0};
  SendWr wr;
  wr.wr_id = what;
  wr.flags = SendFlags::kInline;
  wr.sges = std::span(&sge, 1);
  if (!qp_->post_send(wr)) {
    end(Life::kDown);
    return false;
  }
  ++control_outstanding_;
  return true;
}

bool RsStream::post_target_and_credit(const RsSge& target) {
  assert(control_outstanding_ + 2 <= kControlSlots);
  std::array<std::uint8_t, RsSge::kSize> entry{};
  store_sge(entry.data(), target);
  const std::uint32_t posted =
      post_entry(entry, remote_.next_target(), {RsOp::kCredit, reading_.credit()}, kind::kControl);
  control_outstanding_ += posted;
  return posted == 2;
}

std::uint32_t RsStream::post_entry(std::span<const std::uint8_t> entry, std::uint64_t to,
                                   RsMessage message, std::uint64_t what) {
  const auto word = encode(message);
  const Sge parts[2] = {
      {reinterpret_cast<std::uintptr_t>(entry.data()), static_cast<std::uint32_t>(entry.size()), 0},
      {reinterpret_cast<std::uintptr_t>(word.data()), RsMessage::kSize, 0}};
  SendWr wrs[2];
  wrs[0].op = SendOp::kWrite;
  wrs[0].remote_addr = to;
  wrs[0].rkey = remote_.key();
  for (std::size_t i = 0; i < 2; ++i) {
    wrs[i].wr_id = what;
    wrs[i].flags = SendFlags::kInline;
    wrs[i].sges = std::span(&parts[i], 1);
  }
  const Posted posted = qp_->post_send(std::span<const SendWr>(wrs));
  if (posted.count != 2) end(Life::kDown);
  return static_cast<std::uint32_t>(posted.count);
}

bool RsStream::say_shutdown() {
  if (!running() || farewell_.shutdown_said()) return true;
  if (farewell_.disconnect_due()) return false;  // it says more, as soon as there is a slot
  return say(RsOp::kShutdown, FarewellEvent::kShutdownHeldUp, FarewellEvent::kShutdownSent);
}

bool RsStream::say_disconnect() {
  if (!running() || farewell_.left()) return true;
  return say(RsOp::kDisconnect, FarewellEvent::kDisconnectHeldUp, FarewellEvent::kDisconnectSent);
}

bool RsStream::say(RsOp op, FarewellEvent held_up, FarewellEvent sent) {
  if (control_outstanding_ >= kControlSlots) {
    farewell_.advance(held_up);
    return false;
  }
  if (post_message({op, 0}, kind::kControl)) farewell_.advance(sent);
  return true;
}

}  // namespace weft::rsockets
