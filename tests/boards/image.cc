// The image that runs on the board: one agent that keeps connecting to the workstation, and one
// that waits to be connected to.
#include <new>

#include "agent.h"
#include "lwip/board/board.h"
#include "lwip/board/netif.h"

extern "C" unsigned weft_lwip_random(void);

namespace {

using namespace weft;

constexpr std::size_t kMemoryBytes = WEFT_BOARD_MEMORY;
constexpr std::uint64_t kRetryNs = 100'000'000;
constexpr unsigned kFramesPerTurn = 4;

std::uint8_t memory[kMemoryBytes];
constexpr std::uint32_t kRegions = 1;
alignas(kArenaAlignment) std::byte domain_memory[rddp::Domain::memory_needed(kRegions)];
// Made in main(), as they need the domain; not on the stack, so that the linker counts them.
struct alignas(boards::Agent) {
  std::byte octets[sizeof(boards::Agent)];
} weft_agents[2];
alignas(8) netif interface;

Instant clock_now() { return Instant{static_cast<std::int64_t>(board_now_ns())}; }
std::uint32_t random_bits() { return weft_lwip_random(); }

void say(const char* text) {
  while (*text != '\0') board_putc(*text++);
}

lwip::Connection* accept(void* agent) { return static_cast<boards::Agent*>(agent)->prepare(); }

void start_network() {
  ip4_addr_t address;
  ip4_addr_t mask;
  IP4_ADDR(&address, 10, 77, 0, 2);
  IP4_ADDR(&mask, 255, 255, 255, 0);
  board_net_start(&interface, &address, &mask);
}

// The main loop. Each turn does a bounded amount of work, so a watchdog can be fed here.
void run(boards::Agent& caller, boards::Agent& callee) {
  ip_addr_t peer;
  IP_ADDR4(&peer, 10, 77, 0, 1);
  std::uint64_t next_try_ns = 0;
  while (!caller.halt_asked() && !callee.halt_asked()) {
    board_net_poll(&interface, kFramesPerTurn);
    boards::Agent::note_dropped(board_net_dropped());
    caller.turn();
    callee.turn();
    if (!caller.idle()) {
      next_try_ns = board_now_ns() + kRetryNs;
    } else if (board_now_ns() >= next_try_ns) {
      next_try_ns = board_now_ns() + kRetryNs;
      (void)caller.connect(peer, boards::kPort);
    }
  }
}

}  // namespace

int main() {
  start_network();
  rddp::Domain domain(random_bits, kRegions, domain_memory);
  const auto stag = domain.add(memory, sizeof memory, 0,
                               Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic);
  if (!stag) {
    say("weft-board: no memory for the STag table\n");
    return 1;
  }
  boards::AgentConfig config;
  config.memory = memory;
  config.clock = clock_now;
  auto& caller = *new (weft_agents[0].octets) boards::Agent(config, domain, *stag);
  auto& callee = *new (weft_agents[1].octets) boards::Agent(config, domain, *stag);
  lwip::Listener listener;
  if (!listener.listen(IP4_ADDR_ANY, boards::kPort, accept, &callee)) {
    say("weft-board: cannot listen\n");
    return 1;
  }
  say("weft-board: ready\n");
  run(caller, callee);
  say("weft-board: halted\n");
  return 0;
}
