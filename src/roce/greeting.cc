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
  g.connector_ = true;
  g.sealer_ = sealer;
  g.mine_ = mine;
  if (sealer == nullptr) {
    g.put(mine);
  } else {
    g.put_sealed(mine, sealer->nonce());
    g.request_ = g.out_;
  }
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
  state_ = GreetingState::kSending;
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
  if (state_ != GreetingState::kSending || sent_ != out_size_) return;
  const bool over = !connector_ && mine_.kind == HelloKind::kAnswer;
  if (!over) {
    state_ = GreetingState::kReceiving;
  } else {
    state_ = verdict_ == Verdict::kAccept ? GreetingState::kAccepted : GreetingState::kDeclined;
  }
}

std::size_t Greeting::missing() const noexcept {
  return state_ == GreetingState::kReceiving ? in_wanted_ - in_size_ : 0;
}

void Greeting::received(std::span<const std::uint8_t> bytes) noexcept {
  assert(bytes.size() <= missing());
  std::ranges::copy(bytes, in_.begin() + static_cast<std::ptrdiff_t>(in_size_));
  in_size_ += bytes.size();
  if (in_size_ == in_wanted_ && state_ == GreetingState::kReceiving) understand();
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
  if (!connector_) return challenged_ ? hear_proof(*said) : hear_request(*said);
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
    state_ = GreetingState::kAsked;
    return;
  }
  request_ = in_;
  challenged_ = true;
  put_sealed(towards(peer_.to, peer_.from, HelloKind::kChallenge), sealer_->nonce());
  challenge_ = out_;
}

void Greeting::hear_proof(const Hello& said) noexcept {
  if (said.kind != HelloKind::kProof || said.from != peer_.from || said.to != peer_.to) {
    return fail_with(Error::kProtocol);
  }
  if (!said.sealed || !proved(HelloKind::kProof)) return decline_secret();
  state_ = GreetingState::kAsked;
}

// An answer to a peer that has shown no secret is not sealed.
void Greeting::decline_secret() noexcept {
  mine_ = towards(peer_.to, peer_.from, HelloKind::kAnswer);
  mine_.verdict = verdict_ = Verdict::kOtherSecret;
  put(mine_);
}

void Greeting::answer(Verdict verdict, const Hello& mine) noexcept {
  assert(state_ == GreetingState::kAsked);
  mine_ = mine;
  mine_.kind = HelloKind::kAnswer;
  mine_.verdict = verdict_ = verdict;
  mine_.from = peer_.to;
  mine_.to = peer_.from;
  mine_.sealed = false;
  if (sealer_ == nullptr) return put(mine_);
  put_sealed(mine_, {});  // as it stands on the wire, for the tag
  put_sealed(mine_, tag(HelloKind::kAnswer, std::span(out_).first(Hello::kSize)));
}

// --- the connector ---

void Greeting::hear_challenge(const Hello& said) noexcept {
  if (sealer_ == nullptr || !said.sealed || challenged_) return fail_with(Error::kProtocol);
  challenge_ = in_;
  challenged_ = true;
  put_sealed(towards(mine_.from, mine_.to, HelloKind::kProof), tag(HelloKind::kProof, {}));
}

// An end without our secret can prove nothing. That it has another, or none, is all that is
// believed of it.
void Greeting::hear_answer(const Hello& said) noexcept {
  const bool parts = !said.sealed && said.verdict == Verdict::kOtherSecret;
  if (!parts && said.sealed != (sealer_ != nullptr)) return fail_with(Error::kProtocol);
  if (said.sealed && !challenged_) return fail_with(Error::kProtocol);
  peer_ = said;
  verdict_ = said.verdict;
  if (said.sealed && !proved(HelloKind::kAnswer)) verdict_ = Verdict::kOtherSecret;
  state_ = verdict_ == Verdict::kAccept ? GreetingState::kAccepted : GreetingState::kDeclined;
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
  if (state_ == GreetingState::kReceiving || state_ == GreetingState::kSending) {
    fail_with(Error::kConnectionLost);
  }
}

void Greeting::fail_with(Error error) noexcept {
  error_ = error;
  state_ = GreetingState::kFailed;
}

}  // namespace weft::roce
