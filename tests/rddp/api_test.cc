// The API of RFC 4296 by itself: what its calls say of failures, how long they wait, and how many
// connections there may be.
#include <chrono>

#include "fake_network.h"

namespace weft::testing {
namespace {

using Api = FakeDevice;

TEST_F(Api, OptionsOutOfRangeAreInvalidAndMissingMemoryIsNot) {
  options.send_depth = 0;
  EXPECT_EQ(rddp::make_device(std::make_unique<FakeNetwork>(world), &options).error(),
            Error::kInvalidArgument);
  options.send_depth = 1;
  options.backlog = 0;
  EXPECT_EQ(rddp::make_device(std::make_unique<FakeNetwork>(world), &options).error(),
            Error::kInvalidArgument);
  options.backlog = 1;
  EXPECT_EQ(rddp::make_device(nullptr, &options).error(), Error::kNoMemory);
}

struct Reason {
  Error error;
  int status;
};
class ApiFailures : public FakeDevice, public ::testing::WithParamInterface<Reason> {};

TEST_P(ApiFailures, OfConnectingAreToldApart) {
  open();
  world.refuse_with = rddp::Link::Failure{GetParam().error, 77};
  rddp_socket* socket = nullptr;
  ASSERT_EQ(rddp_create(device, RDDP_RDMA, &socket), RDDP_OK);
  errno = 0;
  EXPECT_EQ(rddp_connect(socket, "host", 1, nullptr, 0), GetParam().status);
  EXPECT_EQ(errno, 77);
  rddp_close(socket);
}
INSTANTIATE_TEST_SUITE_P(Reasons, ApiFailures,
                         ::testing::Values(Reason{Error::kRefused, RDDP_REFUSED},
                                           Reason{Error::kUnreachable, RDDP_UNREACHABLE},
                                           Reason{Error::kTimedOut, RDDP_TIMED_OUT},
                                           Reason{Error::kNoMemory, RDDP_NO_MEMORY},
                                           Reason{Error::kSystem, RDDP_SYSTEM}));

// --- closing ---

TEST_F(Api, ClosingWhatWasNeverAnsweredDoesNotWait) {
  open();
  rddp_socket* socket = nullptr;
  ASSERT_EQ(rddp_create(device, RDDP_RDMA, &socket), RDDP_OK);
  rddp_set_timeout(socket, 20);
  EXPECT_EQ(rddp_connect(socket, "host", 1, nullptr, 0), RDDP_TIMED_OUT);
  const int waits = world.waits;
  rddp_close(socket);
  EXPECT_EQ(world.waits, waits);
}

TEST_F(Api, ClosingARequestThatTheProgramDidNotAnswerDoesNotWait) {
  open();
  rddp_listener* listener = listen();
  ask(*knock());
  rddp_socket* socket = nullptr;
  ASSERT_EQ(rddp_accept(listener, 0, &socket), RDDP_OK);
  const int waits = world.waits;
  rddp_close(socket);
  EXPECT_EQ(world.waits, waits);
  rddp_close_listener(listener);
}

TEST_F(Api, AnOrderlyCloseGivesAPeerThatDoesNotCloseFiveSeconds) {
  open();
  rddp_listener* listener = listen();
  rddp_socket* socket = established(listener);
  const Instant begun = world.now;
  rddp_close(socket);
  EXPECT_EQ(world.now - begun, std::chrono::seconds(5));
  rddp_close_listener(listener);
}

// --- how many ---

TEST_F(Api, SilentPeersTakeNoPlaceFromOneThatSpeaks) {
  options.sockets = 1;
  options.backlog = 2;
  open();
  rddp_listener* listener = listen();
  for (int i = 0; i < 10; ++i) EXPECT_NE(knock(), nullptr) << i;
  ask(*knock());
  for (int i = 0; i < 10; ++i) EXPECT_NE(knock(), nullptr) << i;
  rddp_socket* socket = nullptr;
  ASSERT_EQ(rddp_accept(listener, 0, &socket), RDDP_OK);
  EXPECT_EQ(rddp_answer(socket, 1, nullptr, 0), RDDP_OK);
  rddp_abort(socket);
  rddp_close_listener(listener);
}

TEST_F(Api, ARequestWaitsUntilTheProgramMayHoldOneMore) {
  options.sockets = 1;
  options.backlog = 2;
  open();
  rddp_listener* listener = listen();
  rddp_socket* first = established(listener);
  ask(*knock());
  ask(*knock());
  EXPECT_EQ(knock(), nullptr) << "two requests wait, and none of them is silent";
  rddp_socket* second = nullptr;
  EXPECT_EQ(rddp_accept(listener, 0, &second), RDDP_NO_MEMORY);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(rddp_create(device, RDDP_RDMA, &second), RDDP_NO_MEMORY);
  rddp_abort(first);
  EXPECT_EQ(rddp_accept(listener, 0, &second), RDDP_OK);
  rddp_abort(second);
  rddp_close_listener(listener);
}

// --- memory under way ---

TEST_F(Api, AMessageThatIsUnderWayIsNotSaidToHaveTimedOut) {
  options.send_depth = 1;
  open();
  rddp_listener* listener = listen();
  rddp_socket* socket = established(listener);
  rddp_set_timeout(socket, 30);
  world.stuck = true;
  EXPECT_EQ(rdma_send(socket, {"one", 3}), RDDP_PENDING);
  EXPECT_EQ(rddp_pending(socket), 1U);
  EXPECT_EQ(rdma_send(socket, {"two", 3}), RDDP_TIMED_OUT) << "there was no room for it";
  EXPECT_EQ(rddp_pending(socket), 1U);
  EXPECT_EQ(rddp_flush(socket), RDDP_TIMED_OUT);
  world.stuck = false;
  // The responder of MPA may send once it has waited for the peer's first FPDU.
  EXPECT_EQ(rddp_poll(device, 100), RDDP_OK);
  EXPECT_EQ(rddp_poll(device, 0), RDDP_OK);
  EXPECT_EQ(rddp_pending(socket), 0U) << "polling is enough to see it";
  EXPECT_EQ(rddp_flush(socket), RDDP_OK);
  rddp_abort(socket);
  rddp_close_listener(listener);
}

}  // namespace
}  // namespace weft::testing
