// Sockets over a hostile network: segments of a byte, delays, and connections that are cut.
#include "relay.h"

#include "mover.h"

namespace weft::exs_test {
namespace {

class Network : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    number_ = seed();
    random_.seed(number_);
  }
  std::uint64_t number_ = 0;
  std::mt19937_64 random_;
};

TEST_P(Network, RandomPiecesArriveAsTheyWereSent) {
  SCOPED_TRACE("WEFT_SEED=" + std::to_string(number_));
  const Listener listener(GetParam());
  const Relay relay(listener.port, random_());
  Pair pair(GetParam(), listener, relay.port());
  Mover mover(pair, random_, bytes_to_move(8));
  mover.run();
}

// Posts at both ends until both find that the connection is gone.
class Talkers {
 public:
  explicit Talkers(Pair& pair) : pair_(pair) {}

  void run() {
    for (const int fd : {pair_.left, pair_.right}) {
      for (int i = 0; i < 4; ++i) {
        post(fd, EXS_EVT_SEND);
        post(fd, EXS_EVT_RECV);
      }
    }
    while (finished_ < posted_ && !testing::Test::HasFailure()) {
      take(pair_.left, pair_.left_q);
      take(pair_.right, pair_.right_q);
    }
  }

 private:
  void take(int fd, exs_qhandle_t q) {
    exs_event_t event;
    const timeval soon{0, 1000};
    if (exs_qdequeue(q, &event, 1, &soon) != 1) {
      ASSERT_LT(std::chrono::steady_clock::now(), late_)
          << posted_ - finished_ << " without an end";
      return;
    }
    const auto number = static_cast<std::size_t>(event.ahandle);
    ASSERT_LT(number, ended_.size());
    ASSERT_EQ(++ended_[number], 1);
    ++finished_;
    // The end of a stream is no error: its receives return nothing.
    const bool over = event.error != 0 || exs_evt_length(&event) == 0;
    if (!over) post(fd, event.type);
  }

  void post(int fd, int type) {
    const exs_qhandle_t q = fd == pair_.left ? pair_.left_q : pair_.right_q;
    const exs_ahandle_t ah = tag(static_cast<std::intptr_t>(ended_.size()));
    const std::size_t size = ended_.size() % 3 == 0 ? 50 : out_.size();
    const ssize_t done = type == EXS_EVT_SEND
                             ? exs_send(fd, out_.data(), size, 0, q, ah, out_.mh)
                             : exs_recv(fd, in_.data(), in_.size(), 0, q, ah, in_.mh);
    if (done != 0) return;
    ended_.push_back(0);
    ++posted_;
  }

  Pair& pair_;
  Buffer out_{30'000, 1};
  Buffer in_{40'000, 2};
  std::vector<int> ended_;
  std::size_t posted_ = 0;
  std::size_t finished_ = 0;
  const std::chrono::steady_clock::time_point late_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(kWaitSeconds);
};

TEST_P(Network, AConnectionThatIsCutEndsEveryOperationOnce) {
  SCOPED_TRACE("WEFT_SEED=" + std::to_string(number_));
  for (int round = 0; round < 12 && !HasFailure(); ++round) {
    const Listener listener(GetParam());
    const Relay relay(listener.port, random_(), 2000 + random_() % 400'000);
    Pair pair(GetParam(), listener, relay.port());
    Talkers talkers(pair);
    talkers.run();
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Network, testing::ValuesIn(kWays),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace weft::exs_test
