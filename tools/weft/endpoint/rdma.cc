#include "weft/endpoint/rdma.h"

#include <endian.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "weft/common/sysinfo.h"
#include "weft/endpoint/rdma_hello.h"

namespace weft::cli {
namespace {

constexpr std::size_t kNoteBytes = 16;

std::array<std::uint8_t, kNoteBytes> encode(const Note& note) {
  std::array<std::uint8_t, kNoteBytes> bytes{};
  const std::uint64_t kind = htobe64(static_cast<std::uint64_t>(note.kind));
  const std::uint64_t value = htobe64(note.value);
  std::memcpy(bytes.data(), &kind, 8);
  std::memcpy(bytes.data() + 8, &value, 8);
  return bytes;
}

Note decode_note(const std::uint8_t* bytes) {
  std::uint64_t kind = 0;
  std::uint64_t value = 0;
  std::memcpy(&kind, bytes, 8);
  std::memcpy(&value, bytes + 8, 8);
  return {static_cast<NoteKind>(be64toh(kind)), be64toh(value)};
}

SendOp send_op(Operation op) {
  switch (op) {
    case Operation::kRead: return SendOp::kRead;
    case Operation::kSend: return SendOp::kSend;
    case Operation::kWriteImm: return SendOp::kWriteImm;
    case Operation::kFetchAdd: return SendOp::kFetchAdd;
    case Operation::kCmpSwap: return SendOp::kCmpSwap;
    case Operation::kWrite:
    case Operation::kConnect: break;
  }
  return SendOp::kWrite;
}

}  // namespace

TestMemory::~TestMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

Outcome<void> TestMemory::allocate(std::size_t size) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    return failure(fmt::format("cannot get {} bytes of memory: {}", size, std::strerror(errno)));
  }
  data_ = static_cast<std::uint8_t*>(at);
  size_ = size;
  std::memset(data_, 0, size_);
  return {};
}

Failure describe_failure(const WorkCompletion& completion) {
  std::string text =
      fmt::format("{} failed: {}", describe(completion.op), describe(completion.status));
  if (completion.vendor_error != 0) {
    text +=
        fmt::format(" (Terminate layer {}, type {}, code {:#x})", completion.vendor_error >> 16U,
                    (completion.vendor_error >> 8U) & 0xffU, completion.vendor_error & 0xffU);
  }
  return Failure{std::move(text)};
}

RdmaTest::RdmaTest(Device& device, const TestSpec& spec, Role role)
    : device_(device),
      spec_(spec),
      role_(role),
      layout_(layout_of(spec)),
      atomic_(is_atomic(spec.op)),
      plain_flags_(spec.size <= spec.inline_bytes ? SendFlags::kInline : SendFlags::kNone) {}

RdmaTest::~RdmaTest() {
  // Queues first, then what they use; the memory itself goes last, by its place in the class.
  links_.clear();
  idle_.clear();
  listener_.reset();
}

std::size_t RdmaTest::total_links() const { return std::size_t{spec_.connections} + spec_.idle; }

std::uint32_t RdmaTest::receive_count() const {
  const bool data = role_ == Role::kServer && takes_receives(spec_.op);
  return data ? layout_.receives : kInboxCells;
}

// A pong lands in the client's inbox, whole; pongs overlap, but only one is ever on its way.
std::uint64_t RdmaTest::inbox_bytes() const {
  const bool pongs = role_ == Role::kClient && spec_.op == Operation::kSend;
  return kInboxCells * kInboxCellBytes + (pongs ? layout_.stride : 0);
}

std::uint8_t* RdmaTest::receive_place(const RdmaLink& link, std::uint32_t cell) const {
  if (role_ == Role::kServer && spec_.op == Operation::kSend) {
    return link.places + std::uint64_t{cell % layout_.slots} * layout_.stride;
  }
  return link.inbox + std::size_t{cell % kInboxCells} * kInboxCellBytes;
}

Sge RdmaTest::receive_sge(const RdmaLink& link, std::uint32_t cell) const {
  std::uint64_t length = kInboxCellBytes;
  if (spec_.op == Operation::kSend) {
    length = role_ == Role::kServer ? layout_.stride : kInboxCellBytes + layout_.stride;
  }
  return Sge{reinterpret_cast<std::uint64_t>(receive_place(link, cell)),
             static_cast<std::uint32_t>(length), region_->lkey()};
}

Outcome<void> RdmaTest::open() {
  links_.resize(spec_.connections);
  idle_.resize(spec_.idle);
  if (auto ok = open_queues(); !ok) return ok;
  return open_memory();
}

Outcome<void> RdmaTest::open_queues() {
  const auto refused = [](std::string_view what, Error error) {
    return failure(fmt::format("cannot create {}: {}", what, describe(error)));
  };
  auto pd = device_.create_pd();
  if (!pd) return refused("a protection domain", pd.error());
  pd_ = *pd;
  auto events = EventChannel::create();
  if (!events) return refused("an event channel", events.error());
  events_ = *events;
  CqOptions options;
  if (spec_.sleep) {
    auto channel = device_.create_channel();
    if (!channel) return refused("a completion channel", channel.error());
    channel_ = *channel;
    options.channel = channel_;
  }
  const std::uint64_t per_link = std::uint64_t{spec_.depth} + kNoteSlots + receive_count();
  const std::uint64_t entries = per_link * spec_.connections + std::uint64_t{spec_.idle} * 32;
  options.depth =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(entries, limits::kCompletionsPerQueue));
  auto cq = device_.create_cq(options);
  if (!cq) return refused("a completion queue", cq.error());
  cq_ = *cq;
  return {};
}

// Memory: the inboxes of all links, then the places of all links.
Outcome<void> RdmaTest::open_memory() {
  const std::uint64_t inboxes = inbox_bytes() * spec_.connections;
  const std::uint64_t places = layout_.link_bytes() * spec_.connections;
  if (auto ok = memory_.allocate(inboxes + places); !ok) return ok;
  auto region = pd_->register_memory(
      memory_.data(), memory_.size(),
      Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic);
  if (!region) {
    return failure(fmt::format("cannot register memory: {}", describe(region.error())));
  }
  region_ = *region;
  for (std::uint32_t i = 0; i < spec_.connections; ++i) {
    links_[i].index = i;
    links_[i].window = SendWindow(layout_.window);
    links_[i].inbox = memory_.data() + inbox_bytes() * i;
    links_[i].places = memory_.data() + inboxes + layout_.link_bytes() * i;
    links_[i].allowed = layout_.credits();
  }
  wrs_.assign(std::max<std::uint32_t>(spec_.batch, 2), SendWr{});
  sges_.assign(wrs_.size(), Sge{});
  for (std::size_t i = 0; i < wrs_.size(); ++i) {
    sges_[i].length = static_cast<std::uint32_t>(spec_.size);
    sges_[i].lkey = region_->lkey();
    wrs_[i].op = send_op(spec_.op);
    wrs_[i].sges = std::span(&sges_[i], 1);
  }
  return {};
}

Json RdmaTest::memory_offer() const {
  return Json{{"addr", reinterpret_cast<std::uint64_t>(links_.front().places)},
              {"rkey", region_->rkey()}};
}

void RdmaTest::take_memory_offer(const Json& offer) {
  peer_addr_ = get_count(offer, "addr");
  peer_rkey_ = static_cast<std::uint32_t>(get_count(offer, "rkey"));
  for (RdmaLink& link : links_) {
    link.remote_addr = peer_addr_ + layout_.link_bytes() * link.index;
  }
  for (SendWr& wr : wrs_) wr.rkey = peer_rkey_;
}

Outcome<void> RdmaTest::repost(RdmaLink& link, std::uint32_t cell) {
  if (repost_count_ == kRepostBatch || (repost_count_ != 0 && repost_link_ != &link)) {
    if (auto ok = flush_receives(); !ok) return ok;
  }
  repost_link_ = &link;
  repost_sges_[repost_count_] = receive_sge(link, cell);
  repost_wrs_[repost_count_] = {receive_id(link.index, cell),
                                std::span(&repost_sges_[repost_count_], 1)};
  ++repost_count_;
  return {};
}

Outcome<void> RdmaTest::flush_receives() {
  if (repost_count_ == 0) return {};
  const Posted posted =
      repost_link_->qp->post_recv(std::span<const RecvWr>(repost_wrs_.data(), repost_count_));
  const bool all = posted.count == repost_count_;
  repost_count_ = 0;
  if (all) return {};
  return failure(fmt::format("cannot post a receive: {}", describe(posted.error)));
}

Outcome<void> RdmaTest::post_note(RdmaLink& link, const Note& note, bool fence) {
  if (auto ok = flush_receives(); !ok) return ok;
  const auto bytes = encode(note);
  const Sge sge{reinterpret_cast<std::uint64_t>(bytes.data()), kNoteBytes, 0};
  bool signaled = true;
  SendWr wr;
  wr.wr_id = send_id(link.index, link.window.take(signaled));
  wr.op = SendOp::kSend;
  wr.flags = SendFlags::kSignaled | SendFlags::kSolicited | SendFlags::kInline;
  if (fence) wr.flags = wr.flags | SendFlags::kFence;
  wr.sges = std::span(&sge, 1);
  if (auto posted = link.qp->post_send(wr); !posted) {
    return failure(fmt::format("cannot post a Send: {}", describe(posted.error())));
  }
  return {};
}

// One counter per link; every FetchAdd adds one, every CmpSwap expects and writes the next value.
void RdmaTest::aim_at_counter(RdmaLink& link, SendWr& wr) {
  wr.remote_addr = link.remote_addr;
  wr.compare_add = wr.op == SendOp::kFetchAdd ? 1 : link.counter;
  wr.swap = ++link.counter;
}

bool RdmaTest::post_prepared(RdmaLink& link, std::uint32_t count) {
  const Posted posted = link.qp->post_send(std::span<const SendWr>(wrs_.data(), count));
  post_error_ = posted.error;
  return posted.count == count;
}

Failure RdmaTest::why_not_posted() const {
  return {fmt::format("cannot post {}: {}", name_of(spec_.op), describe(post_error_))};
}

SendWr RdmaTest::bell(RdmaLink& link) {
  bool signaled = false;
  SendWr wr;
  wr.wr_id = send_id(link.index, link.window.take(signaled));
  wr.op = SendOp::kSend;
  wr.flags = signaled ? SendFlags::kSignaled : SendFlags::kNone;
  return wr;
}

bool RdmaTest::post_ping(RdmaLink& link) {
  prepare_message(link, 0, 0);
  if (spec_.op != Operation::kWrite) return post_prepared(link, 1);
  const SendWr saved = wrs_[1];
  wrs_[1] = bell(link);
  const bool posted = post_prepared(link, 2);
  wrs_[1] = saved;
  return posted;
}

// Polls; in sleep mode arms the queue, looks once more and then sleeps for a while.
std::size_t RdmaTest::poll_or_sleep(Watch& watch, Outcome<void>& ok) {
  constexpr unsigned kPollsPerCheck = 512;
  constexpr auto kNap = std::chrono::milliseconds(100);
  for (unsigned i = 0; i < kPollsPerCheck; ++i) {
    if (const std::size_t n = cq_->poll(completions_); n != 0) return n;
    if (!channel_) continue;
    if (auto armed = cq_->arm(CompletionQueue::Arm::kNext); !armed) {
      ok = failure(fmt::format("cannot arm the completion queue: {}", describe(armed.error())));
      return 0;
    }
    if (const std::size_t n = cq_->poll(completions_); n != 0) return n;
    if (channel_->wait(kNap)) {
      cq_->ack_events(1);
    } else {
      break;
    }
  }
  ok = watch.check();
  return 0;
}

Outcome<void> RdmaTest::pump(bool wait, Watch& watch) {
  Outcome<void> ok;
  std::size_t n = cq_->poll(completions_);
  while (n == 0 && wait && ok) n = poll_or_sleep(watch, ok);
  if (!ok) return ok;
  for (std::size_t i = 0; i < n; ++i) {
    if (completions_[i].status != WcStatus::kSuccess) {
      return tl::unexpected(watch.explain(why_failed(completions_[i])));
    }
    if (ok = dispatch(completions_[i]); !ok) return ok;
  }
  return repost_count_ > keep_back_ ? flush_receives() : Outcome<void>();
}

RdmaLink* RdmaTest::link_of(const WorkCompletion& completion) {
  const std::uint64_t index = (completion.wr_id >> kLinkShift) & kLinkMask;
  return index < links_.size() ? &links_[index] : nullptr;
}

Outcome<void> RdmaTest::dispatch(const WorkCompletion& completion) {
  RdmaLink* link = link_of(completion);
  if (link == nullptr) return {};
  if ((completion.wr_id & kReceiveBit) == 0) {
    link->window.complete(completion.wr_id & kNumberMask);
    return {};
  }
  const auto cell = static_cast<std::uint32_t>(completion.wr_id & kNumberMask);
  if (!has(completion.flags, WcFlags::kSolicited)) return on_data(*link, cell, completion);
  if (completion.byte_len != kNoteBytes)
    return failure("the other side sent a note of a wrong size");
  const Note note = decode_note(receive_place(*link, cell));
  if (auto ok = repost(*link, cell); !ok) return ok;
  return on_note(*link, note);
}

// A flush only says that the connection ended; its event says why.
Failure RdmaTest::why_failed(const WorkCompletion& completion) {
  if (completion.status != WcStatus::kFlushed) return describe_failure(completion);
  constexpr auto kMoment = std::chrono::milliseconds(100);
  while (auto event = events_->next(kMoment)) {
    if (event->type != ConnectionEvent::Type::kDisconnected) continue;
    return Failure{
        fmt::format("the RDMA connection has ended: {}",
                    event->error ? describe(*event->error) : "closed by the other side")};
  }
  return Failure{"the RDMA connection has ended"};
}

LinkFacts RdmaTest::link_facts() const {
  if (links_.empty() || !links_.front().connection) return {};
  LinkFacts facts = facts_of(links_.front().connection->info());
  facts.idle_bytes = idle_bytes_;
  return facts;
}

}  // namespace weft::cli
