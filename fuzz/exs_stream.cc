// The rules of SOCK_STREAM against peers that send what they like. First byte: which end. Then
// actions of two octets each: of the peer, which may break every rule, and of the socket, which
// keeps them. A wrong one has to be refused before anything is changed: an assertion that fails, a
// step outside the advert or the ring, or more bytes handed over than came is a find.

#include <algorithm>
#include <vector>

#include "exs/core/exs_messages.h"
#include "exs/rdma/stream_rules.h"
#include "wire_fuzzing.h"

namespace {

using namespace weft;
using fuzzing::check;

constexpr std::uint64_t kRing = 64;

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool more() const { return at_ + 1 < bytes_.size(); }
  std::uint8_t next() { return at_ < bytes_.size() ? bytes_[at_++] : 0; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

void fuzz_sender(Input& input) {
  exs::StreamSender sender(kRing);
  std::vector<std::uint64_t> adverts;  // lengths of those accepted
  std::uint64_t consumed = 0;
  while (input.more()) {
    const std::uint8_t what = input.next();
    const std::uint8_t value = input.next();
    switch (what % 4) {
      case 0: {
        const auto verdict =
            sender.on_advert(what / 16, sender.seq() + (value & 1U) * 7, value / 2, value % 3 == 0);
        if (verdict == exs::StreamSender::Verdict::kViolation) return;
        if (verdict == exs::StreamSender::Verdict::kAccepted) adverts.push_back(value / 2);
        break;
      }
      case 1:
        if (!sender.on_close_chain(what / 16)) return;
        break;
      case 2:
        consumed += value;
        if (!sender.on_ring_consumed(consumed)) return;
        check(sender.ring_free() <= kRing);
        break;
      default: {
        const auto step = sender.next(1U + value);
        if (step.way == exs::StreamSender::Way::kWait) break;
        check(step.length != 0 && step.length <= 1U + value);
        if (step.way == exs::StreamSender::Way::kDirect) {
          check(step.advert < adverts.size() && step.at + step.length <= adverts[step.advert]);
        } else {
          check(step.at + step.length <= kRing);
        }
        sender.took(step);
        check(sender.ring_free() <= kRing);
      }
    }
  }
}

void fuzz_receiver(Input& input) {
  exs::StreamReceiver receiver(kRing);
  std::uint64_t came = 0;
  std::uint64_t taken = 0;
  while (input.more()) {
    const std::uint8_t what = input.next();
    const std::uint8_t value = input.next();
    const std::uint64_t seq = receiver.seq() + (what >= 128 ? value : 0);
    switch (what % 6) {
      case 0: {
        const std::size_t open = receiver.open();
        const auto placed = receiver.on_direct(seq, value);
        if (!placed.ok) return;
        check(open != 0 && placed.length == value);
        came += value;
        taken += value;
        break;
      }
      case 1:
        if (!receiver.on_ring(seq, value)) return;
        check(receiver.open() == 0 && receiver.ring_used() <= kRing);
        came += value;
        break;
      case 2:
        if (!receiver.on_chain_closed(value % 4)) return;
        check(receiver.open() == 0);
        break;
      case 3:
        if (receiver.may_advertise() && receiver.open() < exs::kAdvertsMax) {
          receiver.advertise(1U + value, what >= 128);
        }
        break;
      case 4: {
        const std::uint64_t now = std::min<std::uint64_t>(value, receiver.ring_used());
        receiver.consumed(now);
        taken += now;
        break;
      }
      default:
        if (receiver.open() != 0 && !receiver.closing()) receiver.close_chain();
        break;
    }
    check(receiver.seq() == came && taken + receiver.ring_used() == came);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  Input input(std::span(data, size_bytes));
  if (input.next() % 2 == 0) {
    fuzz_sender(input);
  } else {
    fuzz_receiver(input);
  }
  return 0;
}
