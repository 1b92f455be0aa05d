// One run of moves.h on this machine, for evaluate.py:
//
//   weft_embedded_bench WAY SIZE COUNT [REORDERED_PERCENT]
//
// WAY: tcp-copy, rdma, rdma-crc, rdma-crc-markers; of weft_embedded_bench_plain tcp-copy-plain.
// Prints what was placed ahead; the instructions are counted by callgrind. Exit status 1: octets
// did not arrive as they should.
#include <lwip/arch.h>
#include <lwip_hooks.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "moves.h"

using namespace weft::bench;

extern "C" unsigned weft_lwip_random() {
  static unsigned state = 7;
  return state = state * 1664525U + 1013904223U;
}
extern "C" void weft_lwip_fault(const char* what) {
  std::fprintf(stderr, "lwIP: %s\n", what);
  std::abort();
}

namespace {

std::uint64_t no_clock() { return 0; }

bool parse(int argc, char** argv, Job& job) {
  if (argc < 4 || argc > 5) return false;
  bool known = false;
  for (const Way way : kWays) {
    if (std::strcmp(argv[1], name_of(way)) != 0) continue;
    job.way = way;
    known = true;
  }
  job.size = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
  job.count = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10));
  if (argc == 5) job.reordered = static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10));
  return known && job.size != 0 && job.size <= kMessageMax && job.count != 0 &&
         job.reordered <= 100;
}

}  // namespace

int main(int argc, char** argv) {
  Job job;
  if (!parse(argc, argv, job)) {
    std::fprintf(
        stderr,
        "usage: weft_embedded_bench WAY SIZE (1 to %u) COUNT (from 1) [REORDERED_PERCENT]\n"
        "ways:",
        kMessageMax);
    for (const Way way : kWays) std::fprintf(stderr, " %s", name_of(way));
    std::fprintf(stderr, "\n");
    return 2;
  }
  start();
  const Outcome outcome = move_messages(job, no_clock);
  std::printf("%s %u %u %u right=%d ahead=%llu placed=%llu\n", name_of(job.way), job.size,
              job.count, job.reordered, outcome.right ? 1 : 0,
              static_cast<unsigned long long>(outcome.segments_ahead),
              static_cast<unsigned long long>(outcome.segments_placed));
  return outcome.right ? 0 : 1;
}
