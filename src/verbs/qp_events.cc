// The reports of the stream to its queue pair, and their consequences.
#include <utility>

#include "os/log.h"
#include "verbs/cq.h"
#include "verbs/oob/wiring.h"
#include "verbs/qp.h"
#include "verbs/qp_connection.h"

namespace weft::verbs {

void QueuePairImpl::raise(AsyncEventType type) {
  if (retired_) return;
  AsyncEvent event;
  event.type = type;
  event.qp = handle_;
  event.object = static_cast<const QueuePair*>(this);
  device_.raise(std::move(event));
}

void QueuePairImpl::log_violation(proto::Violation violation, TerminateCode code, bool by_peer) {
  if (!os::log_enabled(LogLevel::kInfo)) return;
  const AddressText address =
      connection_ == nullptr ? AddressText("?") : connection_->peer_address().shown();
  const std::string_view peer = address.view();
  if (by_peer) {
    os::log(LogLevel::kInfo, "qp {}: {} sent Terminate {}/{}/{:02x}: {}", number(), peer,
            code.layer, code.etype, code.code, weft::describe(code));
  } else {
    os::log(LogLevel::kInfo, "qp {}: {}: {}; Terminate {}/{}/{:02x}", number(), peer,
            proto::consequence_of(violation).name, code.layer, code.etype, code.code);
  }
}

void QueuePairImpl::first_fpdu() {
  notices_.add([&](QpNotices::Notices& n) {
    n.connection = connection_;
    n.first_fpdu = true;
  });
}

void QueuePairImpl::stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) {
  if (outlives_link(how)) return;
  state_.store(QpState::kError, std::memory_order_release);
  drain_event_due_ = false;
  // Posts that were under way when the state changed are in the queue by the time we have the lock.
  queues_.await_posts();
  flush_posted();
  queues_.flush_receives();
  tell_last_receive();
  notices_.add([&](QpNotices::Notices& n) {
    n.connection = std::move(connection_);
    n.down = true;
    n.how = how;
    n.code = code;
    n.by_peer = by_peer;
    n.generation = wired_.generation;
  });
}

// In the error state it takes no more from the shared queue. Programs such as UCX destroy a queue
// pair only when they have heard this.
void QueuePairImpl::tell_last_receive() {
  if (queues_.srq() != nullptr) raise(AsyncEventType::kQpLastWqeReached);
}

// Posted in the error state, or before there was a connection.
void QueuePairImpl::flush_posted() {
  if (proto::Stream* stream = lane_.stream()) {
    stream->flush_posted();
    return;
  }
  queues_.flush_sends(WcStatus::kFlushed);
}

void QueuePairImpl::flush_to_nowhere() {
  queues_.forget_completions();
  queues_.forget_sends();
  if (proto::Stream* stream = lane_.stream()) stream->flush_posted();
  queues_.forget_receives();
}

void QueuePairImpl::add_counters(Counters& sum) const { lane_.add_counters(sum); }

// --- behind each turn ---

void QueuePairImpl::turn_done() {
  if (state() == QpState::kError && queues_.sends().size() != 0) flush_posted();
  proto::Stream* stream = lane_.stream();
  if (stream == nullptr || !lane_.live()) {
    note_waiting_work();
    return;
  }
  wake_who_waits_for_writes();
  if (overflow_.load(std::memory_order_relaxed) && stream->state() == proto::StreamState::kRts) {
    queues_.set_failed(true);  // a queue pair connected out of band goes down too
    stream->fail(proto::Violation::kLocalFault);
    lane_.transmit();
  }
  if (drain_event_due_ && stream->send_drained()) {
    drain_event_due_ = false;
    raise(AsyncEventType::kSqDrained);
  }
}

// See CompletionQueueImpl::wake_idle(). A Write that came while requests were outstanding wakes
// when the last of them is gone, which may be without a completion.
void QueuePairImpl::wake_who_waits_for_writes() {
  const std::uint64_t writes =
      lane_.stream()->counters().rx_messages[static_cast<std::size_t>(Opcode::kWrite)].get();
  if (writes == writes_seen_) return;
  const auto& send_cq = queues_.send_cq();
  if (send_cq == nullptr || send_cq == queues_.recv_cq()) return;
  if (!send_cq->armed() || queues_.sends().size() != 0) return;
  writes_seen_ = writes;
  send_cq->wake_idle();
}

void QueuePairImpl::lane_left() {
  if (!notices_.due()) return;
  const std::shared_ptr<QueuePairImpl> self = weak_from_this().lock();
  notices_.deliver([&](const QpNotices::Notices& n) {
    if (n.connection == nullptr && (n.down || n.outlived) && is_wired()) {
      wired_.wiring->link_lost(n.generation, !n.outlived  ? LinkEnd::kError
                                             : n.stranded ? LinkEnd::kStranded
                                                          : LinkEnd::kIdle);
      look_for_waiting_work();  // posted while the wiring had a connection
    }
    if (n.connection != nullptr) {
      if (n.first_fpdu) n.connection->on_first_fpdu();
      if (n.down) n.connection->on_stream_down(n.how, n.code, n.by_peer);
    }
  });
}

}  // namespace weft::verbs
