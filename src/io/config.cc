#include <sys/auxv.h>
#include <weft/config.h>
#include <weft/limits.h>
#include <weft/system_error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>

#include "io/config_values.h"
#include "io/foreign_variables.h"
#include "os/cancel.h"

extern char** environ;

namespace weft {

namespace {

constexpr const char* kDefaultFile = "/etc/weft.conf";
constexpr std::size_t kCongestionNameMax = 15;  // TCP_CA_NAME_MAX less its NUL
constexpr std::uint64_t kSendMemoryMin = 512U << 10U;
constexpr std::size_t kPathMax = 4095;
constexpr std::size_t kGidTextMax = 63;
// A number of 24 bits has room for so many ports (roce/qp_number.h).
constexpr std::uint64_t kRocePortMin = 32768;
constexpr std::uint64_t kRocePortMax = 65535;
constexpr std::size_t kSecretMax = 256;

// One key: how to set it, how to show it. `set` answers false if `text` is not legal.
struct Key {
  std::string_view name;
  std::string_view legal;
  std::string_view help;
  bool (*set)(Config& config, std::string_view text);
  std::string (*get)(const Config& config);
  bool secret = false;  // its value is shown nowhere
};

template <class Enum>
struct Choice {
  std::string_view name;
  Enum value;
};

constexpr std::array<Choice<FpduPolicy>, 4> kFpduChoices = {{{"auto", FpduPolicy::kAuto},
                                                             {"mss", FpduPolicy::kMss},
                                                             {"16k", FpduPolicy::kCapped},
                                                             {"64k", FpduPolicy::kLarge}}};
constexpr std::array<Choice<RtrKind>, 3> kRtrChoices = {
    {{"auto", RtrKind::kNone}, {"read", RtrKind::kRead}, {"write", RtrKind::kWrite}}};
constexpr std::array<Choice<ProgressMode>, 2> kProgressChoices = {
    {{"auto", ProgressMode::kAuto}, {"thread", ProgressMode::kThread}}};
constexpr std::array<Choice<CompletionMode>, 2> kCompletionChoices = {
    {{"sent", CompletionMode::kSent}, {"acked", CompletionMode::kAcked}}};
constexpr std::array<Choice<PathMode>, 3> kPathChoices = {
    {{"auto", PathMode::kAuto}, {"tcp", PathMode::kTcp}, {"ring", PathMode::kRing}}};
constexpr std::array<Choice<Personality>, 2> kPersonalityChoices = {
    {{"iwarp", Personality::kIwarp}, {"roce", Personality::kRoce}}};
constexpr std::array<Choice<RetryMode>, 2> kRetryChoices = {
    {{"standard", RetryMode::kStandard}, {"fast", RetryMode::kFast}}};
constexpr std::array<Choice<PsnMode>, 2> kPsnChoices = {
    {{"strict", PsnMode::kStrict}, {"lenient", PsnMode::kLenient}}};
constexpr std::array<Choice<LogLevel>, 6> kLogChoices = {{{"off", LogLevel::kOff},
                                                          {"error", LogLevel::kError},
                                                          {"warning", LogLevel::kWarning},
                                                          {"info", LogLevel::kInfo},
                                                          {"debug", LogLevel::kDebug},
                                                          {"trace", LogLevel::kTrace}}};

template <auto kMember, const auto& kChoices>
bool set_choice(Config& config, std::string_view text) {
  for (const auto& c : kChoices) {
    if (c.name != text) continue;
    config.*kMember = c.value;
    return true;
  }
  return false;
}
template <auto kMember, const auto& kChoices>
std::string get_choice(const Config& config) {
  for (const auto& c : kChoices) {
    if (c.value == config.*kMember) return std::string(c.name);
  }
  return "?";
}

template <bool Config::*kMember>
bool set_switch(Config& config, std::string_view text) {
  const auto value = io::parse_switch(text);
  if (value) config.*kMember = *value;
  return value.has_value();
}
template <bool Config::*kMember>
std::string get_switch(const Config& config) {
  return config.*kMember ? "on" : "off";
}

template <std::chrono::nanoseconds Config::*kMember, bool kMayBeOff>
bool set_duration(Config& config, std::string_view text) {
  const auto value = io::parse_duration(text);
  if (!value || (!kMayBeOff && value->count() == 0)) return false;
  config.*kMember = *value;
  return true;
}
template <std::chrono::nanoseconds Config::*kMember>
std::string get_duration(const Config& config) {
  return io::duration_text(config.*kMember);
}

template <std::uint16_t Config::*kMember, std::uint16_t kMax>
bool set_count(Config& config, std::string_view text) {
  const auto value = io::parse_number(text);
  if (!value || *value > kMax) return false;
  config.*kMember = static_cast<std::uint16_t>(*value);
  return true;
}
template <std::uint16_t Config::*kMember>
std::string get_count(const Config& config) {
  return std::to_string(config.*kMember);
}

template <std::string Config::*kMember>
bool set_congestion(Config& config, std::string_view text) {
  if (text.size() > kCongestionNameMax ||
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") != std::string_view::npos) {
    return false;
  }
  config.*kMember = text;
  return true;
}
bool set_device(Config& config, std::string_view text) {
  if (!io::is_interface_list(text)) return false;
  config.device = text;
  return true;
}
// An address or the name of an interface; which of the two it is shows when the device is opened.
bool set_gid(Config& config, std::string_view text) {
  constexpr std::string_view kLegal =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-@%";
  if (text.size() > kGidTextMax || text.find_first_not_of(kLegal) != std::string_view::npos) {
    return false;
  }
  config.gid = text;
  return true;
}
bool set_roce_ports(Config& config, std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return false;
  const auto first = io::parse_number(text.substr(0, dash));
  const auto last = io::parse_number(text.substr(dash + 1));
  if (!first || !last || *first < kRocePortMin || *last > kRocePortMax || *first > *last) {
    return false;
  }
  config.roce_port_min = static_cast<std::uint16_t>(*first);
  config.roce_port_max = static_cast<std::uint16_t>(*last);
  return true;
}
bool set_roce_secret(Config& config, std::string_view text) {
  const bool fits = text.size() >= limits::kSecretBytesMin && text.size() <= kSecretMax;
  if (!text.empty() && !fits) return false;
  config.roce_secret = text;
  return true;
}
std::string get_roce_secret(const Config& config) {
  return config.roce_secret.empty() ? "" : "(set)";
}
template <std::string Config::*kMember>
bool set_path(Config& config, std::string_view text) {
  if (text.size() > kPathMax || text.find('\0') != std::string_view::npos) return false;
  config.*kMember = text;
  return true;
}
template <std::string Config::*kMember>
std::string get_string(const Config& config) {
  return config.*kMember;
}
template <std::string Config::*kMember>
std::string get_congestion(const Config& config) {
  return (config.*kMember).empty() ? "keep" : config.*kMember;
}

constexpr std::string_view kSwitch = "on, off";
constexpr std::string_view kTime = "a time with its unit: 500us, 200ms, 5s, 2min; up to 24h";
constexpr std::string_view kTimeOrOff = "a time with its unit: 200ms, 5s, 2min; up to 24h; or 0";
constexpr std::string_view kDepth = "0 to 128";
constexpr std::string_view kCongestion =
    "a congestion control of this kernel (reno, cubic, bbr), or keep";
constexpr std::string_view kPath = "a path, or nothing; %p stands for the process id";

// In the order of `weft info`.
const auto kKeys = std::to_array<Key>({
    {"crc", kSwitch, "ask for CRC32C on every FPDU; it is on as soon as either side asks",
     &set_switch<&Config::crc>, &get_switch<&Config::crc>},
    {"markers", kSwitch, "ask the peer for MPA markers in what we receive",
     &set_switch<&Config::markers>, &get_switch<&Config::markers>},
    {"fpdu", "auto, mss, 16k, 64k", "how large the FPDUs are that we send",
     &set_choice<&Config::fpdu, kFpduChoices>, &get_choice<&Config::fpdu, kFpduChoices>},
    {"mpa_revision", "1, 2", "MPA revision of our Requests",
     [](Config& c, std::string_view text) {
       if (text != "1" && text != "2") return false;
       c.mpa_revision = text == "1" ? 1 : 2;
       return true;
     },
     [](const Config& c) { return std::to_string(c.mpa_revision); }},
    {"peer_to_peer", kSwitch, "offer peer-to-peer set-up, so that either side may send first",
     &set_switch<&Config::peer_to_peer>, &get_switch<&Config::peer_to_peer>},
    {"rtr", "auto, read, write", "which ready-to-receive message peer-to-peer set-up offers",
     &set_choice<&Config::rtr, kRtrChoices>, &get_choice<&Config::rtr, kRtrChoices>},
    {"progress", "auto, thread",
     "which threads move the bytes: callers too, or the background thread only",
     &set_choice<&Config::progress, kProgressChoices>,
     &get_choice<&Config::progress, kProgressChoices>},
    {"completions", "sent, acked",
     "when a Send or Write is complete: TCP has taken it, or the peer's TCP has acknowledged it",
     &set_choice<&Config::completions, kCompletionChoices>,
     &get_choice<&Config::completions, kCompletionChoices>},
    {"path", "auto, tcp, ring",
     "what carries connections inside this machine: a ring of shared memory where both ends can "
     "(auto), TCP, or the ring or nothing",
     &set_choice<&Config::path, kPathChoices>, &get_choice<&Config::path, kPathChoices>},
    {"ring_idle", kTimeOrOff,
     "when a ring that carries nothing is given back, until it is needed again; 0: never",
     &set_duration<&Config::ring_idle, true>, &get_duration<&Config::ring_idle>},
    {"ird", kDepth, "Reads and atomics served at once, per connection",
     &set_count<&Config::ird, limits::kIrd>, &get_count<&Config::ird>},
    {"ord", kDepth, "Reads and atomics outstanding, per connection",
     &set_count<&Config::ord, limits::kOrd>, &get_count<&Config::ord>},
    {"loopback_congestion", kCongestion, "congestion control of connections inside this machine",
     &set_congestion<&Config::loopback_congestion>, &get_congestion<&Config::loopback_congestion>},
    {"congestion", kCongestion, "congestion control of all other connections",
     &set_congestion<&Config::congestion>, &get_congestion<&Config::congestion>},
    {"socket_buffer", "0 (the kernel decides), or bytes up to 1g: 4194304, 4096k, 4m",
     "size of both socket buffers; setting it turns the kernel's own tuning off, and the bound of "
     "192 KiB for what is sent inside a machine",
     [](Config& c, std::string_view text) {
       const auto value = io::parse_bytes(text);
       if (!value || *value > 1U << 30U) return false;
       c.socket_buffer_bytes = static_cast<std::uint32_t>(*value);
       return true;
     },
     [](const Config& c) { return std::to_string(c.socket_buffer_bytes); }},
    {"send_memory", "512k and more: 256m, 1g",
     "memory of all connections for what peers have not taken yet",
     [](Config& c, std::string_view text) {
       const auto value = io::parse_bytes(text);
       if (!value || *value < kSendMemoryMin) return false;
       c.send_memory_bytes = *value;
       return true;
     },
     [](const Config& c) { return std::to_string(c.send_memory_bytes); }},
    {"connect_timeout", kTime, "limit of the TCP handshake",
     &set_duration<&Config::connect_timeout, false>, &get_duration<&Config::connect_timeout>},
    {"refused_wait", kTimeOrOff,
     "how long a connection that is refused is tried again; 0: the first refusal counts",
     &set_duration<&Config::refused_wait, true>, &get_duration<&Config::refused_wait>},
    {"port_map", kSwitch,
     "give rdma_cm ports of its own, so that a TCP listener may have the same number; off: they "
     "are "
     "TCP ports, and peers are not asked by UDP",
     &set_switch<&Config::port_map>, &get_switch<&Config::port_map>},
    {"request_timeout", kTime, "limit from an accepted connection to its MPA Request",
     &set_duration<&Config::request_timeout, false>, &get_duration<&Config::request_timeout>},
    {"reply_timeout", kTime, "limit from our MPA Request to the Reply",
     &set_duration<&Config::reply_timeout, false>, &get_duration<&Config::reply_timeout>},
    {"rtr_timeout", kTime, "limit from our MPA Reply to the first FPDU, in peer-to-peer set-up",
     &set_duration<&Config::rtr_timeout, false>, &get_duration<&Config::rtr_timeout>},
    {"first_fpdu_wait", kTimeOrOff,
     "how long we, if connected to, wait for the peer to speak first, without peer-to-peer set-up; "
     "0: forever",
     &set_duration<&Config::first_fpdu_wait, true>, &get_duration<&Config::first_fpdu_wait>},
    {"nudge_wait", kTimeOrOff,
     "when we, if we connect, send an empty Write to a peer that is silent after set-up; 0: never",
     &set_duration<&Config::nudge_wait, true>, &get_duration<&Config::nudge_wait>},
    {"recv_wait", kTimeOrOff,
     "how long a Send may wait for its receive to be posted; 0: it ends the connection at once",
     &set_duration<&Config::recv_wait, true>, &get_duration<&Config::recv_wait>},
    {"close_timeout", kTime, "limit of the drain after a close or a Terminate",
     &set_duration<&Config::close_timeout, false>, &get_duration<&Config::close_timeout>},
    {"keepalive", kTimeOrOff, "when a silent peer is given up; 0: never",
     &set_duration<&Config::keepalive, true>, &get_duration<&Config::keepalive>},
    {"user_timeout", kTimeOrOff,
     "when a peer that acknowledges nothing is given up; 0: the kernel's",
     &set_duration<&Config::user_timeout, true>, &get_duration<&Config::user_timeout>},
    {"spin", kTimeOrOff, "how long a waiting caller polls before it sleeps",
     &set_duration<&Config::spin, true>, &get_duration<&Config::spin>},
    {"passive_spin", kTimeOrOff,
     "how long the background looks for more before it sleeps, where a core is idle",
     &set_duration<&Config::passive_spin, true>, &get_duration<&Config::passive_spin>},
    {"personality", "iwarp, roce",
     "what the device looks like; as roce, programs may also wire queue pairs by hand "
     "(experimental)",
     &set_choice<&Config::personality, kPersonalityChoices>,
     &get_choice<&Config::personality, kPersonalityChoices>},
    {"device", "names of interfaces, with commas between: eth1,eth0, or nothing",
     "the interfaces that programs see as devices, in this order; empty: all that reach somebody",
     &set_device, &get_string<&Config::device>},
    {"gid", "an address of this machine, the name of an interface, or nothing",
     "with personality roce: the address behind the only GID of the only device; empty: all",
     &set_gid, &get_string<&Config::gid>},
    {"roce_ports", "FIRST-LAST, from 32768 to 65535: 48000-48063",
     "with personality roce: TCP ports at which wired queue pairs listen, 510 behind each",
     &set_roce_ports,
     [](const Config&
            c) { return std::to_string(c.roce_port_min) + "-" + std::to_string(c.roce_port_max); }},
    {"retry", "standard, fast",
     "with personality roce: how long work waits for a peer: as the queue pair's attributes say, "
     "or 200 ms",
     &set_choice<&Config::retry, kRetryChoices>, &get_choice<&Config::retry, kRetryChoices>},
    {"psn", "strict, lenient",
     "with personality roce: whether packet sequence numbers of both ends have to agree",
     &set_choice<&Config::psn, kPsnChoices>, &get_choice<&Config::psn, kPsnChoices>},
    {"roce_secret", "16 to 256 characters, or nothing",
     "with personality roce: what both ends have to know to be connected; empty: nobody is asked",
     &set_roce_secret, &get_roce_secret, true},
    {"background_threads", "0 (one for four cores), or 1 to 64",
     "threads that serve what no caller polls",
     &set_count<&Config::background_threads, limits::kBackgroundThreads>,
     &get_count<&Config::background_threads>},
    {"log", "off, error, warning, info, debug, trace", "what is logged",
     &set_choice<&Config::log, kLogChoices>, &get_choice<&Config::log, kLogChoices>},
    {"log_file", kPath, "where the log goes; empty: stderr", &set_path<&Config::log_file>,
     &get_string<&Config::log_file>},
    {"pcap", kPath, "trace of all connections for Wireshark; empty: none", &set_path<&Config::pcap>,
     &get_string<&Config::pcap>},
});

const Key* find_key(std::string_view name) {
  const auto found =
      std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

std::string key_names() {
  std::string out;
  for (const Key& key : kKeys) out += (out.empty() ? "" : ", ") + std::string(key.name);
  return out;
}

void say(std::string* why, std::string text) {
  if (why != nullptr) *why = std::move(text);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// "WEFT_FOO_BAR" -> "foo_bar"
std::string key_of_variable(std::string_view variable) {
  std::string key(variable.substr(std::strlen("WEFT_")));
  for (char& c : key) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return key;
}

bool is_foreign(std::string_view variable) {
  return std::any_of(kForeignVariables.begin(), kForeignVariables.end(), [&](std::string_view f) {
    return f.ends_with('*') ? variable.starts_with(f.substr(0, f.size() - 1)) : variable == f;
  });
}

// The environment of a program with raised privileges was chosen by another user.
bool environment_is_trusted() { return getauxval(AT_SECURE) == 0; }

Status set_line(Config& config, std::string_view line, const std::string& where, std::string* why) {
  line = trimmed(line);
  if (line.empty() || line.front() == '#') return {};
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    say(why, where + ": '" + std::string(line) + "' is not of the form key = value");
    return tl::unexpected(Error::kInvalidArgument);
  }
  const auto set =
      config.set(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)), why, where);
  return set ? set : tl::unexpected(Error::kInvalidArgument);
}

Status read_file(Config& config, std::string* why) {
  const os::NoCancel guard;
  const char* named = environment_is_trusted() ? std::getenv("WEFT_CONFIG") : nullptr;
  const std::string path = named != nullptr ? named : kDefaultFile;
  if (path.empty()) return {};
  std::ifstream file(path);
  if (!file) {
    const int refused = errno;
    if (named == nullptr && refused == ENOENT) return {};
    // That is no fault of the configuration.
    if (refused == ENOMEM) return tl::unexpected(Error::kNoMemory);
    if (refused == EMFILE || refused == ENFILE) return tl::unexpected(system_error(refused));
    say(why,
        path + ": " + std::strerror(refused) + (named != nullptr ? " (named by WEFT_CONFIG)" : ""));
    return tl::unexpected(Error::kInvalidArgument);
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto set = set_line(config, line, path + ":" + std::to_string(number), why);
    if (!set) return set;
  }
  return {};
}

Status read_environment(Config& config, std::string* why) {
  if (!environment_is_trusted()) return {};
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view pair = *at;
    const std::size_t equals = pair.find('=');
    const std::string_view variable = pair.substr(0, equals);
    if (equals == std::string_view::npos || !variable.starts_with("WEFT_") ||
        is_foreign(variable)) {
      continue;
    }
    const std::string key = key_of_variable(variable);
    if (find_key(key) == nullptr) {
      say(why, "environment variable " + std::string(variable) +
                   " is not known; known are WEFT_ with one of: " + key_names());
      return tl::unexpected(Error::kInvalidArgument);
    }
    const auto set = config.set(key, trimmed(pair.substr(equals + 1)), why, variable);
    if (!set) return set;
  }
  return {};
}

}  // namespace

Status Config::set(std::string_view key, std::string_view value, std::string* why,
                   std::string_view source) {
  const Key* known = find_key(key);
  if (known == nullptr) {
    say(why, std::string(source) + ": '" + std::string(key) +
                 "' is not a known setting; known are: " + key_names());
    return tl::unexpected(Error::kNotFound);
  }
  if (!known->set(*this, value)) {
    const std::string shown = known->secret ? "what stands there" : "'" + std::string(value) + "'";
    say(why, std::string(source) + ": " + shown + " is not a legal value of " + std::string(key) +
                 "; legal: " + std::string(known->legal));
    return tl::unexpected(Error::kInvalidArgument);
  }
  std::erase_if(sources_, [&](const auto& s) { return s.first == key; });
  sources_.emplace_back(key, source);
  return {};
}

Result<Config> Config::load(std::string* why) {
  Config config;
  if (auto file = read_file(config, why); !file) return tl::unexpected(file.error());
  if (auto env = read_environment(config, why); !env) return tl::unexpected(env.error());
  return config;
}

std::vector<Config::Entry> Config::entries() const {
  const Config defaults;
  std::vector<Entry> out;
  out.reserve(kKeys.size());
  for (const Key& key : kKeys) {
    Entry entry{std::string(key.name), key.get(*this), "default", std::string(key.legal),
                std::string(key.help)};
    const auto found = std::find_if(sources_.begin(), sources_.end(),
                                    [&](const auto& s) { return s.first == key.name; });
    if (found != sources_.end()) {
      entry.source = found->second;
    } else if (entry.value != key.get(defaults)) {
      entry.source = "api";  // set in the struct itself
    }
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace weft
