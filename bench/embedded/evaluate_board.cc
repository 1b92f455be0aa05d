// The runs of moves.h on a board, one line on the console for each, for evaluate.py. Under QEMU's
// -icount the board's clock counts instructions: one to a nanosecond.
#include "lwip/board/board.h"
#include "moves.h"

using namespace weft::bench;

namespace {

constexpr std::uint32_t kSizes[] = {50'000, 500'000, 1'400'000};
// Messages; the fewer, the larger they are.
constexpr std::uint32_t kOctets[] = {1'400'000, 2'800'000, 5'600'000};

void say(const char* text) {
  while (*text != '\0') board_putc(*text++);
}
void say_number(std::uint64_t value) {
  char digits[21];
  char* at = digits + sizeof digits - 1;
  *at = '\0';
  do {
    *--at = static_cast<char>('0' + value % 10);
  } while ((value /= 10) != 0);
  say(" ");
  say(at);
}

void report(const Job& job) {
  const Outcome outcome = move_messages(job, board_now_ns);
  say("run ");
  say(name_of(job.way));
  say_number(job.size);
  say_number(job.count);
  say_number(job.reordered);
  say(outcome.right ? " right" : " WRONG");
  say_number(outcome.segments_ahead);
  say_number(outcome.segments_placed);
  say_number(outcome.ended - outcome.begun);
  say("\n");
}

}  // namespace

int main() {
  start();
  for (const std::uint32_t octets : kOctets) {
    for (const std::uint32_t size : kSizes) {
      for (const Way way : kWays) report({way, size, octets / size, 0});
    }
  }
  for (const Way way : kWays) report({way, kMessageMax, 2, 10});
  say("weft-bench: done\n");
  return 0;
}
