// A direction of a granted ring whose other side is the input: it writes any word of the shared
// memory between the steps of our calls, and answers for the kernel. No call may touch an octet
// outside the ring and the caller's memory, return more than it was asked for, or count wrongly.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "sockets/grant/grant_reader.h"
#include "sockets/grant/grant_writer.h"

namespace weft::sockets {
namespace {

constexpr std::uint64_t kRingBytes = 64;
constexpr int kStepsMax = 4096;

struct Direction {
  GrantShared shared{};
  GrantOwn own{};
  // Exactly that size, so that the sanitizer sees an octet too many.
  std::unique_ptr<std::uint8_t[]> ring{new std::uint8_t[kRingBytes]{}};
};

// Any word of the shared memory, near the positions in use or far away.
void forge(Direction& d, ByteReader& in) {
  if (in.remaining() < 3) return;
  const std::uint8_t which = in.u8();
  std::uint64_t value = in.u8();
  if ((in.u8() & 1U) != 0) value = ~value << (which & 31U);
  const unsigned word = which % 9U;
  if (word < 5) {
    d.shared.by_writer[word] = value;
  } else if (word == 5) {
    d.shared.by_both[0] = value;
  } else {
    d.shared.by_reader[word - 6] = value;
  }
}

std::int64_t answer_to(std::uint64_t most, ByteReader& in) {
  if (in.remaining() == 0) return kGrantError;
  const std::uint8_t said = in.u8();
  if (said >= 250) return said % 2 == 0 ? kGrantWouldBlock : kGrantError;
  return static_cast<std::int64_t>(std::min<std::uint64_t>(said, most));
}

void send(Direction& d, GrantMemory& memory, std::uint8_t how, ByteReader& in) {
  const std::uint64_t bytes = how % 3 == 2 ? 0 : 1 + how % 100;
  const std::vector<std::uint8_t> source(bytes, how);
  memory.set_source(source.data());
  GrantWriter call(static_cast<GrantCall>(how % 3), bytes, how < 128);
  for (int steps = 0; steps < kStepsMax; ++steps) {
    const GrantNeed need = call.step(memory);
    if (need == GrantNeed::kDone) break;
    if (need == GrantNeed::kStep) continue;
    forge(d, in);
    if (call.done() > bytes || call.to() - call.from() > kRingBytes) std::abort();
    if (need == GrantNeed::kSendRing) {
      call.answer(answer_to(call.to() - call.from(), in));
    } else if (need == GrantNeed::kSend) {
      call.answer(answer_to(call.left(), in));
    } else {
      call.answer(0);
    }
  }
  if (call.result() > static_cast<std::int64_t>(bytes)) std::abort();
}

void receive(Direction& d, GrantMemory& memory, std::uint8_t how, ByteReader& in) {
  const std::uint64_t bytes = 1 + how % 100;
  std::vector<std::uint8_t> target(bytes);
  memory.set_target(target.data());
  GrantReader call(bytes, {(how & 1U) != 0, (how & 2U) != 0, (how & 4U) != 0, (how & 8U) != 0});
  for (int steps = 0; steps < kStepsMax; ++steps) {
    const GrantNeed need = call.step(memory);
    if (need == GrantNeed::kDone) break;
    forge(d, in);
    if (need == GrantNeed::kReceive || need == GrantNeed::kReceiveNow) {
      call.answer(answer_to(bytes, in));
    } else if (need != GrantNeed::kStep) {
      call.answer(answer_to(1, in) > 0 ? 1 : 0);
    }
  }
  if (call.result() > static_cast<std::int64_t>(bytes)) std::abort();
}

void run(ByteReader in) {
  Direction d;
  GrantMemory::reset(d.shared);
  GrantMemory memory(d.shared, d.own, d.ring.get(), kRingBytes);
  while (in.remaining() >= 2) {
    const std::uint8_t op = in.u8();
    const std::uint8_t how = in.u8();
    switch (op % 3) {
      case 0: forge(d, in); break;
      case 1: send(d, memory, how, in); break;
      default: receive(d, memory, how, in); break;
    }
  }
}

}  // namespace
}  // namespace weft::sockets

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::sockets::run(weft::ByteReader({data, size}));
  return 0;
}
