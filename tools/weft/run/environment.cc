#include "weft/run/environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "like/known.h"
#include "weft/common/arguments.h"
#include "weft/common/message.h"
#include "weft/common/net.h"
#include "weft/common/parse.h"
#include "weft/common/read_all.h"
#include "weft/run/kernel.h"
#include "weft/run/program.h"
#include "weft/run/sanitizer.h"

namespace weft::cli {
namespace {

// Keys of weft.conf, for this program only.
void add_device_options(Arguments& command, ProgramOptions& o) {
  command
      .add_option("--crc", o.crc,
                  "Ask for a CRC32C checksum on every FPDU; it is on if either side asks. Default: "
                  "as configured")
      .type_name("on|off");
  command
      .add_option(
          "--like", o.like,
          "Limits and refusals of another device: its name (siw, rxe, ...), or a file that `weft "
          "probe` wrote; settings behind it change it (docs/like.md)")
      .type_name("DEVICE[,KEY=VALUE...]");
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

// The configuration keys that the options stand for.
std::vector<std::pair<std::string, std::string>> settings(const ProgramOptions& o) {
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

// Sets WEFT_REAL_CM, and says which device the program gets where there is another beside Weft's.
Outcome<void> choose_cm(const ProgramOptions& o, const Config& config) {
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

// The text of a file, which the program gets by its environment.
tl::expected<std::string, std::string> contents_of(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  auto text = file ? read_all(file.get(), kMostText) : std::nullopt;
  if (text) return std::move(*text);
  if (errno == EFBIG)
    return tl::unexpected(std::string("it is longer than 120 KiB; leave comments out"));
  return tl::unexpected(std::string(std::strerror(errno)));
}

// Sets WEFT_LIKE, and lowers what is configured to what the device has.
Outcome<void> choose_likeness(const std::string& wish, const Config& config) {
  if (wish.empty()) return {};
  const auto profile = like::profile_of(wish, contents_of);
  if (!profile) return usage_error("--like: " + profile.error());
  setenv("WEFT_LIKE", like::text_of(*profile).c_str(), 1);
  const auto lower = [&](const char* key, like::Number limit, std::uint16_t now) {
    const auto most = profile->number(limit);
    if (most && *most < now) setenv(variable_of(key).c_str(), std::to_string(*most).c_str(), 1);
  };
  lower("ird", like::Number::kMaxQpRdAtom, config.ird);
  lower("ord", like::Number::kMaxQpInitRdAtom, config.ord);
  return {};
}

Outcome<void> set_environment(const ProgramOptions& o, const std::string& folder) {
  Outcome<Config> config = load_config(o.common);
  if (!config) return tl::unexpected(config.error());
  for (const auto& [key, value] : settings(o)) {
    std::string why;
    if (!config->set(key, value, &why, "--" + key)) return usage_error(why);
    setenv(variable_of(key).c_str(), value.c_str(), 1);
  }
  if (auto chosen = choose_cm(o, *config); !chosen) return chosen;
  if (auto chosen = choose_likeness(o.like, *config); !chosen) return chosen;
  if (o.preload) {
    prepend("LD_PRELOAD", fmt::format("{0}/libibverbs.so.1:{0}/librdmacm.so.1", folder));
  } else {
    prepend("LD_LIBRARY_PATH", folder);
  }
  setenv("WEFT_SYSFS", o.sysfs.c_str(), 1);
  const std::string paths = folder + "/weft-paths.so";
  if (o.sysfs == "on" && access(paths.c_str(), R_OK) == 0) prepend("LD_PRELOAD", paths);
  return {};
}

}  // namespace

void add_program_options(Arguments& command, ProgramOptions& o) {
  add_device_options(command, o);
  command
      .add_option("--real-cm", o.real_cm,
                  "Leave rdma_cm to the machine's own librdmacm: auto (where the kernel has a "
                  "device), on or off. Default: WEFT_REAL_CM, else auto")
      .type_name("MODE");
  command
      .add_option("--sysfs", o.sysfs,
                  "Show Weft's devices to the program below /sys/class/infiniband: on or off")
      .type_name("on|off")
      .show_default();
  command.add_flag("--preload", o.preload,
                   "Use LD_PRELOAD instead of LD_LIBRARY_PATH. For programs that set their own "
                   "library path (RPATH)");
  add_common_options(command, o.common);
  // Behind "--" everything is the program's, options too.
  command.add_option("program", o.program, "The program and its arguments")
      .type_name("-- PROGRAM ARGS");
}

// Puts `entry` in front of what the variable holds.
void prepend(const char* variable, const std::string& entry) {
  const char* before = std::getenv(variable);
  const bool empty = before == nullptr || before[0] == '\0';
  if (!empty && std::string_view(variable) == "LD_PRELOAD") {
    setenv(variable, preloaded_before(entry, before).c_str(), 1);
    return;
  }
  setenv(variable, (empty ? entry : entry + ":" + before).c_str(), 1);
}

Outcome<void> need_check_library(const std::string& folder) {
  if (access((folder + "/libweft-check.so").c_str(), R_OK) == 0) return {};
  return failure(fmt::format(
      "{}/libweft-check.so is missing. It is built where libdw is (Debian: libdw-dev)", folder));
}

// The program may change its folder, so its variables name absolute paths.
Outcome<void> set_up_timeline(const std::string& folder, const std::string& libraries) {
  if (auto there = need_check_library(libraries); !there) return there;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return failure(fmt::format("--timeline: {}: {}", folder, error.message()));
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    return failure(fmt::format("--timeline: {}: {}", folder, std::strerror(errno)));
  setenv("WEFT_TIMELINE", std::filesystem::absolute(folder, error).c_str(), 1);
  return {};
}

// Rules of `weft run --check` that are off otherwise: Rules::turn_on().
constexpr std::string_view kOffRules[] = {"N14", "W15", "N24", "N52"};

Outcome<void> set_up_check(const Checking& c, const std::string& folder) {
  if (auto there = need_check_library(folder); !there) return there;
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
  for (const std::string& rule : split_list(c.also)) {
    if (std::ranges::find(kOffRules, rule) == std::end(kOffRules)) {
      return usage_error(fmt::format("--also: '{}' is not a rule that is off; write {}", rule,
                                     fmt::join(kOffRules, ", ")));
    }
  }
  if (!c.also.empty())
    setenv("WEFT_CHECK_ALSO", fmt::format("{}", fmt::join(split_list(c.also), ",")).c_str(), 1);
  if (!c.hang.empty()) {
    const auto seconds = parse_seconds(c.hang);
    if (!seconds) return usage_error("--hang: " + seconds.error().message);
    const auto ms = std::llround(*seconds * 1e3);
    if (ms < 1 || ms > 1000LL * 3600 * 24)
      return usage_error(fmt::format("--hang: '{}' is not between 1ms and a day", c.hang));
    setenv("WEFT_CHECK_HANG", std::to_string(ms).c_str(), 1);
  }
  setenv("WEFT_CHECK", "on", 1);
  const std::string memory = folder + "/libweft-check-memory.so";
  if (access(memory.c_str(), R_OK) == 0) prepend("LD_PRELOAD", memory);
  return {};
}

std::vector<char*> as_arguments(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

Outcome<Prepared> prepare(const ProgramOptions& o) {
  if (o.program.empty()) return usage_error("the program is missing; write it behind --");
  if (o.sysfs != "on" && o.sysfs != "off") {
    return usage_error(fmt::format("--sysfs: '{}' is not a switch; write on or off", o.sysfs));
  }
  const Outcome<std::string> folder = find_dropin_folder();
  if (!folder) return tl::unexpected(folder.error());
  const Outcome<std::string> path = find_program(o.program.front());
  if (!path) return tl::unexpected(path.error());
  if (auto fine = check_program(*path); !fine) return tl::unexpected(fine.error());
  if (const std::string sanitizer = sanitizer_of(*path); !sanitizer.empty())
    prepend("LD_PRELOAD", sanitizer);
  if (auto ready = set_environment(o, *folder); !ready) return tl::unexpected(ready.error());
  return Prepared{*path, *folder};
}

}  // namespace weft::cli
