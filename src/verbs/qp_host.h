// The requests of a stream to its queue pair whose answer does not depend on the queue pair's
// state: memory of the device's pools, the work queues, windows, atomics, the time. QueuePairImpl
// answers the rest.
//
// Called with the lane held.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "progress/lane.h"
#include "verbs/device.h"
#include "verbs/held.h"
#include "verbs/pd.h"
#include "verbs/work_queues.h"

namespace weft::verbs {

class QpHost : public progress::LaneOwner {
 public:
  [[nodiscard]] proto::StreamId stream_id() const { return {pd_->number(), number_.value()}; }

  // --- StreamHost ---
  bool take_receive(proto::RecvWqe& out) final {
    if (receive_late_) [[unlikely]]
      return take_late_receive(out);
    return queues_.take_receive(out);
  }
  void send_done(const proto::SendDone& done) final { queues_.complete(done); }
  void recv_done(const proto::RecvDone& done) final { queues_.complete(done); }
  void receive_cut_off(const proto::RecvWqe& wqe) final { queues_.cut_off(wqe); }
  void receive_late(LateReceive what, Duration waited) final {
    if (on_late_receive_) on_late_receive_(what, waited);
  }
  void memory_refused(const RefusedMemory& what) final {
    if (on_refused_memory_) on_refused_memory_(what);
  }
  void peer_access(const PeerAccess& what) final { on_peer_access_(what); }
  void step(const Step& what) final { queues_.tell(what); }
  Duration last_octets_first() final { return last_octets_first_(); }
  WcStatus local_operation(proto::SendWqe& wqe) final;
  proto::Violation remote_invalidate(Stag stag) final;
  std::uint64_t execute_atomic(std::uint8_t* target, const AtomicRequest& request) final;
  proto::TxBatch* acquire_batch() final;
  void release_batch(proto::TxBatch* batch) final;
  std::uint8_t* acquire_carry(std::size_t size) final;
  void release_carry(std::uint8_t* carry, std::size_t size) final;
  [[nodiscard]] Instant now() final;

 protected:
  QpHost(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options, Number number);

  // A new stream tells of as much as whoever made the queue pair wants to hear.
  void set_hearing(proto::StreamParams& params) const {
    params.steps = queues_.tells_steps();
    params.peer_memory.to_hear = static_cast<bool>(on_peer_access_);
  }
  // Puts the transport of a new connection on the link that the program wants.
  [[nodiscard]] Status put_on_link(std::unique_ptr<io::Transport>& transport,
                                   const proto::StreamParams& params);
  // For a new connection: which steps the program hears of, and how it gets its messages.
  void set_wishes(proto::StreamParams& params, const io::Transport& transport);

  // An unreliable queue pair has sent all that is queued, as far as anybody can tell.
  void lose_work();

  const std::shared_ptr<ProtectionDomainImpl> pd_;
  DeviceImpl& device_;  // kept by pd_
  const Number number_;
  WorkQueues queues_;

 private:
  [[nodiscard]] bool take_late_receive(proto::RecvWqe& out);

  const std::function<void(LateReceive, Duration)> on_late_receive_;
  const std::function<void(const RefusedMemory&)> on_refused_memory_;
  const std::function<void(const PeerAccess&)> on_peer_access_;
  const std::function<LinkTrouble(const SocketAddress&)> link_;
  const std::function<Duration()> receive_late_;
  const std::function<Duration()> last_octets_first_;
  std::optional<Instant> receive_due_;  // for the message that is next, with receive_late_
};

}  // namespace weft::verbs
