// The work queues of a queue pair: what is posted to them, what is taken from them, and
// completions.
//
// Threads: posts by any, each queue under its lock; the rest with the lane of the queue pair held.
// Lock order: the lane's, then these locks, the CQ's ring lock.
#pragma once

#include <weft/limits.h>
#include <weft/queue_pair.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "os/lock.h"
#include "proto/work.h"
#include "verbs/freed_slots.h"

namespace weft::verbs {

class CompletionQueueImpl;
class SharedReceiveQueueImpl;

class WorkQueues {
 public:
  // Completions name `qp_num`.
  WorkQueues(const QpOptions& options, std::uint32_t qp_num);
  ~WorkQueues();
  WorkQueues(const WorkQueues&) = delete;
  WorkQueues& operator=(const WorkQueues&) = delete;

  // Once, before use.   kNoMemory
  [[nodiscard]] Status allocate(const QpOptions& options);
  [[nodiscard]] const QpCaps& caps() const noexcept { return caps_; }
  [[nodiscard]] bool signals_all() const noexcept { return signal_all_; }
  [[nodiscard]] SharedReceiveQueueImpl* srq() const noexcept { return srq_.get(); }
  // Null once they are retired.
  [[nodiscard]] const std::shared_ptr<CompletionQueueImpl>& send_cq() const noexcept {
    return send_cq_;
  }
  [[nodiscard]] const std::shared_ptr<CompletionQueueImpl>& recv_cq() const noexcept {
    return recv_cq_;
  }

  // --- posts ---
  [[nodiscard]] proto::SendQueue& sends() noexcept { return sq_; }
  [[nodiscard]] const proto::SendQueue& sends() const noexcept { return sq_; }
  [[nodiscard]] os::SpinLock& send_lock() noexcept { return sq_lock_; }
  // The next free slot of the send queue; null: it is full. REQUIRES: the caller holds send_lock().
  [[nodiscard]] proto::SendWqe* reserve_send() noexcept { return sq_.reserve(freed_.sends); }
  [[nodiscard]] std::uint32_t sends_taken() const noexcept { return sq_.taken(freed_.sends); }
  // Posts that were under way are in the send queue when it returns.
  void await_posts() noexcept { const os::SpinGuard lock(sq_lock_); }
  // REQUIRES: there is no shared receive queue, and caps() has receives.
  [[nodiscard]] Posted post_receives(std::span<const RecvWr> wrs);
  [[nodiscard]] std::uint32_t receives_posted() const noexcept {
    return caps_.max_recv_sge == 0 ? 0 : rq_.size();
  }

  // --- steps: QpOptions::on_step ---
  [[nodiscard]] bool tells_steps() const noexcept { return static_cast<bool>(on_step_); }
  // REQUIRES: tells_steps().
  void tell(const Step& what) const { on_step_(what); }

  // --- receives ---
  // The oldest posted receive. False: there is none.
  [[nodiscard]] bool take_receive(proto::RecvWqe& out);
  // The connection went while this receive was open. An unreliable queue pair gives it to the next
  // message; a reliable one, which has no next connection then, flushes it with the others.
  //   REQUIRES: reserve_cut_off() has been called
  void cut_off(const proto::RecvWqe& wqe) noexcept;
  // For queue pairs whose requests outlive a connection.  kNoMemory
  [[nodiscard]] Status reserve_cut_off();

  // --- completions ---
  void complete(const proto::SendDone& done);
  void complete(const proto::RecvDone& done);
  void flush_receives();
  // Ends the requests that no stream has begun; the oldest ends with this status. REQUIRES: there
  // is no stream now.
  void flush_sends(WcStatus oldest);
  // Completions that nobody has polled yet are dropped, all requests go without one, and all slots
  // are free.
  void forget_completions();
  void forget_sends() noexcept;
  void forget_receives() noexcept;
  // Completions go nowhere meanwhile.
  void mute(bool muted) noexcept { muted_ = muted; }
  [[nodiscard]] bool muted() const noexcept { return muted_; }
  // A request has failed or been flushed since this was said to be false.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  void set_failed(bool failed) noexcept { failed_ = failed; }
  // Completions go nowhere from now on, and those that nobody has polled yet are dropped. Gives the
  // CQs for sends and receives away.
  [[nodiscard]] std::pair<std::shared_ptr<CompletionQueueImpl>,
                          std::shared_ptr<CompletionQueueImpl>>
  retire() {
    forget_completions();
    return {std::move(send_cq_), std::move(recv_cq_)};
  }

 private:
  struct CutOff {
    proto::RecvWqe wqe;
    Sge sges[limits::kSgesPerRequest];
  };

  [[nodiscard]] bool has_own_receives() const noexcept {
    return srq_ == nullptr && caps_.max_recv_sge != 0;
  }

  const std::uint32_t qp_num_;
  const bool signal_all_;
  const bool reuses_cut_off_;
  const std::function<void(const Step&)> on_step_;
  bool muted_ = false;
  bool failed_ = false;
  QpCaps caps_{};
  std::shared_ptr<CompletionQueueImpl> send_cq_;
  std::shared_ptr<CompletionQueueImpl> recv_cq_;
  const std::shared_ptr<SharedReceiveQueueImpl> srq_;
  std::unique_ptr<CutOff> cut_off_;  // room for one
  bool has_cut_off_ = false;
  os::SpinLock sq_lock_;  // producers of sq_
  proto::SendQueue sq_;
  os::SpinLock rq_lock_;  // producers of rq_
  proto::RecvQueue rq_;
  std::uint32_t received_ = 0;  // index in rq_ behind the last receive that was completed
  FreedSlots freed_;
};

}  // namespace weft::verbs
