// Before a connection to a port of rdma_cm: which TCP port serves it (verbs/port_map_service.h).
#include <algorithm>
#include <utility>

#include "os/clock.h"
#include "verbs/connection.h"
#include "verbs/oob/peer_directory.h"

namespace weft::verbs {

namespace {

// A question may be lost. Where none comes through, an iWARP device takes the number for a TCP port
// after the last of these, as for a peer that is not Weft.
constexpr Duration kFirstQuestion{30'000'000};
constexpr Duration kLongestQuestion{500'000'000};
constexpr std::uint32_t kQuestionsOfIwarp = 4;  // 0, 30, 90, 210 ms; then up to 450 ms

Duration pause_behind(std::uint32_t times) {
  Duration pause = kFirstQuestion;
  for (std::uint32_t i = 1; i < times && pause < kLongestQuestion; ++i) pause = 2 * pause;
  return std::min(pause, kLongestQuestion);
}

}  // namespace

// One connection asks for all that are made to the same port, so that they go on in the order in
// which the program made them: perftest with several QPs counts on that.
void ConnectionImpl::PortSearch::begin(Lock& lock) {
  lock.covers(c_);
  c_.phase_.on(ConnectionStep::kAsks);
  asks_ = true;
  asked_times_ = 0;
  if (c_.device_->asking_peers().enter(c_.peer_, c_.weak_from_this())) return ask_first(lock);
  c_.socket_.set_timer(c_.attempts_.until());
}

void ConnectionImpl::PortSearch::ask_first(Lock& lock) {
  lock.covers(c_);
  auto kept = c_.device_->kept_question().take(c_.local_, c_.peer_, c_.weak_from_this());
  if (kept) {
    question_ = std::move(*kept);
    return ask_again(lock);
  }
  auto question = PortQuestion::open(c_.local_, c_.peer_);
  if (!question) return nobody_answers(lock);
  if (!c_.device_->engine().add(question->fd(), EPOLLIN, c_.weak_from_this())) {
    return nobody_answers(lock);
  }
  question_ = std::move(*question);
  ask_again(lock);
}

void ConnectionImpl::turn_to_ask(std::optional<std::uint16_t> tcp_port) {
  if (!device_->usable()) return;
  Lock lock(*this);
  if (phase_ == Phase::kAsking) port_search_.go_on(lock, tcp_port);
}

void ConnectionImpl::PortSearch::go_on(Lock& lock, std::optional<std::uint16_t> learned) {
  lock.covers(c_);
  if (question_) return;
  c_.step(lock, [&] {
    lock.covers(c_);
    if (!learned) return ask_first(lock);
    *learned == 0 ? nobody_answers(lock) : port_is(lock, *learned);
  });
}

// The first time, and when no answer came.
void ConnectionImpl::PortSearch::ask_again(Lock& lock) {
  lock.covers(c_);
  const bool roce_like = c_.device_->peer_directory() != nullptr;
  const Instant until = c_.attempts_.until();
  if (os::now() >= until) {
    stop(lock, std::nullopt);
    return c_.tcp_failed(lock, Error::kTimedOut);
  }
  if (!question_) return;
  if (!roce_like && asked_times_ == kQuestionsOfIwarp) return nobody_answers(lock);
  ++asked_times_;
  question_.ask();
  c_.socket_.set_timer(std::min(os::now() + pause_behind(asked_times_), until));
  // Inside a machine a refusal is there at once.
  read(lock);
}

void ConnectionImpl::PortSearch::read(Lock& lock) {
  lock.covers(c_);
  if (!question_) return;
  const auto answer = question_.take();
  if (!answer && answer.error() == Error::kTimedOut) return;
  if (!answer) return nobody_answers(lock);
  const bool roce_like = c_.device_->peer_directory() != nullptr;
  if (answer->roce_like != roce_like) {
    c_.set_up_failed(
        lock, ConnectionEvent::Type::kRejected, Error::kRefused,
        roce_like ? "the peer is no RoCE-like device" : "the peer is a RoCE-like device");
    return;
  }
  // Nothing more comes of a question that was asked once.
  if (asked_times_ == 1) {
    c_.device_->kept_question().keep(std::exchange(question_, {}), c_.local_, c_.peer_);
  }
  port_is(lock, answer->tcp_port);
}

// A peer of an iWARP device may be siw or an adapter, whose ports are TCP's.
void ConnectionImpl::PortSearch::nobody_answers(Lock& lock) {
  lock.covers(c_);
  if (c_.device_->peer_directory() == nullptr) return port_is(lock, c_.peer_.port());
  c_.tcp_failed(lock, Error::kRefused);
  stop(lock, std::uint16_t{0});
}

void ConnectionImpl::PortSearch::port_is(Lock& lock, std::uint16_t port) {
  lock.covers(c_);
  c_.socket_.clear_timer();
  port_ = port;
  c_.start_handshake(lock);
  stop(lock, port);
}

// The next one, if there is one, goes on with what this one has learned, or asks itself.
void ConnectionImpl::PortSearch::stop(Lock& lock, std::optional<std::uint16_t> learned) {
  lock.covers(c_);
  if (question_) {
    c_.device_->engine().forget(question_.fd());
    question_ = {};
  }
  if (!std::exchange(asks_, false)) return;
  std::shared_ptr<ConnectionImpl> next = c_.device_->asking_peers().leave(c_.peer_, c_);
  if (next == nullptr) return;
  (void)c_.device_->engine().post([weak = std::weak_ptr(next), learned] {
    if (const auto one = weak.lock()) one->turn_to_ask(learned);
  });
  lock.dispose(std::move(next));
}

}  // namespace weft::verbs
