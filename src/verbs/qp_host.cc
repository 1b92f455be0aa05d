#include "verbs/qp_host.h"

#include <sys/socket.h>

#include <atomic>
#include <utility>

#include "io/link_transport.h"
#include "os/clock.h"
#include "os/guarded.h"
#include "verbs/window.h"

namespace weft::verbs {
namespace {

// It has no family where there is no peer any more.
SocketAddress peer_of(int fd) {
  SocketAddress out;
  socklen_t length = SocketAddress::capacity();
  if (::getpeername(fd, out.get(), &length) != 0) return {};
  return out.unmapped();
}

}  // namespace

QpHost::QpHost(std::shared_ptr<ProtectionDomainImpl> pd, const QpOptions& options, Number number)
    : pd_(std::move(pd)),
      device_(*pd_->device_impl()),
      number_(std::move(number)),
      queues_(options, number_.value()),
      on_late_receive_(options.on_late_receive),
      on_refused_memory_(options.on_refused_memory),
      on_peer_access_(options.on_peer_access),
      link_(options.link),
      receive_late_(options.receive_late),
      last_octets_first_(options.last_octets_first) {}

void QpHost::set_wishes(proto::StreamParams& params, const io::Transport& transport) {
  receive_due_.reset();
  params.peer_memory.last_octets_first = static_cast<bool>(last_octets_first_);
  set_hearing(params);
  if (params.steps) queues_.tell({.what = Step::What::kConnected, .fd = transport.fd()});
}

bool QpHost::take_late_receive(proto::RecvWqe& out) {
  const Instant now = os::now();
  if (!receive_due_) receive_due_ = now + receive_late_();
  if (now < *receive_due_ || !queues_.take_receive(out)) return false;
  receive_due_.reset();
  return true;
}

Status QpHost::put_on_link(std::unique_ptr<io::Transport>& transport,
                           const proto::StreamParams& params) {
  if (!link_) return {};
  return os::guarded([&]() -> Status {
    io::put_on_bad_link(transport, link_(peer_of(transport->fd())),
                        {params.crc, params.path == PathMode::kTcp});
    return {};
  });
}

WcStatus QpHost::local_operation(proto::SendWqe& wqe) {
  if (wqe.op == SendOp::kBindWindow) return execute_bind(*pd_, stream_id(), wqe);
  return execute_local_invalidate(*pd_, stream_id(), wqe);
}

proto::Violation QpHost::remote_invalidate(Stag stag) {
  return execute_remote_invalidate(*pd_, stream_id(), stag);
}

// Atomic among all streams of all devices, and with the CPU's own atomics.
std::uint64_t QpHost::execute_atomic(std::uint8_t* target, const AtomicRequest& request) {
  const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(target));
  std::uint64_t old = word.load(std::memory_order_acquire);
  while (!word.compare_exchange_weak(old, atomic_result(request, old), std::memory_order_acq_rel)) {
  }
  return old;
}

proto::TxBatch* QpHost::acquire_batch() { return device_.batches().acquire(); }
void QpHost::release_batch(proto::TxBatch* batch) { device_.batches().release(batch); }
std::uint8_t* QpHost::acquire_carry(std::size_t size) { return device_.carries().acquire(size); }
void QpHost::release_carry(std::uint8_t* carry, std::size_t size) {
  device_.carries().release(carry, size);
}

Instant QpHost::now() { return os::now(); }

void QpHost::lose_work() {
  queues_.await_posts();
  proto::SendQueue& sends = queues_.sends();
  while (sends.head() != sends.tail()) {
    proto::SendWqe& wqe = sends.at(sends.head());
    const bool local = wqe.op == SendOp::kBindWindow || wqe.op == SendOp::kLocalInvalidate;
    proto::SendDone done;
    done.wr_id = wqe.wr_id;
    done.status = local ? local_operation(wqe) : WcStatus::kSuccess;
    done.op = wqe.op;
    done.signaled = done.status != WcStatus::kSuccess || wqe.has_flag(SendFlags::kSignaled);
    done.byte_len = wqe.length;
    sends.retire();
    send_done(done);
  }
}

}  // namespace weft::verbs
