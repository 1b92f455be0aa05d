#include "exs-perf/workload.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "exs-perf/side.h"
#include "exs-perf/uring.h"
#include "weft/common/message.h"

namespace exs_perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kImmediateMost = 65536;
constexpr std::uint32_t kDepthMax = 1024;
constexpr std::size_t kCachedBytes = 65536;

struct Name {
  Mode mode;
  const char* name;
};
constexpr Name kNames[] = {{Mode::kNormal, "normal"},
                           {Mode::kImmediate, "immediate"},
                           {Mode::kPersistent, "persistent"},
                           {Mode::kStream, "stream"},
                           {Mode::kTcp, "tcp"},
                           {Mode::kPacketTcp, "packet-tcp"},
                           {Mode::kUring, "uring"}};

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

int make_socket(int domain, Mode mode, std::size_t size) {
  const int fd = exs_socket(domain, is_stream(mode) ? SOCK_STREAM : SOCK_SEQPACKET, 0);
  check(fd >= 0, "exs_socket");
  const bool tcp = mode == Mode::kTcp || mode == Mode::kPacketTcp;
  check(exs_fcntl(fd, EXS_F_SETPROVIDER, tcp ? EXS_PROVIDER_TCP : EXS_PROVIDER_RDMA) == 0,
        "exs_fcntl");
  long immediate = 4096;
  if (mode == Mode::kNormal) immediate = 0;
  if (mode == Mode::kImmediate) immediate = std::max<long>(immediate, static_cast<long>(size));
  check(exs_fcntl(fd, EXS_F_SETIMMEDIATE, immediate) == 0, "exs_fcntl");
  return fd;
}

addrinfo* resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    fail_with(host + ": " + gai_strerror(error) + "; check the spelling of the name");
  }
  return found;
}

std::string shown(const std::string& host, const std::string& port) {
  const bool colons = host.find(':') != std::string::npos;
  return (colons ? "[" + host + "]:" : host + ":") + port;
}

sockaddr_storage name_of_socket(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  check(exs_getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0, "exs_getsockname");
  return name;
}

// The family that the client of an accepted connection uses. Not every RDMA device lets clients of
// IPv4 come to a listener of IPv6.
int family_of(int fd) {
  const sockaddr_storage name = name_of_socket(fd);
  const auto& six = reinterpret_cast<const sockaddr_in6&>(name);
  const bool is_six = name.ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
  return is_six ? AF_INET6 : AF_INET;
}

int port_of(int fd) {
  sockaddr_storage name = name_of_socket(fd);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

int connect_to(const std::string& host, const std::string& port, Mode mode, std::size_t size) {
  addrinfo* to = resolve(host, port, 0);
  const int fd = make_socket(to->ai_family, mode, size);
  if (exs_connect(fd, to->ai_addr, to->ai_addrlen, 0, kBlock, 0) != 0) {
    fail_with(shown(host, port) + ": " + std::strerror(errno) + "; start `exs-perf --listen " +
              port + "` there");
  }
  freeaddrinfo(to);
  return fd;
}

// False: the end of the stream.
bool read_all(int fd, void* to, std::size_t size) {
  const ssize_t got = exs_recv(fd, to, size, MSG_WAITALL, kBlock, 0, kPlain);
  check(got >= 0, "exs_recv");
  return static_cast<std::size_t>(got) == size;
}

void write_all(int fd, const void* from, std::size_t size) {
  check(exs_send(fd, from, size, 0, kBlock, 0, kPlain) == static_cast<ssize_t>(size), "exs_send");
}

double direct_percent(int fd) {
  exs_stats_t stats{};
  stats.size = sizeof stats;
  check(exs_stats(fd, &stats) == 0, "exs_stats");
  const auto all = static_cast<double>(stats.bytes_sent + stats.bytes_received);
  return all == 0 ? 0 : 100 * static_cast<double>(stats.direct_sent + stats.direct_received) / all;
}

// What the server tells the client when a measurement is over.
struct Report {
  double cpu_seconds = 0;
};

void serve_uring(int control, const Plan& plan, int domain) {
  const UringListener listener = uring_listen(domain);
  write_all(control, &listener.port, sizeof listener.port);
  Report report;
  const double before = cpu_seconds();
  uring_serve(listener, plan);
  report.cpu_seconds = cpu_seconds() - before;
  write_all(control, &report, sizeof report);
}

void serve_plan(int control, const Plan& plan, int domain) {
  const Mode mode = static_cast<Mode>(plan.mode);
  if (mode == Mode::kUring) return serve_uring(control, plan, domain);
  const int listener = make_socket(domain, mode, plan.size);
  if (exs_listen(listener, 1) != 0) {
    const std::string why = std::string(name_of(mode)) + ": " + std::strerror(errno);
    fail_with(errno == ENODEV ? why +
                                    "; start both ends under `weft run`, or choose --mode "
                                    "tcp,packet-tcp"
                              : why);
  }
  const auto port = static_cast<std::uint32_t>(port_of(listener));
  write_all(control, &port, sizeof port);
  const int fd = exs_accept(listener, nullptr, 0, 0, kBlock, 0);
  check(fd >= 0, "exs_accept");
  check(exs_close(listener, kBlock, 0) == 0, "exs_close");
  Report report;
  {
    Side side(fd, plan);
    const double before = cpu_seconds();
    if (mode == Mode::kPersistent) {
      side.offer_persistent();
    } else if (plan.latency != 0) {
      side.answer();
    } else {
      side.stream_in();
    }
    report.cpu_seconds = cpu_seconds() - before;
  }
  write_all(control, &report, sizeof report);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

double median_us(double seconds, const std::function<void()>& round) {
  std::vector<double> times;
  const auto start = Clock::now();
  auto before = start;
  do {
    round();
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double, std::micro>(now - before).count());
    before = now;
  } while (std::chrono::duration<double>(before - start).count() < seconds);
  return median(std::move(times));
}

void fail_with(const std::string& what) {
  std::exit(weft::cli::report_failure({what, weft::cli::kExitFailure}));
}

std::optional<Mode> mode_of(const std::string& name) {
  for (const Name& one : kNames) {
    if (name == one.name) return one.mode;
  }
  return std::nullopt;
}

const char* name_of(Mode mode) { return kNames[static_cast<std::size_t>(mode)].name; }

std::vector<Mode> all_modes() {
  std::vector<Mode> out;
  for (const Name& one : kNames) {
    if (one.mode != Mode::kUring || uring_missing().empty()) out.push_back(one.mode);
  }
  return out;
}

bool fits(Mode mode, std::size_t size) {
  return mode != Mode::kImmediate || size <= kImmediateMost;
}

std::uint32_t usual_buffers(std::size_t size, std::uint32_t depth) {
  const auto fitting = static_cast<std::uint32_t>(kCachedBytes / size);
  return std::clamp<std::uint32_t>(fitting, 1, depth);
}

Client::Client(const std::string& host, const std::string& port) : host_(host) {
  check(exs_init(EXS_VERSION) == 0, "exs_init");
  control_ = connect_to(host, port, Mode::kTcp, 0);
}

Client::~Client() { exs_close(control_, kBlock, 0); }

Result Client::measure_once(const Plan& plan) {
  write_all(control_, &plan, sizeof plan);
  std::uint32_t port = 0;
  if (!read_all(control_, &port, sizeof port))
    fail_with(host_ + ": the server has gone; start it again");
  const Mode mode = static_cast<Mode>(plan.mode);
  Result result;
  double seconds = 0;
  std::uint64_t bytes = 0;
  double cpu = 0;
  Report report;
  if (mode == Mode::kUring) {
    const double before = cpu_seconds();
    const UringOutcome outcome = uring_measure(host_, port, plan);
    cpu = cpu_seconds() - before;
    result.latency_us = outcome.latency_us;
    seconds = outcome.seconds;
    bytes = outcome.bytes;
    if (!read_all(control_, &report, sizeof report))
      fail_with(host_ + ": the server has gone; start it again");
  } else {
    const int fd = connect_to(host_, std::to_string(port), mode, plan.size);
    Side side(fd, plan);
    const double before = cpu_seconds();
    const bool persistent = mode == Mode::kPersistent;
    if (plan.latency != 0) {
      result.latency_us = persistent ? side.persistent_us() : side.latency_us();
    } else {
      bytes = persistent ? side.read_persistent(seconds) : side.stream_out(seconds);
    }
    cpu = cpu_seconds() - before;
    result.direct_percent = direct_percent(fd);
    if (!read_all(control_, &report, sizeof report))
      fail_with(host_ + ": the server has gone; start it again");
  }
  cpu += report.cpu_seconds;
  if (plan.latency == 0) {
    result.mb_per_s = static_cast<double>(bytes) / seconds / 1e6;
    result.cpu_s_per_gb = cpu / (static_cast<double>(bytes) / 1e9);
  }
  return result;
}

Result Client::measure(Plan plan, int rounds, bool latency, bool bandwidth) {
  std::vector<double> latencies{0};
  std::vector<double> rates{0};
  std::vector<double> cpus{0};
  std::vector<double> direct{0};
  if (latency) latencies.clear();
  if (bandwidth) {
    rates.clear();
    cpus.clear();
    direct.clear();
  }
  for (int i = 0; i < rounds; ++i) {
    if (latency) {
      plan.latency = 1;
      latencies.push_back(measure_once(plan).latency_us);
    }
    if (bandwidth) {
      plan.latency = 0;
      const Result one = measure_once(plan);
      rates.push_back(one.mb_per_s);
      cpus.push_back(one.cpu_s_per_gb);
      direct.push_back(one.direct_percent);
    }
  }
  return {median(latencies), median(rates), median(cpus), median(direct)};
}

void serve(const std::string& host, const std::string& port, bool once,
           const std::function<void(int)>& ready) {
  check(exs_init(EXS_VERSION) == 0, "exs_init");
  addrinfo* const found = resolve(host, port, AI_PASSIVE);
  // Where there is IPv6, its wildcard takes clients of both kinds.
  const addrinfo* at = found;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (host.empty() && one->ai_family == AF_INET6) at = one;
  }
  const int listener = make_socket(at->ai_family, Mode::kTcp, 0);
  if (exs_bind(listener, at->ai_addr, at->ai_addrlen) != 0) {
    fail_with((host.empty() ? "port " + port : shown(host, port)) + ": " + std::strerror(errno) +
              "; choose another with --listen");
  }
  freeaddrinfo(found);
  check(exs_listen(listener, 16) == 0, "exs_listen");
  ready(port_of(listener));
  do {
    const int control = exs_accept(listener, nullptr, 0, 0, kBlock, 0);
    check(control >= 0, "exs_accept");
    Plan plan;
    while (exs_recv(control, &plan, sizeof plan, MSG_WAITALL, kBlock, 0, kPlain) ==
           static_cast<ssize_t>(sizeof plan)) {
      const bool good = plan.mode <= static_cast<std::uint32_t>(Mode::kUring) && plan.size >= 1 &&
                        plan.size <= 1U << 30U && plan.depth >= 1 && plan.depth <= kDepthMax &&
                        plan.buffers >= 1 && plan.buffers <= kDepthMax;
      if (!good) break;
      serve_plan(control, plan, family_of(control));
    }
    exs_close(control, kBlock, 0);
  } while (!once);
}

}  // namespace exs_perf
