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

#include "exs-perf/uring.h"
#include "weft/common/message.h"

namespace exs_perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr exs_qhandle_t kBlock = EXS_QHANDLE_INVALID;
constexpr exs_mhandle_t kPlain = EXS_MHANDLE_UNREGISTERED;
constexpr std::size_t kImmediateMost = 65536;
// Latency: round trips before the clock starts, and between two looks at it.
constexpr int kWarmUp = 200;
constexpr int kBetweenLooks = 16;
constexpr int kCloseSeconds = 5;
constexpr std::size_t kWholeFrom = 8192;  // streams: receives of more wait for all of it
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

void check(bool good, const char* what) {
  if (!good) fail_with(std::string(what) + ": " + std::strerror(errno));
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_stream(Mode mode) { return mode == Mode::kStream || mode == Mode::kTcp; }

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

// One end of a data connection: its socket, queue and memory.
class Side {
 public:
  Side(int fd, const Plan& plan)
      : fd_(fd),
        plan_(plan),
        queue_(exs_qcreate(static_cast<int>(3 * plan.depth + 16))),
        memory_(static_cast<std::size_t>(plan.size) * plan.buffers) {
    check(queue_ >= 0, "exs_qcreate");
    const int wait = static_cast<int>(plan.wait);
    check(exs_qmodify(queue_, EXS_QATTR_WAIT, &wait) == 0, "exs_qmodify");
    region_ = exs_mregister(memory_.data(), memory_.size(), 0);
    check(region_ >= 0, "exs_mregister");
    if (is_stream(mode()) && plan.size >= kWholeFrom) flags_ = MSG_WAITALL;
  }
  ~Side() {
    // In order: a reset could overtake the peer's answer. A peer that is gone is not waited for.
    const linger limit{1, kCloseSeconds};
    exs_setsockopt(fd_, SOL_SOCKET, SO_LINGER, &limit, sizeof limit);
    exs_close(fd_, kBlock, 0);
    exs_mderegister(region_);
    exs_qdelete(queue_);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  [[nodiscard]] Mode mode() const { return static_cast<Mode>(plan_.mode); }

  void send(std::uint32_t slot, int flags = 0) {
    check(exs_send(fd_, at(slot), plan_.size, flags, queue_, slot, region_) == 0, "exs_send");
  }
  void receive(std::uint32_t slot, int flags) {
    check(exs_recv(fd_, at(slot), plan_.size, flags, queue_, slot, region_) == 0, "exs_recv");
  }
  exs_event_t next() {
    exs_event_t event;
    check(exs_qdequeue(queue_, &event, 1, nullptr) == 1, "exs_qdequeue");
    if (event.error != 0) {
      fail_with(std::string(exs_strevent(event.type)) + ": " + std::strerror(event.error));
    }
    return event;
  }
  // Waits for a whole message; its own send may end meanwhile. False: the end of the stream.
  bool receive_one() {
    receive(0, is_stream(mode()) ? MSG_WAITALL : 0);
    for (;;) {
      const exs_event_t event = next();
      if (event.type == EXS_EVT_RECV) return exs_evt_length(&event) == plan_.size;
      --sending_;
    }
  }
  void send_one() {
    send(plan_.depth > 1 ? 1 : 0);
    ++sending_;
  }
  void settle() {
    while (sending_ > 0) {
      if (next().type == EXS_EVT_SEND) --sending_;
    }
  }
  void finish() { check(exs_shutdown(fd_, EXS_SHUT_WR, kBlock, 0) == 0, "exs_shutdown"); }

  double latency_us();
  void answer();
  std::uint64_t stream_out(double& seconds);
  void stream_in();
  double persistent_us();
  std::uint64_t read_persistent(double& seconds);
  void offer_persistent();

 private:
  std::uint8_t* at(std::uint32_t slot) {
    return memory_.data() + static_cast<std::size_t>(slot % plan_.buffers) * plan_.size;
  }
  [[nodiscard]] double wanted_seconds() const { return plan_.milliseconds / 1000.0; }

  int fd_;
  Plan plan_;
  exs_qhandle_t queue_;
  std::vector<std::uint8_t> memory_;
  exs_mhandle_t region_ = EXS_MHANDLE_INVALID;
  int flags_ = 0;
  int sending_ = 0;
};

double Side::latency_us() {
  const auto round = [this] {
    send_one();
    receive_one();
  };
  for (int i = 0; i < kWarmUp; ++i) round();
  const double us = median_us(wanted_seconds(), round) / 2;
  settle();
  finish();
  return us;
}

void Side::answer() {
  while (receive_one()) send_one();
  settle();
  finish();
}

// Sends for as long as the plan says; the time ends when the peer has everything.
std::uint64_t Side::stream_out(double& seconds) {
  const auto start = Clock::now();
  std::uint64_t messages = 0;
  for (std::uint32_t i = 0; i < plan_.depth; ++i) send(i);
  std::uint32_t outstanding = plan_.depth;
  while (outstanding != 0) {
    const exs_event_t event = next();
    ++messages;
    --outstanding;
    if (since(start) >= wanted_seconds()) continue;
    send(static_cast<std::uint32_t>(event.ahandle));
    ++outstanding;
  }
  finish();
  seconds = since(start);
  return messages * plan_.size;
}

// Twice as many receives as sends: the sender has finished one long before it has arrived.
void Side::stream_in() {
  const std::uint32_t receives = 2 * plan_.depth;
  for (std::uint32_t i = 0; i < receives; ++i) receive(i, flags_);
  std::uint32_t outstanding = receives;
  while (outstanding != 0) {
    const exs_event_t event = next();
    --outstanding;
    if (exs_evt_length(&event) == 0) continue;  // the end; the others find it too
    receive(static_cast<std::uint32_t>(event.ahandle), flags_);
    ++outstanding;
  }
  finish();
}

double Side::persistent_us() {
  const auto round = [this] {
    receive(0, 0);
    next();
  };
  for (int i = 0; i < kWarmUp; ++i) round();
  const double us = median_us(wanted_seconds(), round);
  finish();
  return us;
}

std::uint64_t Side::read_persistent(double& seconds) {
  const auto start = Clock::now();
  std::uint64_t messages = 0;
  for (std::uint32_t i = 0; i < plan_.depth; ++i) receive(i, 0);
  std::uint32_t outstanding = plan_.depth;
  while (outstanding != 0) {
    const exs_event_t event = next();
    ++messages;
    --outstanding;
    if (messages % kBetweenLooks == 0 && since(start) >= wanted_seconds()) break;
    receive(static_cast<std::uint32_t>(event.ahandle), 0);
    ++outstanding;
  }
  for (; outstanding != 0; --outstanding, ++messages) next();
  seconds = since(start);
  finish();
  return messages * plan_.size;
}

// The memory is offered until the client has finished.
void Side::offer_persistent() {
  send(0, EXS_PERSISTENT);
  receive(plan_.depth > 1 ? 1 : 0, 0);
  while (next().type != EXS_EVT_RECV) {
  }
  check(exs_cancel(fd_, EXS_CAF_FILDES, 0) == 0, "exs_cancel");
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
