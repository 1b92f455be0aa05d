// The exchange of hellos, in both roles and in any pieces.
#include "roce/greeting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "roce/qp_number.h"
#include "roce_sealer.h"

namespace weft::roce {
namespace {

const End kLeft{{1}, to_number({40000, 2})};
const End kRight{{2}, to_number({50000, 3})};

Hello of(const End& from, const End& to) {
  Hello h;
  h.from = from;
  h.to = to;
  return h;
}

// Moves what `from` has to send to `to`, `piece` octets at a time.
void carry(Greeting& from, Greeting& to, std::size_t piece) {
  while (!from.to_send().empty()) {
    const std::size_t n = std::min({piece, from.to_send().size(), to.missing()});
    ASSERT_NE(n, 0U);
    const std::vector<std::uint8_t> octets(from.to_send().begin(),
                                           from.to_send().begin() + static_cast<long>(n));
    from.sent(n);
    to.received(octets);
  }
}

TEST(RoceGreeting, BothSidesAgreeInPiecesOfAnySize) {
  for (const std::size_t piece : {1U, 3U, 63U, 64U}) {
    Greeting connector = Greeting::connector(of(kLeft, kRight));
    Greeting listener = Greeting::listener();
    carry(connector, listener, piece);
    ASSERT_EQ(listener.state(), GreetingState::kAsked);
    EXPECT_EQ(listener.peer().from, kLeft);
    Hello mine = of(kRight, kLeft);
    mine.psn = 77;
    listener.answer(Verdict::kAccept, mine);
    carry(listener, connector, piece);
    EXPECT_EQ(listener.state(), GreetingState::kAccepted);
    ASSERT_EQ(connector.state(), GreetingState::kAccepted);
    EXPECT_EQ(connector.peer().psn, 77U);
    EXPECT_EQ(connector.missing(), 0U);
  }
}

TEST(RoceGreeting, ARefusalSaysWhy) {
  Greeting connector = Greeting::connector(of(kLeft, kRight));
  Greeting listener = Greeting::listener();
  carry(connector, listener, 64);
  listener.answer(Verdict::kNoSuchQp, {});
  carry(listener, connector, 64);
  EXPECT_EQ(listener.state(), GreetingState::kDeclined);
  EXPECT_EQ(connector.state(), GreetingState::kDeclined);
  EXPECT_EQ(connector.verdict(), Verdict::kNoSuchQp);
}

// What a connector makes of `answer`.
Greeting told(const Hello& answer) {
  Greeting connector = Greeting::connector(of(kLeft, kRight));
  connector.sent(connector.to_send().size());
  std::array<std::uint8_t, Hello::kSize> octets{};
  ByteWriter writer{std::span(octets)};
  encode(answer, writer);
  connector.received(octets);
  return connector;
}

TEST(RoceGreeting, AnAnswerFromOrToSomebodyElseIsNone) {
  Hello answer = of(kRight, kLeft);
  EXPECT_EQ(told(answer).state(), GreetingState::kFailed);  // a request
  answer.kind = HelloKind::kAnswer;
  EXPECT_EQ(told(answer).state(), GreetingState::kAccepted);
  Hello other = answer;
  other.from.number = to_number({50000, 4});
  EXPECT_EQ(told(other).state(), GreetingState::kFailed);
  other = answer;
  other.from.gid[3] = 9;
  EXPECT_EQ(told(other).state(), GreetingState::kFailed);
  other = answer;
  other.to.number = to_number({40000, 3});
  EXPECT_EQ(told(other).state(), GreetingState::kFailed);
}

TEST(RoceGreeting, AListenerTakesNoAnswers) {
  Greeting listener = Greeting::listener();
  Hello answer = of(kLeft, kRight);
  answer.kind = HelloKind::kAnswer;
  std::array<std::uint8_t, Hello::kSize> octets{};
  ByteWriter writer{std::span(octets)};
  encode(answer, writer);
  listener.received(octets);
  EXPECT_EQ(listener.state(), GreetingState::kFailed);
}

TEST(RoceGreeting, ClosedBeforeItsEndHasFailed) {
  Greeting listener = Greeting::listener();
  listener.received(std::vector<std::uint8_t>(Hello::kSize - 1));
  listener.peer_closed();
  EXPECT_EQ(listener.state(), GreetingState::kFailed);
  EXPECT_EQ(listener.error(), Error::kConnectionLost);
}

// --- with a secret ---

using Octets = std::vector<std::uint8_t>;

Octets said_by(Greeting& one) {
  Octets out(one.to_send().begin(), one.to_send().end());
  one.sent(out.size());
  return out;
}

void hear(Greeting& one, std::span<const std::uint8_t> octets) {
  while (!octets.empty() && one.missing() != 0) {
    const std::size_t n = std::min(one.missing(), octets.size());
    one.received(octets.first(n));
    octets = octets.subspan(n);
  }
}

// Everything that is said of one exchange, as somebody on the way hears it.
struct Exchange {
  Exchange(const Sealer* left, const Sealer* right)
      : connector(Greeting::connector(of(kLeft, kRight), left)),
        listener(Greeting::listener(right)) {}
  void run(std::size_t piece = 1) {
    while (!over()) {
      Greeting& from = connector.to_send().empty() ? listener : connector;
      ASSERT_FALSE(from.to_send().empty());
      carry(from, &from == &connector ? listener : connector, piece);
      if (listener.state() == GreetingState::kAsked) {
        asked = true;
        listener.answer(Verdict::kAccept, of(kRight, kLeft));
      }
    }
  }
  [[nodiscard]] bool over() const {
    const auto ends = [](GreetingState s) {
      return s == GreetingState::kAccepted || s == GreetingState::kDeclined ||
             s == GreetingState::kFailed;
    };
    return ends(connector.state()) && ends(listener.state());
  }
  Greeting connector, listener;
  bool asked = false;
};

TEST(RoceSecret, BothEndsThatHaveItAgreeInPiecesOfAnySize) {
  for (const std::size_t piece : {1U, 31U, 64U, 96U}) {
    const ToySealer left(7), right(7);
    Exchange e(&left, &right);
    e.run(piece);
    EXPECT_EQ(e.connector.state(), GreetingState::kAccepted);
    EXPECT_EQ(e.listener.state(), GreetingState::kAccepted);
    EXPECT_EQ(e.connector.peer().from, kRight);
    EXPECT_EQ(e.connector.missing(), 0U);
  }
}

TEST(RoceSecret, EndsWithOtherSecretsOrOneWithoutPartBeforeTheListenerIsAsked) {
  const ToySealer one(7), other(8);
  const std::pair<const Sealer*, const Sealer*> pairs[] = {
      {&one, &other}, {&one, nullptr}, {nullptr, &one}};
  for (const auto& [left, right] : pairs) {
    Exchange e(left, right);
    e.run(96);
    EXPECT_FALSE(e.asked);
    EXPECT_EQ(e.connector.state(), GreetingState::kDeclined);
    EXPECT_EQ(e.listener.state(), GreetingState::kDeclined);
    EXPECT_EQ(e.connector.verdict(), Verdict::kOtherSecret);
    EXPECT_EQ(e.listener.verdict(), Verdict::kOtherSecret);
  }
}

// What was heard of one exchange opens no other, in either role.
TEST(RoceSecret, NothingThatWasSaidBeforeIsAProofAgain) {
  const ToySealer secret(7);
  Exchange heard(&secret, &secret);
  const Octets request = said_by(heard.connector);
  hear(heard.listener, request);
  const Octets challenge = said_by(heard.listener);
  hear(heard.connector, challenge);
  const Octets proof = said_by(heard.connector);
  hear(heard.listener, proof);
  ASSERT_EQ(heard.listener.state(), GreetingState::kAsked);
  heard.listener.answer(Verdict::kAccept, of(kRight, kLeft));
  const Octets answer = said_by(heard.listener);

  Greeting listener = Greeting::listener(&secret);
  hear(listener, request);
  static_cast<void>(said_by(listener));
  hear(listener, proof);
  EXPECT_EQ(said_by(listener)[10], static_cast<std::uint8_t>(Verdict::kOtherSecret));
  EXPECT_EQ(listener.state(), GreetingState::kDeclined);

  Greeting connector = Greeting::connector(of(kLeft, kRight), &secret);
  static_cast<void>(said_by(connector));
  hear(connector, challenge);
  static_cast<void>(said_by(connector));
  hear(connector, answer);
  EXPECT_EQ(connector.state(), GreetingState::kDeclined);
  EXPECT_EQ(connector.verdict(), Verdict::kOtherSecret);
}

// A listener that sends our own proof back, or leaves the challenge out.
TEST(RoceSecret, AConnectorBelievesNoAnswerWithoutItsProof) {
  const ToySealer secret(7), other(8);
  Exchange e(&secret, &secret);
  hear(e.listener, said_by(e.connector));
  hear(e.connector, said_by(e.listener));
  Octets reflected = said_by(e.connector);  // the proof
  Hello answer = of(kRight, kLeft);
  answer.kind = HelloKind::kAnswer;
  answer.sealed = true;
  ByteWriter writer{std::span(reflected).first(Hello::kSize)};
  encode(answer, writer);
  hear(e.connector, reflected);
  EXPECT_EQ(e.connector.verdict(), Verdict::kOtherSecret);

  Greeting unchallenged = Greeting::connector(of(kLeft, kRight), &secret);
  static_cast<void>(said_by(unchallenged));
  hear(unchallenged, reflected);
  EXPECT_EQ(unchallenged.state(), GreetingState::kFailed);

  answer.sealed = false;
  Octets open(Hello::kSize);
  ByteWriter open_writer{std::span(open)};
  encode(answer, open_writer);
  Greeting told_openly = Greeting::connector(of(kLeft, kRight), &secret);
  static_cast<void>(said_by(told_openly));
  hear(told_openly, open);
  EXPECT_EQ(told_openly.state(), GreetingState::kFailed);
}

TEST(RoceSecret, EveryOctetOfAnExchangeIsProved) {
  const ToySealer secret(7);
  for (std::size_t at = 12; at < 96; ++at) {
    Exchange e(&secret, &secret);
    Octets request = said_by(e.connector);
    request[at] ^= 1U;  // somebody on the way
    hear(e.listener, request);
    if (e.listener.state() == GreetingState::kFailed) continue;  // no hello any more
    Octets challenge = said_by(e.listener);
    hear(e.connector, challenge);
    if (e.connector.state() == GreetingState::kFailed) continue;  // its ends are others
    hear(e.listener, said_by(e.connector));
    EXPECT_NE(e.listener.state(), GreetingState::kAsked) << at;
  }
}

}  // namespace
}  // namespace weft::roce
