// What the subcommands of `weft` share: how they register, their exit codes, how they fail.
//
// Each subcommand lives in files of its own and offers one function add_<name>(Arguments&), called
// by main.cc. It adds its options, and a callback that calls set_command() with the work to do; the
// work runs after parsing is complete, on the main thread, and its result is the exit code.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace weft::cli {

class Arguments;  // common/arguments.h

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // something went wrong at run time
inline constexpr int kExitUsage = 2;    // a bad option, value or configuration: nothing was done
inline constexpr int kExitCannotExecute = 126;  // of `run` and `report`: the program does not start

// Why something could not be done, for the user: "WHAT: WHY; WHAT TO DO".
struct Failure {
  std::string message;
  int exit_code = kExitFailure;
};
template <class T>
using Outcome = tl::expected<T, Failure>;

[[nodiscard]] inline tl::unexpected<Failure> failure(std::string message,
                                                     int exit_code = kExitFailure) {
  return tl::unexpected<Failure>(Failure{std::move(message), exit_code});
}
[[nodiscard]] inline tl::unexpected<Failure> usage_error(std::string message) {
  return failure(std::move(message), kExitUsage);
}

// Puts the name of an option, or of whatever else the value was for, before what is wrong with it.
[[nodiscard]] inline tl::unexpected<Failure> named(std::string_view option, const Failure& why) {
  return failure(std::string(option) + ": " + why.message, why.exit_code);
}

// Prints "weft: <message>" to stderr and returns the exit code. See common/message.h.
int report_failure(const Failure& why);

// Names the work of the subcommand that was chosen.
void set_command(std::function<int()> work);
[[nodiscard]] const std::function<int()>& chosen_command();  // empty: none was

// Has `work` done when `command` is chosen. Its value is the exit code; a failure is reported.
void when_chosen(Arguments& command, std::function<Outcome<int>()> work);
// For work whose success is always exit code 0.
[[nodiscard]] inline Outcome<int> exit_code_of(const Outcome<void>& done) {
  return done ? Outcome<int>(kExitOk) : tl::unexpected(done.error());
}

void add_info(Arguments& app);
void add_doctor(Arguments& app);
void add_perf(Arguments& app);
void add_ping(Arguments& app);
void add_run(Arguments& app);
void add_check(Arguments& app);
void add_faults(Arguments& app);
void add_timeline(Arguments& app);
void add_lab(Arguments& app);
void add_probe(Arguments& app);
void add_devices(Arguments& app);
void add_selftest(Arguments& app);
void add_stat(Arguments& app);
void add_report(Arguments& app);
void add_data(Arguments& app);  // serve, get, put, sync, ls, cat, video

}  // namespace weft::cli
