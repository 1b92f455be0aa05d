// Measures which thread makes progress: waiting, sleeping, threads, many connections. A plain verbs
// program that knows nothing of Weft, so the same binary runs over several builds of the drop-in
// libraries:
//
//   LD_LIBRARY_PATH=build/release/lib/weft WEFT_PATH=tcp weft_progress_bench [options]
//
//   --list          the rows, and what each measures
//   --only A,B      these rows, or those that begin so
//   --seconds S     length of each timed phase (0.5)
//   --one-core      both processes on one CPU (otherwise one each, where there are two)
//   --no-pin        no thread is pinned
//   --limit S       without a message for so long a row has failed (10)
//   --links N       no row with more connections
//   --hold          leave a row that stands still as it is, for a debugger
//   --json          one object on stdout in place of the table
//
// compare.py runs it over an old and a new build in turns. Each row has two processes of its own.
// Each message bears a number, which the receiver checks. Exit status 1 if a message was wrong, or
// if none came for the limit: then it says who waited for what.
//
//   write_lat      an 8-byte RDMA Write each way, awaited in memory as ib_write_lat does
//   two_writes     two Writes back to back, then memory; hardly ever a poll
//   send_lat       a 64-byte Send each way, polled
//   send_sleep     the same, asleep in ibv_get_cq_event
//   send_epoll     the same, asleep in the program's own epoll over a nonblocking channel: arm,
//   poll
//                  once more, sleep
//   readers        64 connections with a queue, a channel and a sleeping thread each, which one
//                  poller wakes in turn. answer_: from the post to the answer
//   threads_lat    one thread, then two, each with a queue and a connection to itself, ping-pong of
//                  64 bytes; scaling: what two do, of what one does (2 is best)
//   threads_rate   the same, 128 Sends outstanding, one way
//   alone          a sleeper that ping-pongs with a sleeping peer on its CPU
//   beside         the same, and another thread polls a queue of its own at full rate
//   beside_shared  the same, both queues on one channel
//   writes/N       64-byte Writes on N connections of one queue in turn, 1 and then 128
//                  outstanding in all, until the peer has seen the last; it does not poll
//   sends/N        the same by Sends, each of which the peer answers
//   small_read     a Read of 8 bytes alone, and beside eight Reads of 1 MiB on another connection
//   setup          connect, one message and its answer, disconnect
//
// Latencies of ping-pongs are half round trips; those of readers, small_read and setup are whole.
// cpu_us is the CPU time of both processes for a message (for a set-up). max_us is the worst of
// all.
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <vector>

#include "node.h"
#include "run.h"
#include "workloads.h"

namespace progress {

namespace {

template <Wait kWait>
constexpr Workload send_row(const char* row, const char* about) {
  return {row, about, send_latency_client, send_latency_server, static_cast<unsigned>(kWait), 1};
}

constexpr Workload writes_row(const char* row, unsigned links) {
  return {row, "64 B Writes, one queue", many_writes_client, many_writes_server, links, links};
}

constexpr Workload sends_row(const char* row, unsigned links) {
  return {row,  "64 B Sends and answers, one queue", many_sends_client, many_sends_server, links,
          links};
}

constexpr Workload kWorkloads[] = {
    {"write_lat", "8 B Writes awaited in memory", write_latency_client, write_latency_server, 1, 1},
    {"two_writes", "two Writes, then memory", write_latency_client, write_latency_server, 2, 1},
    send_row<Wait::kPoll>("send_lat", "64 B Sends, polled"),
    send_row<Wait::kNotify>("send_sleep", "64 B Sends, ibv_get_cq_event"),
    send_row<Wait::kEpoll>("send_epoll", "64 B Sends, arm, poll, own epoll"),
    {"readers", "64 sleeping readers", readers_client, readers_server, 64, 64},
    {"threads_lat", "two threads, ping-pong", threads_client, threads_server, 1, 4},
    {"threads_rate", "two threads, 128 outstanding", threads_client, threads_server, 128, 4},
    {"alone", "a sleeper", beside_client, beside_server, kAlone, 3},
    {"beside", "a poller beside a sleeper", beside_client, beside_server, kOwnChannels, 3},
    {"beside_shared", "both on one channel", beside_client, beside_server, kOneChannel, 3},
    writes_row("writes/1", 1),
    writes_row("writes/32", 32),
    writes_row("writes/64", 64),
    writes_row("writes/256", 256),
    writes_row("writes/1000", 1000),
    sends_row("sends/1", 1),
    sends_row("sends/32", 32),
    sends_row("sends/64", 64),
    sends_row("sends/256", 256),
    sends_row("sends/1000", 1000),
    {"small_read", "8 B Read beside 1 MiB Reads", small_read_client, small_read_server, 0, 2},
    {"setup", "connect, a message, disconnect", setup_client, setup_server, 0, 1},
};

struct Command {
  Options options;
  std::vector<std::string> only;
  bool list = false;
  bool json = false;
};

[[noreturn]] void usage() {
  fprintf(stderr,
          "usage: weft_progress_bench [--list] [--only ROWS] [--seconds S] [--one-core] "
          "[--no-pin] [--limit S] [--links N] [--hold] [--json]\n");
  exit(2);
}

double number(const char* text, double low, double high) {
  char* end = nullptr;
  const double value = strtod(text, &end);
  if (end == text || *end != 0 || !(value >= low && value <= high)) {
    fprintf(stderr, "weft_progress_bench: '%s' is not a number from %g to %g\n", text, low, high);
    exit(2);
  }
  return value;
}

bool chosen(const Command& command, const Workload& workload) {
  if (workload.links > command.options.links_max) return false;
  const std::string row = workload.row;
  return command.only.empty() || std::ranges::any_of(command.only, [&](const std::string& word) {
           return row == word || row.starts_with(word + "/");
         });
}

Command parse(int argc, char** argv) {
  enum { kList = 1, kOnly, kSeconds, kOneCore, kNoPin, kLimit, kLinks, kHold, kJson };
  static const option kOptions[] = {{"list", no_argument, nullptr, kList},
                                    {"only", required_argument, nullptr, kOnly},
                                    {"seconds", required_argument, nullptr, kSeconds},
                                    {"one-core", no_argument, nullptr, kOneCore},
                                    {"no-pin", no_argument, nullptr, kNoPin},
                                    {"limit", required_argument, nullptr, kLimit},
                                    {"links", required_argument, nullptr, kLinks},
                                    {"hold", no_argument, nullptr, kHold},
                                    {"json", no_argument, nullptr, kJson},
                                    {nullptr, 0, nullptr, 0}};
  Command command;
  for (int found = 0; (found = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (found) {
      case kList: command.list = true; break;
      case kOnly:
        for (char* word = strtok(optarg, ","); word != nullptr; word = strtok(nullptr, ",")) {
          command.only.emplace_back(word);
        }
        break;
      case kSeconds: command.options.seconds = number(optarg, 0.001, 3600); break;
      case kOneCore: command.options.one_core = true; break;
      case kNoPin: command.options.pin = false; break;
      case kLimit: command.options.limit_s = static_cast<unsigned>(number(optarg, 1, 3600)); break;
      case kLinks:
        command.options.links_max = static_cast<unsigned>(number(optarg, 1, 1000));
        break;
      case kHold: command.options.hold = true; break;
      case kJson: command.json = true; break;
      default: usage();
    }
  }
  if (optind != argc) usage();
  return command;
}

void show(const Workload& workload, const Shared& shared, bool json, bool first) {
  if (json) printf("%s\"%s\": {", first ? "" : ",\n", workload.row);
  for (unsigned i = 0; i < shared.metric_count; ++i) {
    const Metric& metric = shared.metrics[i];
    if (json) {
      printf("%s\"%s\": %.6g", i == 0 ? "" : ", ", metric.name, metric.value);
    } else {
      printf("%-14s %-18s %12.3f\n", workload.row, metric.name, metric.value);
    }
  }
  if (json) printf("}");
  fflush(stdout);
}

void raise_descriptor_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int run_all(const Command& command) {
  void* page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) die("no memory");
  Shared& shared = *static_cast<Shared*>(page);
  bool good = true;
  bool any = false;
  if (command.json) printf("{");
  for (const Workload& workload : kWorkloads) {
    if (!chosen(command, workload)) continue;
    if (command.list) {
      printf("%-14s %s\n", workload.row, workload.about);
    } else if (supervise(workload, command.options, shared)) {
      show(workload, shared, command.json, !any);
    } else {
      good = false;
      continue;
    }
    any = true;
  }
  if (command.json) printf("}\n");
  if (!any && good) {
    fprintf(stderr, "weft_progress_bench: no such row; --list names them\n");
    return 2;
  }
  return good ? 0 : 1;
}

}  // namespace

}  // namespace progress

int main(int argc, char** argv) {
  progress::raise_descriptor_limit();
  return progress::run_all(progress::parse(argc, argv));
}
