// Programs change memory that is being sent: a flag that a peer reads again and again, a counter, a
// frame that is drawn anew. What arrives may be any mix of old and new, and that is the program's
// affair. The connection goes on: the CRC of an FPDU is that of the octets that leave.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "support/weft_side.h"

namespace weft::test {
namespace {

constexpr std::size_t kMessageBytes = 1 << 20;
constexpr int kMessages = 60;

// A thread that never stops changing `memory`.
class Changer {
 public:
  explicit Changer(Memory& memory)
      : thread_([this, &memory] {
          for (std::uint8_t value = 0; !stop_.load(); ++value) {
            std::ranges::fill(memory.bytes(), value);
          }
        }) {}
  ~Changer() {
    stop_ = true;
    thread_.join();
  }
  Changer(const Changer&) = delete;
  Changer& operator=(const Changer&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct ChangingMemory : ::testing::TestWithParam<Config> {
  ChangingMemory()
      : pair(GetParam()), ours(pair.host, kMessageBytes), far(pair.host, kMessageBytes) {}
  Pair pair;
  Memory ours, far;
};

TEST_P(ChangingMemory, MayBeWritten) {
  const Changer changer(ours);
  for (int i = 0; i < kMessages; ++i) {
    post(*pair.a.qp, wr_write(1, far.rkey(), far.to()), {ours.sge()});
    post(*pair.a.qp, wr_write(2, far.rkey(), far.to()), {ours.sge()});
    take_success(*pair.a.send_cq, 1);
    take_success(*pair.a.send_cq, 2);
  }
}

TEST_P(ChangingMemory, MayBeSent) {
  const Changer changer(ours);
  for (int i = 0; i < kMessages; ++i) {
    post_recv(*pair.b.qp, 2, {far.sge()});
    post(*pair.a.qp, wr_send(1), {ours.sge()});
    take_success(*pair.a.send_cq, 1);
    take_success(*pair.b.recv_cq, 2);
  }
}

TEST_P(ChangingMemory, MayBeReadByThePeer) {
  const Changer changer(far);
  for (int i = 0; i < kMessages; ++i) {
    post(*pair.a.qp, wr_read(1, far.rkey(), far.to()), {ours.sge()});
    take_success(*pair.a.send_cq, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Framings, ChangingMemory, ::testing::ValuesIn(framings()));

}  // namespace
}  // namespace weft::test
