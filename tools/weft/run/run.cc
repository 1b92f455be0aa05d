// `weft run`: starts an unmodified RDMA program on Weft's libraries.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "weft/common/arguments.h"
#include "weft/common/common.h"
#include "weft/common/message.h"
#include "weft/run/kernel.h"
#include "weft/run/program.h"

namespace weft::cli {
namespace {

// Those that go with --check.
struct CheckOptions {
  std::string report;
  std::string suppress;
  std::string exit_status;
};

struct RunOptions {
  CommonOptions common;
  std::string crc;
  std::string markers;
  std::string fpdu;
  std::string path;
  std::string pcap;
  std::string personality;
  std::string progress;
  std::string real_cm;
  std::string sysfs = "on";
  bool preload = false;
  bool sockets = false;
  std::string rules;
  bool why = false;
  bool check = false;
  CheckOptions checks;
  std::vector<std::string> program;
};

// Keys of weft.conf, for this program only.
void add_device_options(Arguments& command, RunOptions& o) {
  command
      .add_option("--crc", o.crc,
                  "Ask for a CRC32C checksum on every FPDU; it is on if either side asks. Default: "
                  "as configured")
      .type_name("on|off");
  command.add_flag("--markers{on}", o.markers,
                   "Ask the peer for MPA markers. Without a value: on. Default: as configured");
  command
      .add_option("--fpdu", o.fpdu,
                  "Size of the FPDUs to send: auto, mss, 16k or 64k. Default: as configured")
      .type_name("SIZE");
  command
      .add_option(
          "--path", o.path,
          "What carries connections inside this machine: tcp, ring (shared memory), or auto "
          "(the ring where both ends can). Default: as configured")
      .type_name("PATH");
  command
      .add_option("--personality", o.personality,
                  "What the device looks like: iwarp, or (experimental) roce, for programs that "
                  "exchange queue pair numbers themselves instead of using rdma_cm. Default: as "
                  "configured")
      .type_name("iwarp|roce");
  command
      .add_option("--pcap", o.pcap,
                  "Write the bytes of all connections to FILE, for Wireshark. %p in its name "
                  "becomes the process id")
      .type_name("FILE");
  command
      .add_option("--progress", o.progress,
                  "Threads that move the bytes: auto (the program's while they poll, and a "
                  "background thread), or thread (the background thread alone). Default: as "
                  "configured")
      .type_name("MODE");
}

void add_check_options(Arguments& command, RunOptions& o) {
  command.add_flag("--check", o.check,
                   "Look for mistakes in how the program uses verbs and rdma_cm, and print them to "
                   "stderr (docs/check.md)");
  command
      .add_option("--report", o.checks.report,
                  "With --check: write what is found to a file for each process in DIR, for `weft "
                  "check report`")
      .type_name("DIR");
  command
      .add_option("--suppress", o.checks.suppress,
                  "With --check: file with the findings to leave out: a rule, and a function of "
                  "the program, on each line")
      .type_name("FILE");
  command
      .add_option("--check-exit", o.checks.exit_status,
                  "With --check: exit status, 1 to 255, in place of 0 when an error or a warning "
                  "was found. Default: the program's own")
      .type_name("N");
}

void add_options(Arguments& command, RunOptions& o) {
  add_device_options(command, o);
  add_check_options(command, o);
  command
      .add_option("--real-cm", o.real_cm,
                  "Leave rdma_cm to the machine's own librdmacm: auto (where the kernel has a "
                  "device), on or off. Default: WEFT_REAL_CM, else auto")
      .type_name("MODE");
  command
      .add_option("--sysfs", o.sysfs,
                  "Show weft0 to the program below /sys/class/infiniband: on or off")
      .type_name("on|off")
      .show_default();
  command.add_flag("--preload", o.preload,
                   "Use LD_PRELOAD instead of LD_LIBRARY_PATH. For programs that set their own "
                   "library path (RPATH)");
  command.add_flag("--sockets", o.sockets,
                   "Carry busy TCP connections between programs of one user on this machine over "
                   "shared memory; all others stay TCP (docs/sockets.md)");
  command
      .add_option("--rules", o.rules,
                  "With --sockets: file that says which connections stay TCP (docs/sockets.md)")
      .type_name("FILE");
  command.add_flag("--why", o.why,
                   "With --sockets: print to stderr which path each connection takes, and why");
  add_common_options(command, o.common);
  // Behind "--" everything is the program's, options too.
  command.add_option("program", o.program, "The program and its arguments")
      .type_name("-- PROGRAM ARGS");
}

// The configuration keys that the options stand for.
std::vector<std::pair<std::string, std::string>> settings(const RunOptions& o) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto add = [&out](const char* key, const std::string& value) {
    if (!value.empty()) out.emplace_back(key, value);
  };
  for (const std::string& text : o.common.config) {
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos)
      out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  add("crc", o.crc);
  add("markers", o.markers);
  add("fpdu", o.fpdu);
  add("path", o.path);
  add("personality", o.personality);
  add("pcap", o.pcap);
  add("progress", o.progress);
  add("log", o.common.log);
  return out;
}

// WEFT_CRC for crc.
std::string variable_of(const std::string& key) {
  std::string name = "WEFT_";
  for (const char c : key) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// Puts `entry` in front of what the variable holds.
void prepend(const char* variable, const std::string& entry) {
  const char* before = std::getenv(variable);
  const bool empty = before == nullptr || before[0] == '\0';
  setenv(variable, (empty ? entry : entry + ":" + before).c_str(), 1);
}

// Asks the library itself, so that a mistake is found before the program starts.
Outcome<void> check_rules(const std::string& library, const std::string& rules) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return failure(fmt::format("{}", dlerror()));
  auto* check = reinterpret_cast<int (*)(const char*, char*, std::size_t)>(
      dlsym(handle, "weft_sockets_check_rules"));
  char why[512] = "";
  if (check == nullptr) return failure(fmt::format("{} is of another version of Weft", library));
  if (check(rules.c_str(), why, sizeof why) != 0) return usage_error(why);
  return {};
}

Outcome<void> set_up_sockets(const RunOptions& o, const std::string& folder) {
  if (!o.sockets) {
    if (o.rules.empty() && !o.why) return {};
    return usage_error("--rules and --why go with --sockets");
  }
  const std::string library = folder + "/libweft-sockets.so";
  if (!o.rules.empty()) {
    // The program may change its folder.
    std::error_code error;
    const std::string rules = std::filesystem::absolute(o.rules, error).string();
    if (auto good = check_rules(library, rules); !good) return good;
    setenv("WEFT_SOCKETS_RULES", rules.c_str(), 1);
  }
  if (o.why) setenv("WEFT_SOCKETS_WHY", "1", 1);
  // The first one takes the sockets in IWARP mode, and hands all others to the second.
  prepend("LD_PRELOAD", fmt::format("{0}/libweft-sockets-iwarp.so:{1}", folder, library));
  return {};
}

// The program may change its folder, so its variables name absolute paths.
Outcome<void> set_up_check(const RunOptions& o, const std::string& folder) {
  const CheckOptions& c = o.checks;
  if (!o.check) {
    if (c.report.empty() && c.suppress.empty() && c.exit_status.empty()) return {};
    return usage_error("--report, --suppress and --check-exit go with --check");
  }
  if (access((folder + "/libweft-check.so").c_str(), R_OK) != 0) {
    return failure(
        fmt::format("{}/libweft-check.so is missing. It is built where libdw is (Debian: "
                    "libdw-dev)",
                    folder));
  }
  std::error_code error;
  if (!c.report.empty()) {
    std::filesystem::create_directories(c.report, error);
    if (error) return failure(fmt::format("--report: {}: {}", c.report, error.message()));
    setenv("WEFT_CHECK_REPORT", std::filesystem::absolute(c.report, error).c_str(), 1);
  }
  if (!c.suppress.empty()) {
    if (access(c.suppress.c_str(), R_OK) != 0)
      return usage_error(fmt::format("--suppress: {}: {}", c.suppress, std::strerror(errno)));
    setenv("WEFT_CHECK_SUPPRESS", std::filesystem::absolute(c.suppress, error).c_str(), 1);
  }
  if (!c.exit_status.empty()) {
    const int status = std::atoi(c.exit_status.c_str());
    if (status < 1 || status > 255) {
      return usage_error(
          fmt::format("--check-exit: '{}' is not an exit status; write 1 to 255", c.exit_status));
    }
    setenv("WEFT_CHECK_EXIT", std::to_string(status).c_str(), 1);
  }
  setenv("WEFT_CHECK", "on", 1);
  return {};
}

// Sets WEFT_REAL_CM, and says which device the program gets where there is another beside Weft's.
Outcome<void> choose_cm(const RunOptions& o, const Config& config) {
  const char* before = std::getenv("WEFT_REAL_CM");
  const std::string variable = before != nullptr && before[0] != '\0' ? before : "auto";
  const std::string mode = o.real_cm.empty() ? variable : o.real_cm;
  if (mode != "auto" && mode != "on" && mode != "off") {
    return usage_error(fmt::format("{}: '{}' is not a mode; it can be auto, on or off",
                                   o.real_cm.empty() ? "WEFT_REAL_CM" : "--real-cm", mode));
  }
  setenv("WEFT_REAL_CM", mode.c_str(), 1);
  const std::string choice = describe_choice(look_at_kernel_rdma(), mode);
  if (!choice.empty() && config.log >= LogLevel::kWarning) say(choice);
  return {};
}

// The program would report a bad value too, but only once it opens the device.
Outcome<void> set_environment(const RunOptions& o, const std::string& folder) {
  Outcome<Config> config = load_config(o.common);
  if (!config) return tl::unexpected(config.error());
  for (const auto& [key, value] : settings(o)) {
    std::string why;
    if (!config->set(key, value, &why, "--" + key)) return usage_error(why);
    setenv(variable_of(key).c_str(), value.c_str(), 1);
  }
  if (auto chosen = choose_cm(o, *config); !chosen) return chosen;
  if (o.preload) {
    prepend("LD_PRELOAD", fmt::format("{0}/libibverbs.so.1:{0}/librdmacm.so.1", folder));
  } else {
    prepend("LD_LIBRARY_PATH", folder);
  }
  setenv("WEFT_SYSFS", o.sysfs.c_str(), 1);
  const std::string paths = folder + "/weft-paths.so";
  if (o.sysfs == "on" && access(paths.c_str(), R_OK) == 0) prepend("LD_PRELOAD", paths);
  if (auto ready = set_up_check(o, folder); !ready) return ready;
  return set_up_sockets(o, folder);
}

Outcome<int> run(const RunOptions& o) {
  if (o.program.empty()) {
    return usage_error("the program is missing; write weft run [OPTIONS] -- PROGRAM [ARGS...]");
  }
  if (o.sysfs != "on" && o.sysfs != "off") {
    return usage_error(fmt::format("--sysfs: '{}' is not a switch; write on or off", o.sysfs));
  }
  const Outcome<std::string> folder = find_dropin_folder();
  if (!folder) return tl::unexpected(folder.error());
  const Outcome<std::string> path = find_program(o.program.front());
  if (!path) return tl::unexpected(path.error());
  if (auto fine = check_program(*path); !fine) return tl::unexpected(fine.error());
  if (auto ready = set_environment(o, *folder); !ready) return tl::unexpected(ready.error());

  std::vector<char*> arguments;
  for (const std::string& argument : o.program) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  // This program ignores it; the one that takes its place decides for itself.
  std::signal(SIGPIPE, SIG_DFL);
  execv(path->c_str(), arguments.data());
  return failure(fmt::format("{}: {}", *path, std::strerror(errno)), kExitCannotExecute);
}

}  // namespace

void add_run(Arguments& app) {
  auto options = std::make_shared<RunOptions>();
  Arguments* command = app.add_subcommand("run", "Run an unmodified RDMA program over Weft");
  command->footer(
      "The program replaces this one: it receives the signals, and its exit status is returned.\n"
      "Exit codes of weft itself: 2 wrong usage, 126 the file is no program, 127 there is no such\n"
      "file, 1 anything else.");
  add_options(*command, *options);
  when_chosen(*command, [options] { return run(*options); });
}

}  // namespace weft::cli
