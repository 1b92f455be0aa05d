// Two processes, the page that they share, what they measure with.
#include "run.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <string>

namespace progress {

namespace {

cpu_set_t g_allowed;
const char* g_who = "weft_progress_bench";

}  // namespace

void die(const char* format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "%s: %s\n", g_who, text);
  fflush(nullptr);
  _exit(1);
}

std::int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void nap(unsigned microseconds) {
  const timespec time = {microseconds / 1'000'000, (microseconds % 1'000'000) * 1000L};
  nanosleep(&time, nullptr);
}

void pin_to_cpu(const Run& run, unsigned nth) {
  if (!run.options.pin && !run.options.one_core) return;
  nth = run.options.one_core ? 0 : nth % static_cast<unsigned>(CPU_COUNT(&g_allowed));
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &g_allowed) || nth-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

void use_all_cpus() { sched_setaffinity(0, sizeof g_allowed, &g_allowed); }

void Run::barrier() const {
  const std::uint32_t mine = shared.arrived[side].fetch_add(1) + 1;
  while (shared.arrived[1 - side].load() < mine) nap(1000);
}

void Run::report(const char* name, double value) const {
  if (shared.metric_count == kMetricsMax) die("too many metrics");
  Metric& metric = shared.metrics[shared.metric_count++];
  snprintf(metric.name, sizeof metric.name, "%s", name);
  metric.value = value;
}

// Histogram ----------------------------------------------------------------------------------

std::size_t Histogram::bucket(std::uint64_t ns) {
  constexpr std::uint64_t kExact = 1U << kSubBits;
  if (ns < kExact) return ns;
  const auto octave = static_cast<unsigned>(std::bit_width(ns)) - kSubBits;  // 1 and more
  if (octave >= kOctaves) return ((kOctaves + 1) << kSubBits) - 1;
  return (static_cast<std::size_t>(octave) << kSubBits) + ((ns >> octave) & (kExact - 1));
}

double Histogram::middle(std::size_t bucket) {
  const std::size_t octave = bucket >> kSubBits;
  const auto low = static_cast<double>(bucket & ((1U << kSubBits) - 1));
  return octave == 0 ? low : (low + 0.5) * static_cast<double>(1ULL << octave);
}

void Histogram::add(std::int64_t ns) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0));
  ++counts_[bucket(value)];
  ++count_;
  max_ = std::max(max_, value);
}

void Histogram::add(const Histogram& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

double Histogram::at(double fraction) const {
  const auto rank = static_cast<std::uint64_t>(fraction * static_cast<double>(count_));
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    if (below > rank) return middle(i) / 1e3;
  }
  return max();
}

void Histogram::report(const Run& run, const char* prefix, double parts) const {
  const std::string before = prefix;
  run.report((before + "p50_us").c_str(), at(0.5) / parts);
  run.report((before + "p99_us").c_str(), at(0.99) / parts);
  run.report((before + "max_us").c_str(), max() / parts);
}

// Meter --------------------------------------------------------------------------------------

Meter::Meter(const Run& run) : run_(run), before_(usage()), begin_ns_(now_ns()) {}

void Meter::stop(std::uint64_t messages, const char* prefix) {
  seconds_ = static_cast<double>(now_ns() - begin_ns_) / 1e9;
  const Usage after = usage();
  const auto count = static_cast<double>(std::max<std::uint64_t>(messages, 1));
  sleeps_ = static_cast<double>(after.sleeps - before_.sleeps) / count;
  run_.report((std::string(prefix) + "cpu_us").c_str(),
              (after.cpu_s - before_.cpu_s) * 1e6 / count);
}

namespace {

// How often the threads of a process went to sleep so far.
std::uint64_t sleeps_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  DIR* tasks = opendir(folder.c_str());
  if (tasks == nullptr) die("cannot read %s", folder.c_str());
  std::uint64_t sum = 0;
  while (const dirent* task = readdir(tasks)) {
    FILE* status = fopen((folder + "/" + task->d_name + "/status").c_str(), "re");
    if (status == nullptr) continue;
    char line[200];
    unsigned long long count = 0;
    while (fgets(line, sizeof line, status) != nullptr) {
      if (sscanf(line, "voluntary_ctxt_switches: %llu", &count) == 1) sum += count;
    }
    fclose(status);
  }
  closedir(tasks);
  return sum;
}

}  // namespace

Meter::Usage Meter::usage() const {
  Usage sum = {0, 0};
  for (const auto& shared_pid : run_.shared.pids) {
    const pid_t pid = shared_pid.load();
    clockid_t clock;
    timespec time;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
      die("cannot read the CPU time of process %d", pid);
    }
    sum.cpu_s += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
    sum.sleeps += sleeps_of(pid);
  }
  return sum;
}

// Supervisor ---------------------------------------------------------------------------------

namespace {

pid_t start(const Workload& workload, const Options& options, Shared& shared, Side side) {
  const pid_t pid = fork();
  if (pid < 0) die("cannot fork");
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  static char who[100];
  snprintf(who, sizeof who, "%s, %s", workload.row, side == kClient ? "client" : "server");
  g_who = who;
  shared.pids[side] = getpid();
  const Run run = {shared, options, side, workload.row};
  pin_to_cpu(run, side);
  run.barrier();  // each knows the other's number
  (side == kClient ? workload.client : workload.server)(run, workload.argument);
  exit(0);
}

// Since when everything that should move has not.
class Stillness {
 public:
  explicit Stillness(const Shared& shared) : shared_(shared) {}

  // Whether a thread, or the set-up, has stood still for so long.
  bool look(unsigned limit_s) {
    const std::int64_t now = now_ns();
    const std::int64_t limit_ns = std::int64_t{limit_s} * 1'000'000'000;
    std::uint64_t all = shared_.arrived[kClient] + shared_.arrived[kServer];
    bool still = false;
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      const Tally& tally = shared_.tallies[i / kPerSide][i % kPerSide];
      const std::uint64_t sum = tally.messages + tally.awaited;
      all += sum;
      still |=
          marks_[i].stands(tally.active ? sum : ~std::uint64_t{0}, now, limit_ns) && tally.active;
    }
    return still | all_.stands(all, now, limit_ns);
  }

 private:
  struct Mark {
    std::uint64_t seen = ~std::uint64_t{0};
    std::int64_t since_ns = 0;

    bool stands(std::uint64_t value, std::int64_t now, std::int64_t limit_ns) {
      if (value != seen || since_ns == 0) since_ns = now;
      seen = value;
      return now - since_ns > limit_ns;
    }
  };
  static constexpr std::size_t kPerSide = kThreadsMax + 1;
  const Shared& shared_;
  std::array<Mark, 2 * kPerSide> marks_;
  Mark all_;
};

void describe_stall(const Workload& workload, const Options& options, const Shared& shared) {
  fprintf(stderr, "%s: no message for %u s\n", workload.row, options.limit_s);
  for (const Side side : {kClient, kServer}) {
    for (unsigned thread = 0; thread <= kThreadsMax; ++thread) {
      const Tally& tally = shared.tallies[side][thread];
      if (tally.messages == 0 && tally.awaited == 0) continue;
      fprintf(stderr, "  %s %d, thread %u%s: counted %llu messages, waits for number %llu\n",
              side == kClient ? "client" : "server", shared.pids[side].load(), thread,
              tally.active ? "" : " (done)", static_cast<unsigned long long>(tally.messages.load()),
              static_cast<unsigned long long>(tally.awaited.load()));
    }
  }
}

// Takes the state of a process that has ended. Nothing while it runs.
void reap(pid_t& pid, bool& good) {
  int status = 0;
  if (pid == 0 || waitpid(pid, &status, WNOHANG) != pid) return;
  pid = 0;
  if (status == 0) return;
  good = false;
  if (WIFSIGNALED(status)) fprintf(stderr, "a process was ended by signal %d\n", WTERMSIG(status));
}

void end_rest(const std::array<pid_t, 2>& pids) {
  // Both, before either sees the other's connections break.
  for (const pid_t pid : pids) {
    if (pid != 0) kill(pid, SIGKILL);
  }
  for (const pid_t pid : pids) {
    if (pid != 0) waitpid(pid, nullptr, 0);
  }
}

}  // namespace

bool supervise(const Workload& workload, const Options& options, Shared& shared) {
  new (&shared) Shared;
  sched_getaffinity(0, sizeof g_allowed, &g_allowed);
  fflush(nullptr);
  std::array<pid_t, 2> pids = {};
  for (const Side side : {kServer, kClient}) pids[side] = start(workload, options, shared, side);
  bool good = true;
  Stillness stillness(shared);
  while (good && (pids[kClient] != 0 || pids[kServer] != 0)) {
    // Long pauses, which disturb nothing; short ones at the end.
    nap(pids[kClient] != 0 && pids[kServer] != 0 ? 20'000 : 1000);
    reap(pids[kClient], good);
    reap(pids[kServer], good);
    if (!stillness.look(options.limit_s)) continue;
    describe_stall(workload, options, shared);
    while (options.hold) nap(1'000'000);
    good = false;
  }
  end_rest(pids);
  if (!good) fprintf(stderr, "%s: FAILED\n", workload.row);
  return good;
}

}  // namespace progress
