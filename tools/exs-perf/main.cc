// exs-perf: what extended sockets cost. Bandwidth, latency and CPU time of every kind of transfer,
// and of plain TCP through the same calls.
//
//   exs-perf --self                              both ends on this machine, all modes
//   exs-perf --listen 7475                       on one machine, and on another:
//   exs-perf --mode stream,tcp --size 64,1048576 HOST:7475
#include <getopt.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "workload.h"

namespace {

using namespace exs_perf;

constexpr const char* kDefaultPort = "7475";

void usage() {
  std::puts(
      "Measure extended sockets: bandwidth, latency and CPU time\n"
      "Usage: exs-perf [OPTIONS] [HOST[:PORT]]\n"
      "\n"
      "  --self             Both ends: the server is a second process on this machine\n"
      "  --listen PORT      Server: serve clients one after another (0: a free port, printed)\n"
      "  --once             Server: end after one client's connections\n"
      "  --mode LIST        normal, immediate, persistent, stream, tcp, packet-tcp. Default: all\n"
      "  --size LIST        Bytes per message. Default 64,4096,65536,1048576\n"
      "  --depth N          Operations outstanding. Default 16\n"
      "  --buffers N        Messages share so many buffers. Default: what 64 KiB hold, at least "
      "1,\n"
      "                     as weft perf does, so that memory is in the cache; else up to N\n"
      "  --seconds N        How long each measurement takes. Default 0.5\n"
      "  --rounds N         Rounds, of which the median counts. Default 3\n"
      "  --latency          Latency only\n"
      "  --bandwidth        Bandwidth only\n"
      "  --wait HOW         busy, adaptive or notify. Default busy\n"
      "  --no-pin           With --self: do not give each end a CPU of its own\n"
      "  --json             Results as JSON on stdout\n"
      "\n"
      "latency_us: half a round trip; persistent: one receive. cpu_s_per_gb: user and system time\n"
      "of both ends, smaller is better. direct: percent of the bytes that were placed without a "
      "copy.");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, ',');) out.push_back(item);
  return out;
}

[[noreturn]] void bad(const std::string& what) {
  std::fprintf(stderr, "exs-perf: %s; see exs-perf --help\n", what.c_str());
  std::exit(2);
}

struct Options {
  bool self = false;
  bool listen = false;
  bool once = false;
  bool json = false;
  bool pin = true;
  std::string port = kDefaultPort;
  std::string host;
  std::vector<Mode> modes;
  std::vector<std::size_t> sizes;
  int depth = 16;
  int buffers = 0;  // the usual
  double seconds = 0.5;
  int rounds = 3;
  bool latency = true;
  bool bandwidth = true;
  int wait = EXS_WAIT_BUSY_POLL;
};

long number(const char* text, const char* what, long least, long most) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < least || value > most) {
    bad(std::string(what) + " '" + text + "' is not a number from " + std::to_string(least) +
        " to " + std::to_string(most));
  }
  return value;
}

void take_option(Options& o, int option, const char* value) {
  switch (option) {
    case 's': o.self = true; break;
    case 'l':
      o.listen = true;
      o.port = std::to_string(number(value, "port", 0, 65535));
      break;
    case 'o': o.once = true; break;
    case 'j': o.json = true; break;
    case 'P': o.pin = false; break;
    case 'm':
      for (const std::string& name : split(value)) {
        const auto mode = mode_of(name);
        if (!mode)
          bad("--mode: '" + name +
              "' is no mode; it can be normal, immediate, persistent, stream, tcp or "
              "packet-tcp");
        o.modes.push_back(*mode);
      }
      break;
    case 'z':
      for (const std::string& size : split(value)) {
        o.sizes.push_back(static_cast<std::size_t>(number(size.c_str(), "size", 1, 1L << 30)));
      }
      break;
    case 'd': o.depth = static_cast<int>(number(value, "depth", 1, 1024)); break;
    case 'b': o.buffers = static_cast<int>(number(value, "buffers", 1, 1024)); break;
    case 't':
      o.seconds = std::atof(value);
      if (!(o.seconds > 0 && o.seconds <= 3600)) bad("--seconds takes more than 0, up to 3600");
      break;
    case 'r': o.rounds = static_cast<int>(number(value, "rounds", 1, 1000)); break;
    case 'L': o.bandwidth = false; break;
    case 'B': o.latency = false; break;
    case 'w': {
      const std::string how = value;
      if (how != "busy" && how != "adaptive" && how != "notify")
        bad("--wait: '" + how + "' is unknown; it can be busy, adaptive or notify");
      o.wait = how == "busy"     ? EXS_WAIT_BUSY_POLL
               : how == "notify" ? EXS_WAIT_NOTIFY
                                 : EXS_WAIT_ADAPTIVE;
      break;
    }
    case 'h': usage(); std::exit(0);
    default: std::fputs("exs-perf: see exs-perf --help\n", stderr); std::exit(2);
  }
}

Options parse(int argc, char** argv) {
  static const option kLong[] = {
      {"self", no_argument, nullptr, 's'},          {"listen", required_argument, nullptr, 'l'},
      {"once", no_argument, nullptr, 'o'},          {"json", no_argument, nullptr, 'j'},
      {"mode", required_argument, nullptr, 'm'},    {"size", required_argument, nullptr, 'z'},
      {"depth", required_argument, nullptr, 'd'},   {"buffers", required_argument, nullptr, 'b'},
      {"seconds", required_argument, nullptr, 't'}, {"rounds", required_argument, nullptr, 'r'},
      {"latency", no_argument, nullptr, 'L'},       {"bandwidth", no_argument, nullptr, 'B'},
      {"wait", required_argument, nullptr, 'w'},    {"help", no_argument, nullptr, 'h'},
      {"no-pin", no_argument, nullptr, 'P'},        {nullptr, 0, nullptr, 0}};
  Options o;
  for (int option = 0; (option = getopt_long(argc, argv, "h", kLong, nullptr)) != -1;) {
    take_option(o, option, optarg);
  }
  if (optind < argc) o.host = argv[optind++];
  if (optind < argc) bad(std::string("one server is enough: '") + argv[optind] + "'");
  if (static_cast<int>(o.self) + static_cast<int>(o.listen) + static_cast<int>(!o.host.empty()) !=
      1) {
    bad("say one of --self, --listen PORT and HOST[:PORT]");
  }
  if (!o.latency && !o.bandwidth) o.latency = o.bandwidth = true;
  if (o.modes.empty()) o.modes = all_modes();
  if (o.sizes.empty()) o.sizes = {64, 4096, 65536, 1U << 20U};
  if (const auto colon = o.host.rfind(':'); colon != std::string::npos) {
    o.port = o.host.substr(colon + 1);
    o.host.resize(colon);
  }
  return o;
}

void run_client(const Options& o, const std::string& host, const std::string& port) {
  Plan plan;
  plan.depth = static_cast<std::uint32_t>(o.depth);
  plan.milliseconds = static_cast<std::uint32_t>(o.seconds * 1000);
  plan.wait = static_cast<std::uint32_t>(o.wait);
  if (!o.json) {
    std::printf("%-11s %9s %12s %12s %14s %8s\n", "mode", "bytes", "latency_us", "MB/s",
                "cpu_s_per_gb", "direct");
  }
  std::string rows;
  Client client(host, port);
  for (const Mode mode : o.modes) {
    for (const std::size_t size : o.sizes) {
      if (!fits(mode, size)) continue;
      plan.mode = static_cast<std::uint32_t>(mode);
      plan.size = static_cast<std::uint32_t>(size);
      plan.buffers = o.buffers != 0 ? static_cast<std::uint32_t>(std::min(o.buffers, o.depth))
                                    : usual_buffers(size, plan.depth);
      const Result result = client.measure(plan, o.rounds, o.latency, o.bandwidth);
      if (o.json) {
        char row[256];
        std::snprintf(row, sizeof row,
                      "%s{\"mode\":\"%s\",\"bytes\":%zu,\"latency_us\":%.3f,\"mb_per_s\":%.1f,"
                      "\"cpu_s_per_gb\":%.3f,\"direct_percent\":%.1f}",
                      rows.empty() ? "" : ",", name_of(mode), size, result.latency_us,
                      result.mb_per_s, result.cpu_s_per_gb, result.direct_percent);
        rows += row;
      } else {
        std::printf("%-11s %9zu %12.2f %12.1f %14.3f %8.1f\n", name_of(mode), size,
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
  const Options o = parse(argc, argv);
  if (o.self) return run_self(o);
  if (o.listen) {
    serve("", o.port, o.once, [](int port) {
      std::printf("listening on port %d\n", port);
      std::fflush(stdout);
    });
    return 0;
  }
  run_client(o, o.host, o.port);
  return 0;
}
