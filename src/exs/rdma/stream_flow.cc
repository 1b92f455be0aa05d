#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "exs/rdma/stream_flow.h"

namespace weft::exs {
namespace {

// Receives of less than this are not advertised: a copy costs less than a message and a
// registration.
constexpr std::size_t kAdvertMin = 8192;
constexpr std::size_t kFileBytesAtOnce = 256UL * 1024UL;

}  // namespace

int StreamFlow::open(Hello& mine) {
  ring_ = Pages(mine.ring_bytes);
  ring_mr_ = Mr::create(port_.device(), ring_.data(), ring_.size(),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!ring_mr_) return errno;
  mine.ring_rkey = ring_mr_.rkey();
  mine.ring_addr = reinterpret_cast<std::uintptr_t>(ring_.data());
  return 0;
}

void StreamFlow::start(const Hello& mine, const Hello& theirs) {
  assert(!out_ && !in_ && mine.ring_bytes != 0);
  out_.emplace(theirs.ring_bytes);
  in_.emplace(mine.ring_bytes);
  report_bytes_ = mine.ring_bytes / 4U;
}

const char* StreamFlow::pump() {
  advertise();
  return pump_sends();
}

// ---- messages

const char* StreamFlow::on_message(const Message& message) {
  const Header& header = message.header;
  switch (header.type) {
    case Type::kData: return on_data(message);
    case Type::kRing: return on_ring(header);
    case Type::kDirect: return on_direct(header, {});
    case Type::kAdvert: return on_advert(message);
    case Type::kCloseChain: return on_close_chain(header);
    case Type::kChainClosed: return on_chain_closed(header);
    default: return "a message for another type of socket";
  }
}

const char* StreamFlow::on_counters(const Header& header) {
  return out_->on_ring_consumed(header.ring_consumed) ? nullptr
                                                      : "bytes of the ring returned twice";
}

const char* StreamFlow::on_finish() {
  assert(!finished_);
  finished_ = true;
  void_adverts();
  deliver_ring();
  return nullptr;
}

void StreamFlow::tell(Header& header) {
  if (in_->may_report_ring()) ring_told_ = in_->ring_consumed();
  header.ring_consumed = ring_told_;
}

bool StreamFlow::has_to_tell() const {
  return in_->may_report_ring() && in_->ring_consumed() - ring_told_ >= report_bytes_;
}

bool StreamFlow::writable() const { return out_ && out_->next(1).way != StreamSender::Way::kWait; }

bool StreamFlow::readable() const { return finished_ || (in_ && in_->ring_used() != 0); }

// ---- sending

const char* StreamFlow::pump_sends() {
  for (auto it = s_.ops.sends.begin(); it != s_.ops.sends.end(); ++it) {
    Operation& op = *it;
    // Without an end to wait for: what is copied into messages is away.
    const bool copied = op.now && port_.immediate_bytes() != 0;
    const std::uint64_t most = copied ? port_.immediate_bytes() : kTransferMax;
    while (op.handed < op.total && op.error == 0 && !op.cancellation.wanted()) {
      if (op.files.expected() && op.handed == op.files.end()) {
        // The buffer is used again once the adapter is done with it.
        if (!port_.done(op.serial)) return nullptr;
        if (!port_.load_file(op, kFileBytesAtOnce)) break;
      }
      const std::size_t end = op.files.expected() ? op.files.end() : op.total;
      assert(op.handed < end);
      const auto step = out_->next(std::min<std::uint64_t>(end - op.handed, most));
      if (step.way == StreamSender::Way::kWait) {
        if (!ring_stalled_) ++s_.stats.ring_stalls;
        ring_stalled_ = true;
        return nullptr;
      }
      ring_stalled_ = false;
      if (!port_.can_send(2 * kSegmentsMax)) return nullptr;
      if (!send_step(op, step)) return "a send cannot be posted";
    }
  }
  posts_done();
  return nullptr;
}

bool StreamFlow::send_step(Operation& op, const StreamSender::Step& step) {
  assert(step.length <= op.total - op.handed);
  const bool direct = step.way == StreamSender::Way::kDirect;
  const std::uint64_t seq = out_->seq();
  Header header;
  header.seq = seq;
  const std::size_t fits = port_.immediate_bytes();
  const bool inside = step.length <= fits;
  header.length = static_cast<std::uint32_t>(step.length);
  bool ok = true;
  if (inside) {
    header.type = Type::kData;
    header.flags = direct ? kInChain : 0;
    ok = port_.send_message(*this, header, {}, &op, op.handed, false);
    s_.stats.immediate_sent += step.length;
  } else {
    ok = direct ? send_direct(op, step) : send_ring(op, step);
    header.type = direct ? Type::kDirect : Type::kRing;
    ok = ok && port_.send_message(*this, header, {}, nullptr, 0, true);
    op.serial = port_.last();
    (direct ? s_.stats.direct_sent : s_.stats.indirect_sent) += step.length;
  }
  out_->took(step);
  s_.stats.switches = out_->switches();
  their_adverts_.drop_before(out_->first_advert());
  op.handed += step.length;
  s_.stats.bytes_sent += step.length;
  return ok;
}

// The part [step.at, step.at + step.length) of the advert at the head.
bool StreamFlow::send_direct(Operation& op, const StreamSender::Step& step) {
  std::array<RemotePiece, kSegmentsMax> to;
  std::size_t count = 0;
  std::uint64_t skip = step.at;
  std::uint64_t left = step.length;
  for (const Segment& segment : their_adverts_.first(step.advert)) {
    if (skip >= segment.length) {
      skip -= segment.length;
      continue;
    }
    if (left == 0) break;
    const std::uint64_t here = std::min<std::uint64_t>(segment.length - skip, left);
    to[count++] = {segment.addr + skip, segment.rkey, here};
    left -= here;
    skip = 0;
  }
  assert(left == 0);
  return port_.post_writes(op, op.handed, std::span(to).first(count));
}

bool StreamFlow::send_ring(Operation& op, const StreamSender::Step& step) {
  assert(step.at + step.length <= port_.theirs().ring_bytes);
  const RemotePiece to{port_.theirs().ring_addr + step.at, port_.theirs().ring_rkey, step.length};
  return port_.post_writes(op, op.handed, std::span(&to, 1));
}

// Sends end in order, each when nothing of it is needed any more.
void StreamFlow::posts_done() {
  bool any = false;
  while (!s_.ops.sends.empty()) {
    Operation& op = s_.ops.sends.front();
    if (!port_.done(op.serial)) break;
    if (op.error == 0 && !op.cancellation.wanted() && op.handed < op.total) break;
    const int error = op.handed == op.total ? 0 : op.error != 0 ? op.error : ECANCELED;
    s_.finish_front(s_.ops.sends, error, op.handed);
    any = true;
  }
  if (any) s_.changed();
}

const char* StreamFlow::on_advert(const Message& message) {
  const Header& h = message.header;
  switch (out_->on_advert(h.aux, h.seq, h.length, (h.flags & kWaitAll) != 0)) {
    case StreamSender::Verdict::kViolation: return "an advert out of order";
    case StreamSender::Verdict::kStale: return nullptr;
    case StreamSender::Verdict::kAccepted: break;
  }
  their_adverts_.add(std::span(message.segments).first(h.segments));
  return nullptr;
}

const char* StreamFlow::on_close_chain(const Header& header) {
  if (!out_->on_close_chain(header.aux)) return "a chain that is not there";
  their_adverts_.drop_before(out_->first_advert());
  assert(their_adverts_.empty());
  port_.queue_control(Type::kChainClosed, 0, 0, header.aux);
  return nullptr;
}

// ---- receiving

const char* StreamFlow::on_data(const Message& message) {
  const Header& h = message.header;
  if ((h.flags & kInChain) != 0) return on_direct(h, message.payload);
  return into_ring(h.seq, h.length, message.payload);
}

const char* StreamFlow::on_ring(const Header& header) {
  return into_ring(header.seq, header.length, {});
}

// Bytes that are for the memory of the first receive: there already, or `payload`.
const char* StreamFlow::on_direct(const Header& header, std::span<const std::uint8_t> payload) {
  const auto placed = in_->on_direct(header.seq, header.length);
  if (!placed.ok) return "bytes for memory that was not offered";
  Operation& op = s_.ops.receives.front();
  if (op.cancellation.revoked())
    return "bytes for a receive that was cancelled, and waited for long enough";
  assert(op.advertised && header.length <= op.total - op.done);
  if (!payload.empty()) {
    copy_in(op, op.done, payload.data(), payload.size());
    ++s_.stats.copies;
    s_.stats.copied_bytes += payload.size();
    s_.stats.indirect_received += payload.size();
  } else {
    s_.stats.direct_received += header.length;
  }
  op.done += header.length;
  s_.stats.bytes_received += header.length;
  if (placed.ends) finish_receive(s_.ops.receives.begin(), 0);
  return nullptr;
}

const char* StreamFlow::into_ring(std::uint64_t seq, std::uint64_t length,
                                  std::span<const std::uint8_t> payload) {
  const std::uint64_t at = in_->ring_tail();
  const bool empty = in_->ring_used() == 0;
  if (!in_->on_ring(seq, length)) return "more bytes than the ring holds, or out of order";
  assert(at + length <= ring_.size() && length >= payload.size());
  void_adverts();
  s_.stats.bytes_received += length;
  // A payload goes straight to a receive that waits for it.
  while (empty && !payload.empty() && !s_.ops.receives.empty()) {
    Operation& op = s_.ops.receives.front();
    assert(!op.advertised);
    const std::size_t take = std::min(payload.size(), op.total - op.done);
    copy_in(op, op.done, payload.data(), take);
    op.done += take;
    ++s_.stats.copies;
    s_.stats.copied_bytes += take;
    s_.stats.indirect_received += take;
    in_->consumed(take);
    payload = payload.subspan(take);
    if (op.done == op.total || (op.flags & MSG_WAITALL) == 0) {
      finish_receive(s_.ops.receives.begin(), 0);
    }
  }
  if (!payload.empty()) {
    const std::uint64_t skipped = length - payload.size();
    std::memcpy(ring_.data() + at + skipped, payload.data(), payload.size());
    ++s_.stats.copies;
    s_.stats.copied_bytes += payload.size();
  }
  deliver_ring();
  if (in_->ring_used() != 0) s_.changed();
  return nullptr;
}

// The peer's rights end here, before anything is shown to the application.
void StreamFlow::void_adverts() {
  for (auto it = s_.ops.receives.begin(); it != s_.ops.receives.end() && it->advertised;) {
    const auto next = std::next(it);
    it->advertised = false;
    it->grants.clear();
    ++s_.stats.adverts_void;
    if (it->cancellation.revoked()) s_.finish(s_.ops.receives, it, ECANCELED, 0);
    it = next;
  }
}

void StreamFlow::receives_posted() {
  if (in_) deliver_ring();
}

void StreamFlow::deliver_ring() {
  while (!s_.ops.receives.empty()) {
    auto it = s_.ops.receives.begin();
    Operation& op = *it;
    if (op.advertised) return;
    while (in_->ring_used() != 0 && op.done < op.total) {
      const std::uint64_t head = in_->ring_head();
      const std::size_t take = static_cast<std::size_t>(std::min(
          {static_cast<std::uint64_t>(op.total - op.done), in_->ring_used(), ring_.size() - head}));
      copy_in(op, op.done, ring_.data() + head, take);
      op.done += take;
      in_->consumed(take);
      ++s_.stats.copies;
      s_.stats.copied_bytes += take;
      s_.stats.indirect_received += take;
    }
    const bool full = op.done == op.total;
    const bool some = op.done != 0 && (op.flags & MSG_WAITALL) == 0;
    if (!full && !some && !finished_) return;
    finish_receive(it, 0);
  }
}

void StreamFlow::finish_receive(OperationList::iterator it, int error) {
  s_.finish(s_.ops.receives, it, error, it->done);
}

void StreamFlow::advertise() {
  if (finished_) return;
  for (Operation& op : s_.ops.receives) {
    if (op.advertised) continue;
    if (op.now) return;
    if (!in_->may_advertise() || in_->open() >= kAdvertsMax || op.cancellation.wanted()) return;
    const std::size_t left = op.total - op.done;
    if (left < kAdvertMin || left > kTransferMax || !port_.can_send(0)) return;
    if (!advertise_one(op)) return;
  }
}

bool StreamFlow::advertise_one(Operation& op) {
  assert(!op.advertised && !op.cancellation.wanted() && op.grants.empty());
  std::array<Segment, kSegmentsMax> segments;
  std::size_t count = 0;
  bool ok = true;
  each_piece(op, op.done, op.total - op.done,
             [&](const Piece& piece, std::size_t at, std::size_t length) {
               if (!ok) return;
               Mr mr = Mr::of_checked(port_.device(), piece.base + at, length,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
               ok = static_cast<bool>(mr);
               if (!ok) return;
               assert(count < segments.size());
               segments[count++] = {reinterpret_cast<std::uintptr_t>(piece.base + at), mr.rkey(),
                                    static_cast<std::uint32_t>(length)};
               op.grants.push_back(std::move(mr));
             });
  if (!ok) {
    // No registration to be had: it will be served from the ring.
    op.grants.clear();
    return false;
  }
  const bool wait_all = (op.flags & MSG_WAITALL) != 0;
  const auto advert = in_->advertise(op.total - op.done, wait_all);
  op.advertised = true;
  Header header;
  header.type = Type::kAdvert;
  header.flags = wait_all ? kWaitAll : 0;
  header.length = static_cast<std::uint32_t>(op.total - op.done);
  header.seq = advert.seq;
  header.aux = advert.chain;
  ++s_.stats.adverts_sent;
  port_.send_message(*this, header, std::span(segments).first(count), nullptr, 0, false);
  return true;
}

// ---- cancellation

void StreamFlow::cancel() {
  // A send of which bytes have gone cannot be taken back in the middle of the stream: it ends where
  // it is. Before the connection stands none has.
  if (in_) posts_done();
  for (auto it = s_.ops.sends.begin(); it != s_.ops.sends.end();) {
    const auto next = std::next(it);
    if (it->cancellation.wanted() && it->handed == 0) s_.finish(s_.ops.sends, it, ECANCELED, 0);
    it = next;
  }
  bool offered = false;
  for (auto it = s_.ops.receives.begin(); it != s_.ops.receives.end();) {
    const auto next = std::next(it);
    if (it->cancellation.wanted() && !it->advertised) {
      s_.finish(s_.ops.receives, it, ECANCELED, it->done);
    } else {
      offered = offered || it->cancellation.wanted();
    }
    it = next;
  }
  if (!offered || in_->closing()) return;
  port_.queue_control(Type::kCloseChain, 0, 0, in_->close_chain());
}

const char* StreamFlow::on_chain_closed(const Header& header) {
  if (!in_->on_chain_closed(header.aux)) return "an answer to a chain that was not closed";
  void_adverts();
  cancel();
  return nullptr;
}

}  // namespace weft::exs
