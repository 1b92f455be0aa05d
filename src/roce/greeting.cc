#include "roce/greeting.h"

#include <algorithm>
#include <cassert>

namespace weft::roce {

namespace {

// In a time that does not depend on where they differ.
bool same(std::span<const std::uint8_t, kSealSize> a, const Seal& b) noexcept {
  unsigned difference = 0;
  for (std::size_t i = 0; i < b.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

Hello towards(const End& from, const End& to, HelloKind kind) {
  Hello h;
  h.kind = kind;
  h.from = from;
  h.to = to;
  return h;
}

}  // namespace

Greeting Greeting::connector(const Hello& mine, const Sealer* sealer) {
  assert(mine.kind == HelloKind::kRequest);
  Greeting g;
  g.sealer_ = sealer;
  g.mine_ = mine;
  if (sealer == nullptr) {
    g.put(mine);
  } else {
    g.put_sealed(mine, sealer->nonce());
    g.request_ = g.out_;
  }
  g.advance(GreetingEvent::kAsks);
  return g;
}

Greeting Greeting::listener(const Sealer* sealer) {
  Greeting g;
  g.sealer_ = sealer;
  return g;
}

void Greeting::put(const Hello& hello) noexcept {
  ByteWriter writer{std::span(out_)};
  encode(hello, writer);
  out_size_ = Hello::kSize;
  sent_ = 0;
}

void Greeting::put_sealed(Hello hello, const Seal& seal) noexcept {
  hello.sealed = true;
  put(hello);
  std::ranges::copy(seal, out_.begin() + Hello::kSize);
  out_size_ = out_.size();
}

void Greeting::sent(std::size_t n) noexcept {
  assert(n <= to_send().size());
  sent_ += n;
  if (!is_sending(state_) || sent_ != out_size_) return;
  if (state_ == GreetingState::kSendingAnswer) return follow_verdict();
  advance(GreetingEvent::kSent);
}

std::size_t Greeting::missing() const noexcept {
  return is_receiving(state_) ? in_wanted_ - in_size_ : 0;
}

void Greeting::received(std::span<const std::uint8_t> bytes) noexcept {
  assert(bytes.size() <= missing());
  std::ranges::copy(bytes, in_.begin() + static_cast<std::ptrdiff_t>(in_size_));
  in_size_ += bytes.size();
  if (in_size_ == in_wanted_ && is_receiving(state_)) understand();
}

// The hello is there, and its seal as well, or that is read next: also by an end without a secret,
// since closing a socket that has unread octets would take the answer away from the peer.
void Greeting::understand() noexcept {
  ByteReader reader{std::span<const std::uint8_t>(in_).first(Hello::kSize)};
  const Result<Hello> said = decode_hello(reader);
  if (!said) return fail_with(said.error());
  if (said->sealed && in_wanted_ == Hello::kSize) {
    in_wanted_ = kMessageMax;
    return;
  }
  in_size_ = 0;
  in_wanted_ = Hello::kSize;
  if (state_ == GreetingState::kAwaitingRequest) return hear_request(*said);
  if (state_ == GreetingState::kAwaitingProof) return hear_proof(*said);
  // An answer to somebody else's question, or from somebody else.
  if (said->from != mine_.to || said->to != mine_.from) return fail_with(Error::kProtocol);
  if (said->kind == HelloKind::kChallenge) return hear_challenge(*said);
  if (said->kind == HelloKind::kAnswer) return hear_answer(*said);
  fail_with(Error::kProtocol);
}

// --- the listener ---

void Greeting::hear_request(const Hello& said) noexcept {
  if (said.kind != HelloKind::kRequest) return fail_with(Error::kProtocol);
  peer_ = said;
  if (said.sealed != (sealer_ != nullptr)) return decline_secret();
  if (sealer_ == nullptr) {
    advance(GreetingEvent::kRequestCame);
    return;
  }
  request_ = in_;
  put_sealed(towards(peer_.to, peer_.from, HelloKind::kChallenge), sealer_->nonce());
  challenge_ = out_;
  advance(GreetingEvent::kSealedRequestCame);
}

void Greeting::hear_proof(const Hello& said) noexcept {
  if (said.kind != HelloKind::kProof || said.from != peer_.from || said.to != peer_.to) {
    return fail_with(Error::kProtocol);
  }
  if (!said.sealed || !proved(HelloKind::kProof)) return decline_secret();
  advance(GreetingEvent::kProofCame);
}

// An answer to a peer that has shown no secret is not sealed.
void Greeting::decline_secret() noexcept {
  mine_ = towards(peer_.to, peer_.from, HelloKind::kAnswer);
  mine_.verdict = verdict_ = Verdict::kOtherSecret;
  put(mine_);
  advance(GreetingEvent::kOtherSecret);
}

void Greeting::answer(Verdict verdict, const Hello& mine) noexcept {
  assert(state_ == GreetingState::kAsked);
  mine_ = mine;
  mine_.kind = HelloKind::kAnswer;
  mine_.verdict = verdict_ = verdict;
  mine_.from = peer_.to;
  mine_.to = peer_.from;
  mine_.sealed = false;
  if (sealer_ == nullptr) {
    put(mine_);
  } else {
    put_sealed(mine_, {});  // as it stands on the wire, for the tag
    put_sealed(mine_, tag(HelloKind::kAnswer, std::span(out_).first(Hello::kSize)));
  }
  advance(GreetingEvent::kAnswered);
}

// --- the connector ---

void Greeting::hear_challenge(const Hello& said) noexcept {
  const bool expected = sealer_ != nullptr && state_ == GreetingState::kAwaitingReply;
  if (!expected || !said.sealed) return fail_with(Error::kProtocol);
  challenge_ = in_;
  put_sealed(towards(mine_.from, mine_.to, HelloKind::kProof), tag(HelloKind::kProof, {}));
  advance(GreetingEvent::kChallengeCame);
}

// An end without our secret can prove nothing. That it has another, or none, is all that is
// believed of it.
void Greeting::hear_answer(const Hello& said) noexcept {
  const bool parts = !said.sealed && said.verdict == Verdict::kOtherSecret;
  if (!parts && said.sealed != (sealer_ != nullptr)) return fail_with(Error::kProtocol);
  if (said.sealed && state_ != GreetingState::kAwaitingAnswer) return fail_with(Error::kProtocol);
  peer_ = said;
  verdict_ = said.verdict;
  if (said.sealed && !proved(HelloKind::kAnswer)) verdict_ = Verdict::kOtherSecret;
  follow_verdict();
}

// --- either ---

// REQUIRES: a Sealer, and the challenge is known.
Seal Greeting::tag(HelloKind kind, std::span<const std::uint8_t> answer) const noexcept {
  std::array<std::uint8_t, 1 + 2 * kMessageMax + Hello::kSize> text;
  text[0] = static_cast<std::uint8_t>(kind);
  auto end = std::ranges::copy(request_, text.begin() + 1).out;
  end = std::ranges::copy(challenge_, end).out;
  end = std::ranges::copy(answer, end).out;
  return sealer_->tag(std::span(text.begin(), end));
}

// Whether the message in in_, of this kind, carries the tag that it has to.
bool Greeting::proved(HelloKind kind) const noexcept {
  const std::span<const std::uint8_t> said(in_);
  const auto hello = kind == HelloKind::kAnswer ? said.first(Hello::kSize) : said.first(0);
  return same(std::span(in_).last<kSealSize>(), tag(kind, hello));
}

void Greeting::peer_closed() noexcept {
  if (is_receiving(state_) || is_sending(state_)) {
    fail_with(Error::kConnectionLost);
  }
}

// The answer has been sent, or has come.
void Greeting::follow_verdict() noexcept {
  advance(verdict_ == Verdict::kAccept ? GreetingEvent::kAccepted : GreetingEvent::kDeclined);
}

void Greeting::fail_with(Error error) noexcept {
  error_ = error;
  advance(GreetingEvent::kFailed);
}

}  // namespace weft::roce
