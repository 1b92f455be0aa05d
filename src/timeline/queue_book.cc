#include "timeline/queue_book.h"

#include <algorithm>
#include <utility>

namespace weft::timeline {

namespace {

constexpr std::size_t index_of(At what) { return static_cast<std::size_t>(what); }

void note(std::uint64_t& time, std::uint64_t now) {
  if (time == kNever) time = now;
}

}  // namespace

std::string_view name_of(Op op) {
  switch (op) {
    case Op::kSend: return "Send";
    case Op::kSendInvalidate: return "Send with invalidate";
    case Op::kWrite: return "RDMA Write";
    case Op::kWriteImm: return "RDMA Write with immediate";
    case Op::kRead: return "RDMA Read";
    case Op::kFetchAdd: return "fetch and add";
    case Op::kCmpSwap: return "compare and swap";
    case Op::kImmediate: return "Send with immediate";
    case Op::kLocalInvalidate: return "local invalidate";
    case Op::kBindWindow: return "bind";
    case Op::kUnknown: break;
  }
  return "request";
}

void QueueBook::connected(std::uint32_t connection) {
  connection_ = connection;
  message_ = {};
}

std::uint32_t QueueBook::posting(const Post& post, std::uint64_t now) {
  Request request;
  request.post = post;
  request.posted = now;
  requests_.push_back(request);
  return first_ + static_cast<std::uint32_t>(requests_.size()) - 1;
}

void QueueBook::not_posted() {
  if (!requests_.empty()) requests_.pop_back();
}

void QueueBook::post_returned(std::uint32_t first, std::uint64_t now) {
  const auto size = static_cast<std::uint32_t>(requests_.size());
  for (std::uint32_t i = first - first_ > size ? 0 : first - first_; i < size; ++i)
    note(requests_[i].at[index_of(At::kPostEnd)], now);
}

QueueBook::Request* QueueBook::find(std::uint32_t number) {
  const std::uint32_t i = number - first_;
  return i < requests_.size() ? &requests_[i] : nullptr;
}

// It is sent for the first time, or once more, with all behind it.
void QueueBook::begin_again(std::uint32_t number, Request& request) {
  if (request.begun && number - first_ < unsent_ - first_) unsent_ = number;
  request.begun = true;
  request.built = false;
  request.connection = connection_;
  request.at[index_of(At::kFirstOut)] = request.at[index_of(At::kLastOut)] = kNever;
}

void QueueBook::sent(std::uint64_t offset, std::uint64_t now) {
  for (Request* request = find(unsent_); request != nullptr; request = find(++unsent_)) {
    const bool done = request->at[index_of(At::kCompleted)] != kNever;
    if (done || request->has_no_octets()) continue;
    if (!request->begun || request->begin >= offset) return;
    note(request->at[index_of(At::kFirstOut)], now);
    if (!request->built || request->end > offset) return;
    note(request->at[index_of(At::kLastOut)], now);
  }
}

void QueueBook::step(const Step& step, std::uint64_t now, Records& out) {
  Request* const request = find(step.request);
  switch (step.what) {
    case Step::What::kConnected: break;  // connected() has the number
    case Step::What::kBegun:
      if (request == nullptr) return;
      begin_again(step.request, *request);
      request->begin = step.offset;
      note(request->at[index_of(At::kTaken)], now);
      break;
    case Step::What::kBuilt:
      if (request == nullptr) return;
      request->built = true;
      request->end = step.offset;
      break;
    case Step::What::kSent: sent(step.offset, now); break;
    case Step::What::kCompleted:
      if (request != nullptr) note(request->at[index_of(At::kCompleted)], now);
      break;
    case Step::What::kReceiveTaken: break;  // receive_taken()
    case Step::What::kArrives: note(message_.time(At::kArrived), now); break;
    case Step::What::kPlaced: placed(step, now, out); break;
    case Step::What::kReceived:
      message_.wr_id = step.wr_id;
      message_.time(At::kReceived) = now;
      received_.push_back(std::exchange(message_, {}));
      break;
  }
}

void QueueBook::receive_taken(std::uint64_t posted, std::uint64_t now) {
  message_.time(At::kReceivePosted) = posted;
  if (message_.late) message_.time(At::kLateUntil) = now;
}

void QueueBook::receive_is_late(std::uint64_t now) {
  note(message_.time(At::kArrived), now);
  message_.late = true;
}

void QueueBook::placed(const Step& step, std::uint64_t now, Records& out) {
  note(message_.time(At::kArrived), now);
  message_.time(At::kPlaced) = now;
  message_.op = static_cast<Op>(step.op);
  message_.length = step.length;
  message_.connection = connection_;
  message_.end = step.offset;
  if (step.op == SendOp::kSend || step.op == SendOp::kImmediate) return;
  write(Kind::kMessage, message_, 0, out);
  message_ = {};
}

void QueueBook::polled(const Polled& completion, std::uint64_t now, Records& out) {
  if (is_receive(completion)) return poll_receive(completion, now, out);
  if (!poll_request(completion, now, out) && completion.status != 0)
    poll_receive(completion, now, out);
}

// One with an error does not say what it is of, and programs use numbers twice. Both may share a
// queue: what completed first is polled first.
bool QueueBook::is_receive(const Polled& completion) const {
  if (completion.status == 0) return completion.receive;
  if (received_.empty() || received_.front().wr_id != completion.wr_id) return false;
  const std::size_t request = request_of(completion);
  return request == requests_.size() || received_.front().at[index_of(At::kReceived)] <
                                            requests_[request].at[index_of(At::kCompleted)];
}

// Completions of a queue come in its order. One with an error may be of an unsignaled request.
std::size_t QueueBook::request_of(const Polled& completion) const {
  std::size_t i = 0;
  for (; i < requests_.size(); ++i) {
    const Post& post = requests_[i].post;
    if (post.wr_id == completion.wr_id && (post.signaled || completion.status != 0)) break;
  }
  return i;
}

bool QueueBook::poll_request(const Polled& completion, std::uint64_t now, Records& out) {
  const std::size_t done = request_of(completion);
  if (done == requests_.size()) return false;
  requests_[done].at[index_of(At::kPolled)] = now;
  for (std::size_t i = 0; i < done; ++i) write(requests_[i], 0, out);
  write(requests_[done], completion.status, out);
  first_ += static_cast<std::uint32_t>(done) + 1;
  requests_.pop_front(done + 1);
  if (unsent_ - first_ > requests_.size()) unsent_ = first_;
  return true;
}

void QueueBook::poll_receive(const Polled& completion, std::uint64_t now, Records& out) {
  if (received_.empty() || received_.front().wr_id != completion.wr_id) return;
  Message message = received_.front();
  received_.pop_front();
  message.time(At::kPolled) = now;
  write(Kind::kReceive, message, completion.status, out);
}

void QueueBook::emptied(Records& out) {
  for (std::size_t i = 0; i < requests_.size(); ++i) write(requests_[i], 0, out);
  for (std::size_t i = 0; i < received_.size(); ++i) write(Kind::kReceive, received_[i], 0, out);
  first_ += static_cast<std::uint32_t>(requests_.size());
  unsent_ = first_;
  requests_.clear();
  received_.clear();
  message_ = {};
}

void QueueBook::write(const Request& request, std::uint8_t status, Records& out) const {
  Record record{.kind = Kind::kRequest,
                .op = request.post.op,
                .status = status,
                .connection = request.connection != 0 ? request.connection : connection_,
                .end_offset = request.built && !request.has_no_octets() ? request.end : 0,
                .length = request.post.length,
                .qp = qp_,
                .wr_id = request.post.wr_id};
  record.set_times(request.posted, request.at);
  out.push_back(record);
}

// A receive that no message took has no record.
void QueueBook::write(Kind kind, const Message& message, std::uint8_t status, Records& out) const {
  if (message.at[index_of(At::kArrived)] == kNever) return;
  Record record{.kind = kind,
                .op = message.op,
                .status = status,
                .connection = message.connection,
                .end_offset = message.end,
                .length = message.length,
                .qp = qp_,
                .wr_id = message.wr_id};
  record.set_times(kNever, message.at);
  out.push_back(record);
}

}  // namespace weft::timeline
