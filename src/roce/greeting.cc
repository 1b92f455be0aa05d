#include "roce/greeting.h"

#include <algorithm>
#include <cassert>

namespace weft::roce {

Greeting Greeting::connector(const Hello& mine) {
  assert(mine.kind == HelloKind::kRequest);
  Greeting g;
  g.connector_ = true;
  g.mine_ = mine;
  g.put(mine);
  return g;
}

Greeting Greeting::listener() { return {}; }

void Greeting::put(const Hello& hello) noexcept {
  ByteWriter writer{std::span(out_)};
  encode(hello, writer);
  out_size_ = out_.size();
  sent_ = 0;
  state_ = GreetingState::kSending;
}

void Greeting::sent(std::size_t n) noexcept {
  assert(n <= to_send().size());
  sent_ += n;
  if (state_ != GreetingState::kSending || sent_ != out_size_) return;
  if (connector_) {
    state_ = GreetingState::kReceiving;
  } else {
    state_ = verdict_ == Verdict::kAccept ? GreetingState::kAccepted : GreetingState::kDeclined;
  }
}

std::size_t Greeting::missing() const noexcept {
  return state_ == GreetingState::kReceiving ? in_.size() - in_size_ : 0;
}

void Greeting::received(std::span<const std::uint8_t> bytes) noexcept {
  assert(bytes.size() <= missing());
  std::ranges::copy(bytes, in_.begin() + static_cast<std::ptrdiff_t>(in_size_));
  in_size_ += bytes.size();
  if (in_size_ == in_.size() && state_ == GreetingState::kReceiving) understand();
}

void Greeting::understand() noexcept {
  ByteReader reader{std::span<const std::uint8_t>(in_)};
  const Result<Hello> hello = decode_hello(reader);
  if (!hello) return fail_with(hello.error());
  peer_ = *hello;
  if (!connector_) {
    if (peer_.kind != HelloKind::kRequest) return fail_with(Error::kProtocol);
    state_ = GreetingState::kAsked;
    return;
  }
  // An answer to somebody else's question, or from somebody else.
  if (peer_.kind != HelloKind::kAnswer || peer_.from != mine_.to || peer_.to != mine_.from) {
    return fail_with(Error::kProtocol);
  }
  verdict_ = peer_.verdict;
  state_ = verdict_ == Verdict::kAccept ? GreetingState::kAccepted : GreetingState::kDeclined;
}

void Greeting::peer_closed() noexcept {
  if (state_ == GreetingState::kReceiving || state_ == GreetingState::kSending) {
    fail_with(Error::kConnectionLost);
  }
}

void Greeting::answer(Verdict verdict, const Hello& mine) noexcept {
  assert(state_ == GreetingState::kAsked);
  mine_ = mine;
  mine_.kind = HelloKind::kAnswer;
  mine_.verdict = verdict_ = verdict;
  mine_.from = peer_.to;
  mine_.to = peer_.from;
  put(mine_);
}

void Greeting::fail_with(Error error) noexcept {
  error_ = error;
  state_ = GreetingState::kFailed;
}

}  // namespace weft::roce
