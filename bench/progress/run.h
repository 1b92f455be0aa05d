// The memory that the two processes of one run share, and the orders that each of them gets.
//
// A run is one row of the results. The supervisor forks a client and a server, which share a page
// of memory besides their connections. It ends both when one fails, and when a thread that waits
// for a message has got none for the time limit: a lost message or wake-up is an error, not a hang.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace progress {

inline constexpr unsigned kLinksMax = 1000;
inline constexpr unsigned kMetricsMax = 24;
inline constexpr unsigned kThreadsMax = 64;

struct Options {
  double seconds = 0.5;   // of each timed phase
  unsigned limit_s = 10;  // without a message: the run has failed
  unsigned links_max = kLinksMax;
  bool one_core = false;  // both processes on one CPU
  bool pin = true;        // each process to a CPU
  bool hold = false;      // a run that stands still is left as it is, for a debugger
};

struct Metric {
  char name[32];
  double value;
};

// One thread of one process writes here.
struct alignas(128) Tally {
  std::atomic<std::uint64_t> messages = 0;  // counted so far: shows that something moves
  std::atomic<std::uint64_t> awaited = 0;   // the number of the message it waits for
  std::atomic<bool> active = false;         // it must move: there is an Active
};

// For its time the thread of this tally counts or awaits messages, and standing still is a failure,
// whatever other threads do.
class Active {
 public:
  explicit Active(Tally& tally) : tally_(tally) { tally_.active = true; }
  ~Active() { tally_.active = false; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

 private:
  Tally& tally_;
};

struct Shared {
  std::array<std::array<Tally, kThreadsMax + 1>, 2> tallies;            // of client and server
  alignas(128) std::array<std::atomic<std::uint32_t>, 2> arrived = {};  // at barriers
  std::atomic<std::uint32_t> stop = 0;  // the client has posted all there is
  std::atomic<std::uint32_t> port = 0;  // of the server's listener
  std::array<std::atomic<pid_t>, 2> pids = {};
  std::array<Metric, kMetricsMax> metrics;
  unsigned metric_count = 0;
  std::array<std::uint64_t, kLinksMax> finals;  // the last number that went to each connection
};

enum Side : unsigned { kClient = 0, kServer = 1 };

// One of the two processes.
struct Run {
  Shared& shared;
  const Options& options;
  Side side;
  const char* row;

  // The number of this thread; 0 is the main one.
  Tally& tally(unsigned thread = 0) const { return shared.tallies[side][thread]; }
  // Both processes come here, then both go on. Sleeps.
  void barrier() const;
  void report(const char* name, double value) const;
};

// Ends the process with a message; the supervisor sees the status.
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char* format, ...);

std::int64_t now_ns();
void nap(unsigned microseconds);

// Pins this thread, and those that it starts, to the n-th CPU that the program may use.
void pin_to_cpu(const Run& run, unsigned nth);
void use_all_cpus();

// Latencies, in buckets of 0.4 % or finer. One thread.
class Histogram {
 public:
  void add(std::int64_t ns);
  void add(const Histogram& other);
  double at(double fraction) const;  // us
  double max() const { return static_cast<double>(max_) / 1e3; }
  std::uint64_t count() const { return count_; }
  // Reports PREFIXp50_us, PREFIXp99_us and PREFIXmax_us, each divided by `parts`.
  void report(const Run& run, const char* prefix, double parts = 1) const;

 private:
  static constexpr unsigned kSubBits = 8;
  static constexpr unsigned kOctaves = 32;
  static std::size_t bucket(std::uint64_t ns);
  static double middle(std::size_t bucket);
  std::array<std::uint32_t, (kOctaves + 1) << kSubBits> counts_ = {};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

// Time, CPU time and sleeps of both processes between two moments. The client's.
class Meter {
 public:
  explicit Meter(const Run& run);
  // Stops the clock. Reports CPU time of both processes per message, as PREFIXcpu_us.
  void stop(std::uint64_t messages, const char* prefix = "");
  double seconds() const { return seconds_; }
  double sleeps_per_message() const { return sleeps_; }

 private:
  struct Usage {
    double cpu_s;
    std::uint64_t sleeps;
  };
  Usage usage() const;
  const Run& run_;
  Usage before_;
  std::int64_t begin_ns_;
  double seconds_ = 0;
  double sleeps_ = 0;
};

using Part = void (*)(const Run&, unsigned argument);

struct Workload {
  const char* row;
  const char* about;
  Part client;
  Part server;
  unsigned argument;
  unsigned links;  // connections that it needs; rows with more than links_max are left out
};

// Runs it in two new processes; false, with a message on stderr, if it failed.
bool supervise(const Workload& workload, const Options& options, Shared& shared);

}  // namespace progress
