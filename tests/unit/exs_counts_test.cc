// Counts of a socket over RDMA: posts, credits, packets; and how its sending side ends.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "exs/rdma/packet_rules.h"
#include "exs/rdma/send_queue.h"
#include "exs/rdma/sending_end.h"
#include "exs/rdma/slot_credits.h"

namespace weft::exs {
namespace {

Hello offer(std::uint16_t messages, std::uint32_t ring_bytes) {
  Hello hello;
  hello.messages = messages;
  hello.ring_bytes = ring_bytes;
  return hello;
}

// ---- posts

std::vector<int> retired_by(SendQueue& queue, std::uint64_t serial) {
  std::vector<int> slots;
  queue.retire(static_cast<std::uint32_t>(serial & SendQueue::kSerialBits),
               [&](int slot) { slots.push_back(slot); });
  return slots;
}

TEST(SendQueue, HasRoomForAsManyRequestsAsItIsDeep) {
  SendQueue queue;
  queue.open(4);
  EXPECT_TRUE(queue.has_room(4));
  EXPECT_FALSE(queue.has_room(5));
  (void)queue.post(3, SendQueue::kNoSlot, true);
  EXPECT_TRUE(queue.has_room(1));
  EXPECT_FALSE(queue.has_room(2));
  EXPECT_TRUE(retired_by(queue, queue.last()).empty());
  EXPECT_TRUE(queue.has_room(4));
}

TEST(SendQueue, ReportsBeforeTooManyRequestsAreSilent) {
  SendQueue queue;
  queue.open(100);
  queue.report_every(4);
  EXPECT_FALSE(queue.post(1, 0, false));
  EXPECT_FALSE(queue.post(2, 1, false));
  EXPECT_TRUE(queue.post(1, 2, false));
  EXPECT_FALSE(queue.post(3, 3, false));
  EXPECT_TRUE(queue.post(1, 4, true)) << "because it is wanted";
  EXPECT_FALSE(queue.post(3, 5, false)) << "counting begins again";
}

TEST(SendQueue, AReportEndsThePostsBeforeItAndNoOthers) {
  SendQueue queue;
  queue.open(100);
  (void)queue.post(1, 7, false);
  (void)queue.post(2, SendQueue::kNoSlot, false);
  (void)queue.post(1, 8, true);
  const std::uint64_t reported = queue.last();
  (void)queue.post(1, 9, false);
  EXPECT_FALSE(queue.done(1));
  EXPECT_EQ(retired_by(queue, reported), (std::vector<int>{7, 8}));
  EXPECT_EQ(queue.retired(), reported);
  EXPECT_TRUE(queue.done(reported));
  EXPECT_FALSE(queue.done(queue.last()));
}

// ---- credits

TEST(SlotCredits, ThePeerGivesBackNoMoreThanWasSent) {
  SlotCredits credits;
  for (int i = 0; i < 3; ++i) credits.sent();
  EXPECT_EQ(credits.left(8), 5U);
  EXPECT_FALSE(credits.on_returned(4));
  EXPECT_TRUE(credits.on_returned(3));
  EXPECT_EQ(credits.left(8), 8U);
  EXPECT_FALSE(credits.on_returned(2)) << "a total does not go back";
}

TEST(SlotCredits, IsToldOnce) {
  SlotCredits credits;
  credits.returned(3);
  EXPECT_EQ(credits.untold(), 3U);
  EXPECT_EQ(credits.tell(), 3U);
  EXPECT_EQ(credits.untold(), 0U);
  credits.returned(1);
  EXPECT_EQ(credits.tell(), 4U);
}

TEST(SlotCredits, ThePeerSendsNoMoreThanItHasBeenToldOf) {
  SlotCredits credits;
  EXPECT_TRUE(credits.on_message(2));
  EXPECT_TRUE(credits.on_message(2));
  credits.returned(2);
  EXPECT_EQ(credits.tell(), 2U);
  EXPECT_TRUE(credits.on_message(2));
  credits.returned(1);
  EXPECT_TRUE(credits.on_message(2));
  EXPECT_FALSE(credits.on_message(2)) << "the third buffer is there, and it has not been told";
}

// ---- packets

TEST(PacketSender, StopsAtTheLimitsOfTheReceiver) {
  PacketSender sender(offer(2, 100));
  EXPECT_EQ(sender.send(100), 0U);
  EXPECT_EQ(sender.ring_free(), 0U);
  EXPECT_TRUE(sender.may_send());
  EXPECT_EQ(sender.send(0), 1U);
  EXPECT_FALSE(sender.may_send());
  EXPECT_EQ(sender.on_consumed(1, 60), nullptr);
  EXPECT_TRUE(sender.may_send());
  EXPECT_EQ(sender.ring_free(), 60U);
}

TEST(PacketSender, RefusesTotalsThatCannotBe) {
  PacketSender sender(offer(4, 100));
  (void)sender.send(50);
  EXPECT_STREQ(sender.on_consumed(2, 50), "more messages consumed than sent");
  EXPECT_STREQ(sender.on_consumed(1, 51), "bytes of the ring returned twice");
  EXPECT_EQ(sender.on_consumed(1, 50), nullptr);
  EXPECT_STREQ(sender.on_consumed(1, 49), "bytes of the ring returned twice");
}

TEST(PacketReceiver, TakesMessagesInOrderUpToWhatItOffers) {
  PacketReceiver receiver(offer(2, 100));
  EXPECT_STREQ(receiver.on_message(1, 0, 1), "a message out of order");
  EXPECT_STREQ(receiver.on_message(0, 0, 101), "more bytes than the ring holds");
  EXPECT_EQ(receiver.on_message(0, 0, 100), nullptr);
  EXPECT_STREQ(receiver.on_message(1, 1, 1), "more bytes than the ring holds");
  EXPECT_EQ(receiver.on_message(1, 1, 0), nullptr);
  EXPECT_STREQ(receiver.on_message(2, 2, 0), "a message out of order") << "more than may wait";
  EXPECT_TRUE(receiver.has_come(1));
  EXPECT_FALSE(receiver.has_come(2));
}

TEST(PacketReceiver, KnowsWhereInTheRingTheMessagesLie) {
  PacketReceiver receiver(offer(4, 100));
  ASSERT_EQ(receiver.on_message(0, 0, 70), nullptr);
  receiver.consumed(70);
  EXPECT_EQ(receiver.ring_head(), 70U);
  ASSERT_EQ(receiver.on_message(1, 0, 40), nullptr);
  EXPECT_EQ(receiver.ring_last(40), 70U);
  ASSERT_EQ(receiver.on_message(2, 1, 5), nullptr);
  EXPECT_EQ(receiver.ring_last(5), 10U);
  EXPECT_EQ(receiver.ring_used(), 45U);
}

TEST(PacketReceiver, TellsWhenHalfOfItsMessagesAreFree) {
  PacketReceiver receiver(offer(4, 100));
  for (std::uint64_t seq = 0; seq < 2; ++seq) {
    EXPECT_FALSE(receiver.has_to_tell());
    ASSERT_EQ(receiver.on_message(seq, 0, 0), nullptr);
    receiver.consumed(0);
  }
  EXPECT_TRUE(receiver.has_to_tell());
  EXPECT_EQ(receiver.tell(), 2U);
  EXPECT_FALSE(receiver.has_to_tell());
}

// ---- the end

// One brought there by legal events.
SendingEnd end_in(SendingState state) {
  SendingEnd end;
  for (const auto event : {SendingEvent::kStopped, SendingEvent::kFinishQueued,
                           SendingEvent::kFinishedCame, SendingEvent::kDisconnects}) {
    if (end.state() == state) break;
    end.advance(event);
  }
  EXPECT_EQ(end.state(), state);
  return end;
}

TEST(SendingEnd, EveryStateWithEveryEvent) {
  std::ostringstream out;
  for (const auto state : {SendingState::kOpen, SendingState::kStopping, SendingState::kTold,
                           SendingState::kAcknowledged, SendingState::kDisconnecting}) {
    for (const auto event : {SendingEvent::kStopped, SendingEvent::kFinishQueued,
                             SendingEvent::kFinishedCame, SendingEvent::kDisconnects}) {
      SendingEnd end = end_in(state);
      if (end.on(event)) {
        out << describe(state) << " + " << describe(event) << " = " << describe(end.state())
            << "\n";
      } else {
        EXPECT_EQ(end.state(), state);
      }
    }
  }
  EXPECT_EQ(out.str(), R"(Open + stopped = Stopping
Stopping + stopped = Stopping
Stopping + end queued = Told
Told + stopped = Told
Told + answer came = Acknowledged
Acknowledged + stopped = Acknowledged
Acknowledged + disconnects = Disconnecting
Disconnecting + stopped = Disconnecting
)");
}

}  // namespace
}  // namespace weft::exs
