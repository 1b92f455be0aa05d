// What both sides of an RDMA test share: queues, memory, connections and the small Sends ("notes")
// by which they steer each other in step with the data.
//
// A note is a Send with Solicited Event; data messages never have that bit, so the two can share a
// receive queue. Every note of the client is answered by one kReply on the same link, which it
// waits for; so at most one is on its way, and nothing follows it until it has been read.
#pragma once

#include <weft/weft.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/endpoint/endpoint.h"

namespace weft::cli {

enum class NoteKind : std::uint32_t {
  kBegin = 1,  // client: what follows is measured
  kEnd,        // client: that was all of this phase
  kFill,       // client: fill the first `value` places with the pattern, they will be read
  kCheck,      // client: check the last `value` messages
  kReply,      // server: the note has been acted upon, after all data before it
  kCredit,  // server: `value` data messages in all have been received and their receives re-posted
};
struct Note {
  NoteKind kind;
  std::uint64_t value;
};

// Counts work requests on a send queue, and chooses which of them are signaled: every quarter of
// the queue, which is enough to learn of all the others.
class SendWindow {
 public:
  SendWindow() = default;
  explicit SendWindow(std::uint32_t depth)
      : depth_(depth), interval_(depth / 4 == 0 ? 1 : depth / 4) {}

  [[nodiscard]] bool room(std::uint32_t count) const { return posted_ - done_ + count <= depth_; }
  [[nodiscard]] bool idle() const { return posted_ == done_; }
  // Takes the next number. `signaled` comes back true where a completion is wanted.
  std::uint64_t take(bool& signaled) {
    ++posted_;
    if (signaled || posted_ - last_signaled_ >= interval_) {
      signaled = true;
      last_signaled_ = posted_;
    }
    return posted_;
  }
  void complete(std::uint64_t number) { done_ = number; }
  // The same window, in which from now on every work request is signaled.
  [[nodiscard]] SendWindow every_one() const {
    SendWindow window = *this;
    window.interval_ = 1;
    return window;
  }

 private:
  std::uint32_t depth_ = 1;
  std::uint32_t interval_ = 1;
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t last_signaled_ = 0;
};

// Page-aligned memory, touched, so that the first message does not pay for it.
class TestMemory {
 public:
  TestMemory() = default;
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;
  ~TestMemory();
  [[nodiscard]] Outcome<void> allocate(std::size_t size);
  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// One connection of a test.
struct RdmaLink {
  std::shared_ptr<Connection> connection;
  std::shared_ptr<QueuePair> qp;
  std::uint32_t index = 0;
  SendWindow window;
  std::uint8_t* places = nullptr;  // local memory of its messages: Layout::slots places
  std::uint8_t* inbox = nullptr;   // local memory of notes
  std::uint64_t remote_addr = 0;   // the peer's places
  std::uint32_t next_slot = 0;
  std::uint64_t sent = 0;      // client: data messages that took a receive
  std::uint64_t allowed = 0;   // client: up to here by credits
  std::uint64_t received = 0;  // server: data messages
  std::uint64_t credited = 0;  // server: of these told to the client
  std::uint64_t verified = 0;  // messages checked: the number of the next one to check
  std::uint64_t counter = 0;   // client: atomics posted, the value the counter will have
};

// Owns the objects of one test on one side. One thread.
class RdmaTest {
 public:
  enum class Role : std::uint8_t { kClient, kServer };
  static constexpr std::uint32_t kInboxCells = 16;
  static constexpr std::uint32_t kInboxCellBytes = 64;
  static constexpr std::uint32_t kNoteSlots = 64;  // send queue entries beside those of the data

  RdmaTest(const RdmaTest&) = delete;
  RdmaTest& operator=(const RdmaTest&) = delete;
  virtual ~RdmaTest();

 protected:
  RdmaTest(Device& device, const TestSpec& spec, Role role);

  // Creates queues and memory. REQUIRES: called once, before anything else.
  [[nodiscard]] Outcome<void> open();

  // Where the peer finds our places.
  [[nodiscard]] Json memory_offer() const;
  void take_memory_offer(const Json& offer);

  // Client: connects all links; server: listens, then accepts them.
  [[nodiscard]] Outcome<void> connect_links(const SocketAddress& server, TestToken token,
                                            Watch& watch);
  [[nodiscard]] Outcome<std::uint16_t> listen_for_links(const SocketAddress& local,
                                                        TestToken token);
  [[nodiscard]] Outcome<void> accept_links(Watch& watch);
  // Orderly; gives up after a few seconds.
  void close_links();

  // Reaps completions and acts on them; with `wait`, not before there was one.
  [[nodiscard]] Outcome<void> pump(bool wait, Watch& watch);

  // A data message has arrived in receive `cell` of `link`; the derived class re-posts it.
  [[nodiscard]] virtual Outcome<void> on_data(RdmaLink& link, std::uint32_t cell,
                                              const WorkCompletion& completion) = 0;
  [[nodiscard]] virtual Outcome<void> on_note(RdmaLink& link, const Note& note) = 0;

  // Posts a receive again; takes effect by flush_receives(), which post_note() and pump() call.
  [[nodiscard]] Outcome<void> repost(RdmaLink& link, std::uint32_t cell);
  // Ping-pong needs one receive at a time, and has more: from now on (or no more) pump() posts them
  // again a few at a time, which keeps that call out of the way of most answers.
  void repost_lazily(bool lazily) { keep_back_ = lazily ? kLazyReposts : 0; }
  [[nodiscard]] Outcome<void> flush_receives();
  // `fence`: only after all Reads and atomics before it have been answered.
  [[nodiscard]] Outcome<void> post_note(RdmaLink& link, const Note& note, bool fence);

  // Fills the part of work request `i` that differs from one message to the next. In the header,
  // as it runs once per message.
  void prepare_message(RdmaLink& link, std::uint32_t i, std::uint32_t slot) {
    const std::uint64_t offset = layout_.stride * slot;
    bool signaled = false;
    SendWr& wr = wrs_[i];
    wr.wr_id = send_id(link.index, link.window.take(signaled));
    wr.flags = signaled ? plain_flags_ | SendFlags::kSignaled : plain_flags_;
    sges_[i].addr = reinterpret_cast<std::uint64_t>(link.places) + offset;
    wr.remote_addr = link.remote_addr + offset;
    if (atomic_) aim_at_counter(link, wr);
  }
  // Posts the first `count` prepared work requests as one list.
  // False: why_not_posted() tells.
  [[nodiscard]] bool post_prepared(RdmaLink& link, std::uint32_t count);
  [[nodiscard]] Failure why_not_posted() const;
  // A work request that says "written" after an RDMA Write, for ping-pongs: an empty Send.
  [[nodiscard]] SendWr bell(RdmaLink& link);
  [[nodiscard]] bool post_ping(RdmaLink& link);

  [[nodiscard]] std::uint8_t* receive_place(const RdmaLink& link, std::uint32_t cell) const;
  [[nodiscard]] LinkFacts link_facts() const;

  // wr_id: receives have the top bit; then the link, then the cell or the number in the send queue.
  static constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 63U;
  static constexpr unsigned kLinkShift = 40;
  static constexpr std::uint64_t kLinkMask = (std::uint64_t{1} << 23U) - 1;
  static constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kLinkShift) - 1;
  static constexpr std::uint64_t send_id(std::uint32_t link, std::uint64_t number) {
    return (std::uint64_t{link} << kLinkShift) | (number & kNumberMask);
  }
  static constexpr std::uint64_t receive_id(std::uint32_t link, std::uint32_t cell) {
    return kReceiveBit | send_id(link, cell);
  }

  Device& device_;
  const TestSpec spec_;
  const Role role_;
  const Layout layout_;
  const bool atomic_;
  const SendFlags plain_flags_;  // of a message that is not signaled
  std::vector<RdmaLink> links_;
  std::vector<SendWr> wrs_;
  std::vector<Sge> sges_;

 private:
  [[nodiscard]] Outcome<void> open_queues();
  [[nodiscard]] Outcome<void> open_memory();
  [[nodiscard]] std::uint32_t receive_count() const;
  [[nodiscard]] std::uint64_t inbox_bytes() const;
  [[nodiscard]] Sge receive_sge(const RdmaLink& link, std::uint32_t cell) const;
  [[nodiscard]] Outcome<std::shared_ptr<QueuePair>> make_qp(bool idle);
  [[nodiscard]] Outcome<void> post_first_receives(RdmaLink& link);
  [[nodiscard]] ConnectionParams params(TestToken token, std::uint32_t index) const;
  [[nodiscard]] Outcome<void> start_connecting(std::uint32_t index, const SocketAddress& server,
                                               TestToken token);
  [[nodiscard]] Outcome<void> answer_request(const ConnectionEvent& event);
  [[nodiscard]] Outcome<std::shared_ptr<QueuePair>> adopt(std::uint32_t index,
                                                          std::shared_ptr<Connection> connection);
  [[nodiscard]] Outcome<void> wait_established(std::size_t wanted, Watch& watch);
  [[nodiscard]] std::size_t total_links() const;
  void measure_idle_memory();

  static void aim_at_counter(RdmaLink& link, SendWr& wr);
  [[nodiscard]] std::size_t poll_or_sleep(Watch& watch, Outcome<void>& ok);
  [[nodiscard]] Outcome<void> dispatch(const WorkCompletion& completion);
  [[nodiscard]] Failure why_failed(const WorkCompletion& completion);
  [[nodiscard]] RdmaLink* link_of(const WorkCompletion& completion);

  TestMemory memory_;
  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionChannel> channel_;  // only when sleeping
  std::shared_ptr<CompletionQueue> cq_;
  std::shared_ptr<MemoryRegion> region_;
  std::shared_ptr<EventChannel> events_;
  std::shared_ptr<Listener> listener_;
  struct IdleLink {
    std::shared_ptr<QueuePair> qp;
    std::shared_ptr<Connection> connection;
  };
  std::vector<IdleLink> idle_;
  std::size_t established_ = 0;
  std::size_t disconnected_ = 0;
  TestToken token_ = 0;
  double memory_before_idle_ = 0;
  double idle_bytes_ = 0;

  Error post_error_{};
  std::uint64_t peer_addr_ = 0;
  std::uint32_t peer_rkey_ = 0;

  std::array<WorkCompletion, 64> completions_{};
  static constexpr std::size_t kRepostBatch = 32;
  std::array<RecvWr, kRepostBatch> repost_wrs_{};
  std::array<Sge, kRepostBatch> repost_sges_{};
  std::size_t repost_count_ = 0;
  static constexpr std::size_t kLazyReposts = 6;
  static_assert(kLazyReposts * 2 < kInboxCells);
  std::size_t keep_back_ = 0;
  RdmaLink* repost_link_ = nullptr;
};

// "RDMA Write failed: remote access error".
[[nodiscard]] Failure describe_failure(const WorkCompletion& completion);

}  // namespace weft::cli
