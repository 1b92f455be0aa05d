// A run of a sweep: what it has left behind, and the verdict on it. No operating system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::faults {

// Lines of the program, the innermost first: "main (client.c:20)".
using Places = std::vector<std::string>;

// A call that failed because the sweep wanted it.
struct Fault {
  std::string call;
  std::string error;  // name of an errno
  Places at;
};

// A handle that was still there when its process ended.
struct Left {
  std::string kind;
  Places at;  // where it was made
};

// A finding of `weft run --check`: an error or a warning.
struct Found {
  std::string rule;
  std::string call;
  std::string text;
  Places at;
};

// One program in one process: from exec() to exit() or to the next exec().
struct Image {
  std::string process;  // identity() of plan.h
  int pid = 0;
  std::vector<Fault> faults;
  bool ended = false;  // by exit() or by return from main(); then the rest is known
  std::uint64_t calls = 0;
  int status = 0;  // exit status
  std::vector<Left> left;
  int signal = 0;  // that it crashed with
};

struct SweepRun {
  std::uint64_t nth = 0;
  std::string process;     // in which the call was to fail
  bool timed_out = false;  // it was ended at its time limit
  std::vector<int> alive;  // processes that were there then
  int status = 0;          // exit status
  int signal = 0;          // that ended it, or 0
  double seconds = 0;
  std::string said;  // the last line of its output
  std::vector<Image> images;
  std::vector<Found> found;
};

enum class Result : std::uint8_t {
  kReported,  // it ended with a status that is not 0
  kIgnored,   // it ended with 0, although a call failed
  kCrash,
  kHang  // the process whose call failed did not end
};
[[nodiscard]] std::string_view name_of(Result result);

struct Verdict {
  Result result{};
  int signal = 0;            // of a crash
  int status = 0;            // exit status; -1: not known
  bool others_wait = false;  // its process has ended, others did not until the time limit
  std::vector<Left> left;    // by its process, and not without a fault
  std::vector<Found> found;  // in any process, and not without a fault
};

// The fault of a run: the first one in the process it was for. Null: that made fewer calls.
[[nodiscard]] const Fault* fault_of(const SweepRun& run);
// The image with it, or null.
[[nodiscard]] const Image* image_with_fault(const SweepRun& run);

// `plain` is the run in which no call failed.
[[nodiscard]] Verdict judge(const SweepRun& run, const SweepRun& plain);

// The signal that a run crashed with; a shell says it by an exit status. 0: none.
[[nodiscard]] int crash_of(const SweepRun& run);

// Processes that made calls, each once, in their order.
[[nodiscard]] std::vector<std::string> processes_of(const SweepRun& plain);
// The most calls that a process of this name made. It is not known of one that did not end.
[[nodiscard]] std::uint64_t calls_of(const SweepRun& plain, std::string_view process);

}  // namespace weft::faults
