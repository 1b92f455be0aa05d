// The environment in which programs run on Weft's libraries, for the commands that start them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weft/command.h"
#include "weft/common/common.h"

namespace weft::cli {

// The most that programs get by a variable of their environment: the kernel takes 128 KiB.
inline constexpr std::size_t kMostText = 120U << 10U;

// Files of --faults, --record and --replay, and the value of --shake; empty: none.
struct Faulting {
  std::string file, record, replay, shake;
};

// The options of `weft run --check`. `report` and `suppress` are files, empty: none.
struct Checking {
  std::string report;
  std::string suppress;
  std::string exit_status;
  std::string hang{};
  std::string also{};
};

struct ProgramOptions {
  CommonOptions common;
  std::string crc;
  std::string like;
  std::string markers;
  std::string fpdu;
  std::string path;
  std::string pcap;
  std::string personality;
  std::string progress;
  std::string real_cm;
  std::string sysfs = "on";
  bool preload = false;
  std::vector<std::string> program;
};
// All of them, and the program and its arguments.
void add_program_options(Arguments& command, ProgramOptions& options);

// A program that can be started.
struct Prepared {
  std::string path;    // the file to execute
  std::string folder;  // of Weft's libraries
};
// Finds the program, and sets the environment of this process for it. A bad value is reported here:
// the program would report it only once it opens the device.
[[nodiscard]] Outcome<Prepared> prepare(const ProgramOptions& options);
// Refuses where the library of --check and its like was not built. `folder`: of the libraries.
[[nodiscard]] Outcome<void> need_check_library(const std::string& folder);
// Has its calls and completions fail by the rules of a file, and its device shaken. Behind
// prepare().
[[nodiscard]] Outcome<void> set_up_faults(const Faulting& f, const std::string& folder);
// Has it write records of its requests to files in a folder.
[[nodiscard]] Outcome<void> set_up_timeline(const std::string& folder,
                                            const std::string& libraries);
// Has the program observed.
[[nodiscard]] Outcome<void> set_up_check(const Checking& options, const std::string& folder);

// Puts `entry` in front of what the variable holds.
void prepend(const char* variable, const std::string& entry);
// The arguments as execv() takes them, ended by a null. They live as long as `words`.
[[nodiscard]] std::vector<char*> as_arguments(const std::vector<std::string>& words);

}  // namespace weft::cli
