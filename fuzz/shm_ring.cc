// A ring whose peer is the input: it writes any word of the control page and any octet of the
// buffers between our sends and receives. Nothing may be read or written outside the buffers that
// we name, and no call may take long.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/bytes.h"
#include "shm/ring.h"

namespace weft::shm {
namespace {

// Made once: the input finds the ring as the input before it left it, broken or not, so it begins
// with fresh positions of its own.
struct Both {
  RingMemory memory;
  std::array<int, 2> bell{};

  static std::unique_ptr<Both> make() {
    auto memory = RingMemory::create(kRingBytesMin);
    if (!memory) std::abort();
    std::unique_ptr<Both> both(new Both{std::move(*memory), {}});
    return both;
  }
};

std::unique_ptr<Ring> victim_of(const Both& both) {
  auto memory = RingMemory::adopt(os::Fd(dup(both.memory.fd())), kRingBytesMin);
  std::array<int, 2> bell;
  if (!memory || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, bell.data()) != 0) abort();
  close(bell[1]);
  return std::make_unique<Ring>(std::move(*memory), os::Fd(bell[0]), 1);
}

void write_word(const Both& both, std::uint8_t which, std::uint32_t value) {
  RingSide& side = both.memory.side(which & 1U);
  switch ((which >> 1U) & 3U) {
    case 0: side.head = value; break;
    case 1: side.tail = value; break;
    case 2: side.waiting = value; break;
    default: side.closed = value; break;
  }
}

void run(ByteReader in) {
  static const std::unique_ptr<Both> both = Both::make();
  for (std::uint8_t which = 0; which < 8; ++which) write_word(*both, which, 0);
  const std::unique_ptr<Ring> ring = victim_of(*both);
  constexpr std::size_t kStep = 6;
  while (in.remaining() >= kStep) {
    const std::uint8_t op = in.u8();
    const std::uint8_t which = in.u8();
    const std::uint32_t value = in.be32();
    // On the heap and of just that size: the sanitizer sees an octet too many.
    std::vector<std::uint8_t> bytes(value % (2 * kRingBytesMin));
    const std::array<Slice, 2> slices{
        {{bytes.data(), bytes.size() / 3},
         {bytes.data() + bytes.size() / 3, bytes.size() - bytes.size() / 3}}};
    switch (op % 8) {
      case 0: write_word(*both, which, value); break;
      case 1:
        write_word(*both, which, (which & 1U) != 0 ? 1U << (value % 32) : value % kRingBytesMin);
        break;
      case 2: static_cast<void>(ring->send(slices)); break;
      case 3: static_cast<void>(ring->receive(slices)); break;
      case 4: both->memory.buffer(which & 1U)[value % kRingBytesMin] = op; break;
      case 5: {
        const std::span<std::uint8_t> room = ring->room();
        const std::size_t n = std::min(room.size(), bytes.size());
        std::copy_n(bytes.begin(), n, room.begin());
        if (n != 0) ring->commit(n);
        break;
      }
      case 6: {
        const std::span<const std::uint8_t> seen = ring->view();
        const std::size_t n = std::min(seen.size(), bytes.size());
        std::copy_n(seen.begin(), n, bytes.begin());
        if (n != 0) ring->consume(n);
        break;
      }
      default:
        static_cast<void>(ring->prepare_sleep((which & 1U) != 0, (which & 2U) != 0));
        static_cast<void>(ring->also_wait_for_room());
        static_cast<void>(ring->cancel_sleep());
        if (ring->unread_by_peer() > kRingBytesMin) std::abort();
        break;
    }
  }
}

}  // namespace
}  // namespace weft::shm

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::shm::run(weft::ByteReader({data, size}));
  return 0;
}
