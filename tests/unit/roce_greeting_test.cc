// The exchange of hellos, in both roles and in any pieces.
#include "roce/greeting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "roce/qp_number.h"

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

}  // namespace
}  // namespace weft::roce
