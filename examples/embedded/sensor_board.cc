// A sensor on a board without an operating system. It writes each block of samples into the next
// slot of a ring in the memory of a server, by RDMA Write, and rings with Immediate Data. The
// server is `rddp_sensor server 4792` (rddp_sensor.c, in this folder) at 10.77.0.1.
//
//   scripts/build-board.sh mps2-an385 build/board-mps2-an385 weft_sensor_image
//
// All memory is fixed when the image is linked. docs/embedded.md says how to start it under QEMU.
#include <new>

#include "base/bytes.h"
#include "lwip/board/board.h"
#include "lwip/board/netif.h"
#include "lwip/lwip_connection.h"
#include "rddp/endpoint.h"

extern "C" unsigned weft_lwip_random(void);

namespace {

using namespace weft;

constexpr std::uint16_t kPort = 4792;
constexpr std::uint32_t kSlots = 8, kSamples = 256;  // as the server has them
constexpr std::uint32_t kBlocks = 100;
constexpr std::size_t kRingMessage = 12;  // STag and tagged offset, in network order

constexpr rddp::EndpointConfig kConfig{.send_depth = 2,
                                       .recv_depth = kSlots + 1,
                                       .inline_bytes = 0,
                                       .sges = 1,
                                       .batches = 1,
                                       .reads = 1,
                                       .private_data_kept = 0};
alignas(kArenaAlignment) std::byte endpoint_memory[rddp::Endpoint::memory_needed(kConfig)];
alignas(kArenaAlignment) std::byte domain_memory[rddp::Domain::memory_needed(0)];

Instant clock_now() { return Instant{static_cast<std::int64_t>(board_now_ns())}; }
std::uint32_t random_bits() { return weft_lwip_random(); }
void say(const char* text) {
  while (*text != '\0') board_putc(*text++);
}

class Sensor {
 public:
  explicit Sensor(rddp::Domain& domain)
      : endpoint_(kConfig, domain, clock_now, endpoint_memory), connection_(endpoint_, {}) {}

  // False: no memory, or lwIP has none.
  [[nodiscard]] bool connect(const ip_addr_t& server) {
    proto::StartupOffer offer;
    offer.peer_to_peer = true;  // the server speaks first
    offer.ird = offer.ord = 1;
    // The first message says where the ring is; each one behind it frees a slot.
    if (!endpoint_.good() || !endpoint_.post_recv(0, ring_, sizeof ring_)) return false;
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      if (!endpoint_.post_recv(1, nullptr, 0)) return false;
    }
    return connection_.connect(nullptr, server, kPort, offer).has_value();
  }

  // One turn of the main loop. False: all is over.
  [[nodiscard]] bool turn() {
    connection_.time(clock_now());
    while (const auto done = endpoint_.poll()) on_completion(*done);
    if (free_ != 0 && !writing_ && next_ < kBlocks) write_block();
    // Closing earlier would meet the server's last messages, and cost it the connection.
    if (next_ == kBlocks && free_ == kSlots && !closing_) {
      closing_ = true;
      endpoint_.close();
      connection_.progress();
    }
    return !connection_.closed();
  }
  [[nodiscard]] bool sent_all() const { return closing_; }

 private:
  void on_completion(const rddp::EndpointCompletion& done) {
    if (done.status != WcStatus::kSuccess) return;  // the connection ends
    if (!done.receive) {
      writing_ = false;
    } else if (done.wr_id == 0) {
      free_ = kSlots;
    } else {
      ++free_;
      (void)endpoint_.post_recv(1, nullptr, 0);
    }
  }

  // The instrument's measurements: a saw-tooth here. Two octets each, in network order.
  void measure() {
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      store_be16(block_ + 2 * i, static_cast<std::uint16_t>((next_ * kSamples + i) % 1000));
    }
  }

  void write_block() {
    measure();
    const Sge sge{reinterpret_cast<std::uintptr_t>(block_), sizeof block_, 0};
    SendWr wr;
    wr.op = SendOp::kWriteImm;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&sge, 1};
    wr.rkey = load_be32(ring_);
    wr.remote_addr = load_be64(ring_ + 4) + next_ % kSlots * sizeof block_;
    wr.imm_data = next_;
    if (!endpoint_.post(wr)) return;
    writing_ = true;  // block_ belongs to the endpoint until then
    --free_;
    ++next_;
    connection_.progress();
  }

  rddp::Endpoint endpoint_;
  lwip::Connection connection_;
  std::uint8_t ring_[kRingMessage];
  std::uint8_t block_[2 * kSamples];
  std::uint32_t next_ = 0;  // block
  std::uint32_t free_ = 0;  // slots that the server has read
  bool writing_ = false;
  bool closing_ = false;
};

netif interface;
// Made in main(), as it needs the domain; not on the stack, so that the linker counts it.
struct alignas(Sensor) {
  std::byte octets[sizeof(Sensor)];
} sensor_room;

}  // namespace

int main() {
  ip4_addr_t address, mask;
  ip_addr_t server;
  IP4_ADDR(&address, 10, 77, 0, 2);
  IP4_ADDR(&mask, 255, 255, 255, 0);
  IP_ADDR4(&server, 10, 77, 0, 1);
  board_net_start(&interface, &address, &mask);
  rddp::Domain domain(random_bits, 0, domain_memory);
  auto& sensor = *new (sensor_room.octets) Sensor(domain);
  if (!domain.good() || !sensor.connect(server)) {
    say("weft-board: the sensor has no memory\n");
    return 1;
  }
  say("weft-board: ready\n");
  while (sensor.turn()) board_net_poll(&interface, 4);
  say(sensor.sent_all() ? "sensor: all blocks sent\n" : "sensor: the connection was lost\n");
  return 0;
}
