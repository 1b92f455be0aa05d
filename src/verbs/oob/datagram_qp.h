// A queue pair of datagrams (UD): Sends to whomever the request names, over a UDP socket of its own
// (roce/datagram.h). Nothing is acknowledged. What cannot be taken is dropped and counted:
// nonsense, another number or key, no receive.
//
// Posts send at once. Receiving is done by callers that poll the receive CQ, or by the engine's
// thread: that one takes over where nobody polls (look(), hand_over()).
//
// Threads: any. tx_mutex_ for what is sent, rx_mutex_ for what is received; the latter first. A
// CQ's locks come behind both.
#pragma once

#include <sys/socket.h>
#include <weft/queue_pair.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "io/datagram_link.h"
#include "io/engine.h"
#include "os/fd.h"
#include "os/lock.h"
#include "proto/stag_table.h"
#include "proto/work.h"
#include "roce/datagram.h"
#include "verbs/cq_user.h"
#include "verbs/device.h"
#include "verbs/freed_slots.h"
#include "verbs/held.h"
#include "verbs/oob/ip_marks.h"
#include "verbs/qp_of_domain.h"

namespace weft::verbs {

class CompletionQueueImpl;
class SharedReceiveQueueImpl;

class DatagramQp final : public QueuePair,
                         public CqUser,
                         public DatagramReader,
                         public CounterSource,
                         public io::Handler,
                         public std::enable_shared_from_this<DatagramQp> {
 public:
  // As QueuePairImpl::create().
  //   kUnsupported   the device has another personality
  [[nodiscard]] static Result<std::shared_ptr<QueuePair>> create(
      std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options);
  ~DatagramQp() override;

  // --- QueuePair ---
  [[nodiscard]] QpType type() const override { return QpType::kUd; }
  [[nodiscard]] std::uint32_t number() const override { return number_.value(); }
  [[nodiscard]] QpState state() const override { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] QpCaps caps() const override { return caps_; }
  [[nodiscard]] QpAttributes query() const override;
  [[nodiscard]] void* context() const override { return context_; }
  [[nodiscard]] std::shared_ptr<Connection> connection() const override { return nullptr; }
  Posted post_send(std::span<const SendWr> wrs) override;
  Posted post_recv(std::span<const RecvWr> wrs) override;
  [[nodiscard]] Status queue_send(const SendWr& wr) override;
  void ring() override;
  [[nodiscard]] Status modify(QpState asked) override;
  void set_remote_access(Access /*access*/) override {}
  [[nodiscard]] Status set_datagram_key(std::uint32_t key) override;
  [[nodiscard]] Status wire(const WiringToReceive& /*attributes*/) override {
    return fail(Error::kUnsupported);
  }
  [[nodiscard]] Status start_sending(const WiringToSend& /*attributes*/) override {
    return fail(Error::kUnsupported);
  }

  // --- for CQs and the engine ---
  void cq_overflowed() override;
  void look() override;
  void hand_over() override;
  void on_io(std::uint32_t events) override;
  void on_timer(io::TimerId id) override;
  void add_counters(Counters& sum) const override;

 private:
  static constexpr std::size_t kBatch = 16;  // datagrams in one system call
  static constexpr std::size_t kSlot = roce::Datagram::kSize + roce::Datagram::kPayloadMax;
  using Slots = std::array<std::array<std::uint8_t, kSlot>, kBatch>;

  // Where a Send goes, behind the SGEs or the inline data of its WQE.
  struct Target {
    Gid gid;
    std::uint32_t number;
    std::uint32_t key;
    OwnGid own;
    std::uint8_t traffic_class;
    std::uint8_t hop_limit;
  };
  enum class Prepared : std::uint8_t { kReady, kLost, kBad };

  DatagramQp(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options,
             ObjectCount counted, Number number, os::Fd socket);
  // Not analyzed: nobody else knows the queue pair yet.
  [[nodiscard]] Status allocate(const QpOptions& options) WEFT_NOT_ANALYZED;
  void retire();
  [[nodiscard]] proto::StreamId memory_user() const;
  [[nodiscard]] proto::StreamId receive_user() const;
  void watch() WEFT_REQUIRES(watch_mutex_);
  void leave_to_callers() WEFT_REQUIRES(rx_mutex_, watch_mutex_);

  // --- sending: datagram_qp.cc, datagram_send.cc. Error{}: none ---
  [[nodiscard]] Error may_post() const WEFT_REQUIRES(tx_mutex_);
  [[nodiscard]] Error enqueue(const SendWr& wr) WEFT_REQUIRES(tx_mutex_);
  [[nodiscard]] Target* target_of(proto::SendWqe& wqe) const WEFT_REQUIRES(tx_mutex_);
  void flush() WEFT_REQUIRES(tx_mutex_);
  [[nodiscard]] Prepared prepare(proto::SendWqe& wqe, std::size_t slot) WEFT_REQUIRES(tx_mutex_);
  [[nodiscard]] bool gather(proto::SendWqe& wqe, std::uint8_t* to) const WEFT_REQUIRES(tx_mutex_);
  [[nodiscard]] std::size_t send_batch(std::size_t count) WEFT_REQUIRES(tx_mutex_);
  [[nodiscard]] bool link_takes(std::span<const mmsghdr> messages) WEFT_REQUIRES(tx_mutex_);
  using OnRefused = std::function<void(const RefusedMemory&)>;
  // The memory of one SGE from `at` on, and its address. False: it may not be used.
  [[nodiscard]] bool resolve(const Sge& sge, std::size_t at, std::size_t size, Access need,
                             proto::StreamId user, proto::Pin& pin, std::uint8_t*& to,
                             const OnRefused& told) const;
  void send_failed() WEFT_REQUIRES(tx_mutex_);
  void complete_send(WcStatus status) WEFT_REQUIRES(tx_mutex_);
  void flush_sends() WEFT_REQUIRES(tx_mutex_);
  void forget_completions() WEFT_REQUIRES(tx_mutex_, rx_mutex_);
  void forget_requests() WEFT_REQUIRES(tx_mutex_, rx_mutex_);

  // --- receiving: datagram_receive.cc ---
  enum class WithoutReceive : std::uint8_t { kWait, kLose };  // a datagram
  [[nodiscard]] std::size_t batch_size(WithoutReceive what) const WEFT_REQUIRES(rx_mutex_);
  bool receive(WithoutReceive what) WEFT_REQUIRES(rx_mutex_);
  void take(std::span<const std::uint8_t> octets, const SocketAddress& source, const IpMarks& marks)
      WEFT_REQUIRES(rx_mutex_);
  [[nodiscard]] bool is_wanted(const roce::Datagram& header, const SocketAddress& source,
                               const Gid& own) WEFT_REQUIRES(rx_mutex_);
  [[nodiscard]] bool is_own(const Gid& gid) WEFT_REQUIRES(rx_mutex_);
  [[nodiscard]] bool take_receive() WEFT_REQUIRES(rx_mutex_);
  [[nodiscard]] WcStatus place(std::span<const std::uint8_t> payload, const SocketAddress& source,
                               const IpMarks& marks) WEFT_REQUIRES(rx_mutex_);
  [[nodiscard]] bool scatter_to_sges(std::size_t at, std::span<const std::uint8_t> octets)
      WEFT_REQUIRES(rx_mutex_);
  void drop() noexcept { counts_.dropped.fetch_add(1, std::memory_order_relaxed); }
  void flush_receives() WEFT_REQUIRES(rx_mutex_);
  void complete_receive(WcStatus status, const WorkCompletion& about) WEFT_REQUIRES(rx_mutex_);

  const std::shared_ptr<ProtectionDomainImpl> pd_;
  DeviceImpl& device_;  // kept by pd_
  const ObjectCount counted_;
  const Number number_;
  os::Fd socket_;  // goes before the number does: somebody else may get the port next
  void* const context_;
  const bool signal_all_;
  QpCaps caps_{};
  std::weak_ptr<QueuePair> handle_;
  // Changed only by retire(), with both mutexes: null from then on, completions go nowhere.
  std::shared_ptr<CompletionQueueImpl> send_cq_;
  std::shared_ptr<CompletionQueueImpl> recv_cq_;
  const std::shared_ptr<SharedReceiveQueueImpl> srq_;
  std::optional<QpOfDomain> of_domain_;  // until retire()

  std::atomic<QpState> state_{QpState::kReset};  // written with both mutexes
  std::atomic<std::uint32_t> key_{0};

  struct Rings {
    proto::SendQueue sends;
    proto::RecvQueue receives;
    FreedSlots freed;
  };
  Rings rings_;

  os::Mutex tx_mutex_;
  struct Out {
    OnRefused on_refused;
    std::unique_ptr<Slots> slots;
    std::array<SocketAddress, kBatch> to;
    std::array<std::size_t, kBatch> size{};
    std::array<IpMarks, kBatch> marks{};
    std::array<std::uint32_t, kBatch> interface {};
    bool blocked = false;  // the socket has no room: the engine's thread goes on
    std::function<LinkTrouble(const SocketAddress&)> link_of;  // null: it has been asked
    std::shared_ptr<io::DatagramLink> link;                    // null: it is good
  };
  Out out_ WEFT_GUARDED_BY(tx_mutex_);

  os::Mutex rx_mutex_;
  os::SpinLock rq_lock_;  // producers of receives
  struct Receive {
    proto::RecvWqe wqe;
    Sge sges[limits::kSgesPerRequest];
  };
  struct In {
    std::unique_ptr<Slots> slots;
    Receive receive;
    // How the reading thread copies. The engine's does so at any time, and may find that the
    // program has unmapped the memory of a receive. UCX does at its end: it keeps registrations in
    // a cache, and destroys the queue pair last; an adapter's pages stay, since they are pinned.
    bool (*copy)(void* to, const void* from, std::size_t size) = nullptr;
    std::uint32_t waits = 0;  // of the engine's thread, in a row, for the program to post receives
    std::uint32_t looks_in_a_row = 0;  // by callers
    std::function<bool(const Gid&)> has_gid;
    std::function<void(LateReceive, Duration)> on_late_receive;
    OnRefused on_refused;
    Gid last_own{};  // the last one that has_gid has said yes to
  };
  In in_ WEFT_GUARDED_BY(rx_mutex_);

  // The reader. The innermost mutex.
  os::Mutex watch_mutex_;
  struct Watch {
    bool callers_read = false;
    bool wants_room = false;
    io::TimerId timer = 0;
    std::uint32_t looks_seen = 0;
  };
  Watch watch_ WEFT_GUARDED_BY(watch_mutex_);

  struct Counts {
    std::atomic<std::uint64_t> dropped{0}, tx_bytes{0}, rx_bytes{0}, tx_calls{0}, rx_calls{0};
    std::atomic<std::uint64_t> tx_datagrams{0}, rx_datagrams{0};
    std::atomic<std::uint32_t> looks{0};  // by callers
  };
  Counts counts_;
};

}  // namespace weft::verbs
