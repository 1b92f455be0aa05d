// exs-perf: what extended sockets cost. Bandwidth, latency and CPU time of every kind of transfer,
// and of plain TCP through the same calls.
//
//   exs-perf --self                              both ends on this machine, all modes
//   exs-perf --listen 7475                       on one machine, and on another:
//   exs-perf --mode stream,tcp --size 64,1048576 HOST:7475
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "exs-perf/exs_perf_options.h"
#include "exs-perf/workload.h"
#include "weft/common/message.h"

namespace {

using namespace exs_perf;

void run_client(const Options& o, const std::string& host, const std::string& port) {
  Plan plan;
  plan.depth = static_cast<std::uint32_t>(o.depth);
  plan.milliseconds = static_cast<std::uint32_t>(o.seconds * 1000);
  plan.wait = static_cast<std::uint32_t>(o.wait);
  std::string rows;
  Client client(host, port);
  if (!o.json) {
    std::printf("%-11s %9s %12s %12s %14s %8s\n", "mode", "bytes", "latency_us", "MB/s",
                "cpu_s_per_gb", "direct");
  }
  for (const Mode mode : o.modes) {
    for (const std::uint32_t size : o.sizes) {
      if (!fits(mode, size)) continue;
      plan.mode = static_cast<std::uint32_t>(mode);
      plan.size = size;
      plan.buffers = o.buffers != 0 ? static_cast<std::uint32_t>(std::min(o.buffers, o.depth))
                                    : usual_buffers(size, plan.depth);
      const Result result = client.measure(plan, o.rounds, o.latency, o.bandwidth);
      if (o.json) {
        char row[256];
        std::snprintf(row, sizeof row,
                      "%s{\"mode\":\"%s\",\"bytes\":%u,\"latency_us\":%.3f,\"mb_per_s\":%.4f,"
                      "\"cpu_s_per_gb\":%.3f,\"direct_percent\":%.1f}",
                      rows.empty() ? "" : ",", name_of(mode), size, result.latency_us,
                      result.mb_per_s, result.cpu_s_per_gb, result.direct_percent);
        rows += row;
      } else {
        std::printf("%-11s %9u %12.2f %12.1f %14.3f %8.1f\n", name_of(mode), size,
                    result.latency_us, result.mb_per_s, result.cpu_s_per_gb, result.direct_percent);
        std::fflush(stdout);
      }
    }
  }
  if (o.json) std::printf("[%s]\n", rows.c_str());
}

// A CPU for each end, where there are two: ends that poll must not take each other's.
void pin(int end) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
  int seen = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || seen++ != end) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

// The server in a process of its own, which ends with this one; its port comes through a pipe.
int run_self(const Options& o) {
  int ends[2];
  if (pipe(ends) != 0) fail_with("pipe");
  const pid_t child = fork();
  if (child < 0) fail_with("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    if (o.pin) pin(1);
    serve("127.0.0.1", "0", false, [&](int port) {
      const std::string text = std::to_string(port) + "\n";
      static_cast<void>(!write(ends[1], text.data(), text.size()));
      close(ends[1]);
    });
    _exit(0);
  }
  close(ends[1]);
  char text[16] = {};
  if (read(ends[0], text, sizeof text - 1) <= 0) fail_with("the server did not start");
  if (o.pin) pin(0);
  run_client(o, "127.0.0.1", std::to_string(std::atoi(text)));
  kill(child, SIGTERM);
  waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  weft::cli::set_program("exs-perf");
  int exit_code = 0;
  const auto o = parse(argc, argv, exit_code);
  if (!o) return exit_code;
  if (o->self) return weft::cli::after_output(run_self(*o));
  if (o->listen) {
    serve(o->host, o->port, o->once, [](int port) {
      std::printf("listening on port %d\n", port);
      std::fflush(stdout);
    });
    return 0;
  }
  run_client(*o, o->host, o->port);
  return weft::cli::after_output(0);
}
