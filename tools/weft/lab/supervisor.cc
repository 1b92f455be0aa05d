#include "weft/lab/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "weft/common/message.h"
#include "weft/lab/frame_switch.h"
#include "weft/lab/host.h"
#include "weft/lab/line_output.h"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = LabMessage::Kind;

constexpr std::array kLabEndings{SIGINT, SIGTERM, SIGHUP};
// After the first end that ends the lab, the other commands have so long to end too.
constexpr std::chrono::seconds kLabGrace{2};

struct HostEnd {
  pid_t pid = -1;
  UniqueFd lab;
};

// A command that runs: one of the lab, or one that a host has asked for.
struct Running {
  unsigned host = 0;
  bool of_lab = false;
  UniqueFd asked_by;  // to be told of its end
};

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

Outcome<int> fork_process() {
  const pid_t pid = fork();
  if (pid >= 0) return static_cast<int>(pid);
  return failure(fmt::format("a process cannot be made: {}", std::strerror(errno)));
}

class Lab {
 public:
  explicit Lab(HostPlan plan) : plan_(std::move(plan)) {}
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;
  // Hosts go with their first process, and that goes with its connection.
  ~Lab() {
    for (HostEnd& host : hosts_) {
      host.lab.reset();
      if (!plan_.loopback) kill(host.pid, SIGKILL);
      while (waitpid(host.pid, nullptr, 0) < 0 && errno == EINTR) continue;
    }
  }

  Outcome<void> make_hosts(const lab::Link& link) {
    for (plan_.rank = 0; plan_.rank < plan_.hosts; ++plan_.rank) {
      if (auto made = make_host(); !made) return made;
    }
    std::vector<UniqueFd> ports;
    for (const HostEnd& host : hosts_) {
      LabMessage told;
      if (!receive_message(host.lab.get(), told) || told.kind != Kind::kReady) {
        return failure(told.text.empty() ? "a host has ended while it was made" : told.text);
      }
      if (!plan_.loopback) ports.push_back(std::move(told.fds.at(0)));
    }
    if (plan_.loopback) return {};
    switch_ = std::make_unique<FrameSwitch>(link, std::move(ports));
    return {};
  }

  // From then on signals come by a descriptor.
  Outcome<int> run(const std::vector<lab::Command>& commands, std::optional<unsigned> until) {
    until_ = until;
    sigset_t endings;
    sigemptyset(&endings);
    for (const int signal : kLabEndings) {
      if (!is_ignored(signal)) sigaddset(&endings, signal);  // as by nohup
    }
    sigprocmask(SIG_BLOCK, &endings, nullptr);
    signals_ = UniqueFd(signalfd(-1, &endings, SFD_CLOEXEC | SFD_NONBLOCK));
    for (std::size_t i = 0; i < commands.size(); ++i) {
      if (auto started = start(i, commands[i].rank, commands.size() == 1); !started)
        return tl::unexpected(started.error());
    }
    while (!over()) step();
    finish_output();
    return status_;
  }
  [[nodiscard]] std::uint64_t lost() const { return switch_ != nullptr ? switch_->lost() : 0; }

 private:
  Outcome<void> make_host() {
    Outcome<LabPair> pair = make_lab_pair();
    if (!pair) return tl::unexpected(pair.error());
    const Outcome<int> pid = plan_.loopback ? fork_process() : fork_host();
    if (!pid) return tl::unexpected(pid.error());
    if (*pid == 0) {
      for (HostEnd& host : hosts_) host.lab.reset();
      pair->one.reset();
      run_host(plan_, std::move(pair->other));
    }
    hosts_.push_back({*pid, std::move(pair->one)});
    return {};
  }

  Outcome<void> start(std::size_t command, unsigned host, bool alone) {
    LabMessage order;
    order.kind = Kind::kStart;
    order.id = next_id_++;
    order.value = static_cast<std::int32_t>(command);
    order.fds.emplace_back(alone ? dup(STDIN_FILENO) : open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      Outcome<UniqueFd> to =
          alone ? UniqueFd(dup(stream)) : output_.add(stream, "[" + lab::host_name(host) + "] ");
      if (!to) return tl::unexpected(to.error());
      order.fds.push_back(std::move(*to));
    }
    if (!send_message(hosts_[host].lab.get(), order, SendWait::kNo))
      return failure(fmt::format("{}: {}", lab::host_name(host), std::strerror(errno)));
    running_[order.id] = {host, true, {}};
    return {};
  }

  [[nodiscard]] bool over() const {
    if (ends_at_ && (Clock::now() >= *ends_at_ || !any_of_lab())) return true;
    return !any_of_lab();
  }
  [[nodiscard]] bool any_of_lab() const {
    return std::ranges::any_of(running_, [](const auto& one) { return one.second.of_lab; });
  }

  void step() {
    std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
    for (const HostEnd& host : hosts_) polled.push_back({host.lab.get(), POLLIN, 0});
    std::vector<std::uint32_t> askers;
    for (const auto& [id, one] : running_) {
      if (!one.asked_by) continue;
      polled.push_back({one.asked_by.get(), POLLIN, 0});
      askers.push_back(id);
    }
    const std::size_t users = polled.size();
    for (const UniqueFd& user : users_) polled.push_back({user.get(), POLLIN, 0});
    output_.add_to(polled);
    if (poll(polled.data(), polled.size(), wait_ms()) < 0 && errno != EINTR) return;
    output_.serve(polled);
    for (std::size_t i = users_.size(); i-- > 0;) {
      if (polled[users + i].revents != 0) serve_user(i);
    }
    for (std::size_t i = 0; i < askers.size(); ++i) {
      if (polled[1 + hosts_.size() + i].revents != 0) hear_from_asker(askers[i]);
    }
    for (unsigned host = 0; host < plan_.hosts; ++host) {
      if (polled[1 + host].revents != 0) hear_from_host(host);
    }
    if (polled[0].revents != 0) take_signal();
  }
  [[nodiscard]] int wait_ms() const {
    if (!ends_at_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*ends_at_ - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }

  void hear_from_host(unsigned host) {
    LabMessage told;
    if (!receive_message(hosts_[host].lab.get(), told)) return lose_host(host);
    if (told.kind == Kind::kClient && !told.fds.empty()) users_.push_back(std::move(told.fds[0]));
    if (told.kind != Kind::kEnded) return;
    const auto one = running_.find(told.id);
    if (one == running_.end()) return;
    if (one->second.of_lab) {
      note_end(host, told.value);
    } else {
      send_message(one->second.asked_by.get(), told, SendWait::kNo);
    }
    running_.erase(one);
  }
  // Its first process was killed: a machine that has gone down.
  void lose_host(unsigned host) {
    say(fmt::format("{} has gone", lab::host_name(host)));
    for (auto one = running_.begin(); one != running_.end();) {
      const bool here = one->second.host == host;
      if (here && one->second.of_lab) note_end(host, kStatusOfSignal + SIGKILL);
      one = here ? running_.erase(one) : std::next(one);
    }
    hosts_[host].lab.reset();  // poll() passes over it
  }
  void note_end(unsigned host, int status) {
    if (status != 0 && status_ == 0 && !ends_at_) status_ = status;
    // Once: a command that has been told is in the midst of its end.
    if (!ends_at_ && (status != 0 || until_ == host)) end_soon(SIGTERM);
  }
  // The other commands are told, and have a moment.
  void end_soon(int signal) {
    if (!ends_at_) ends_at_ = Clock::now() + kLabGrace;
    for (const auto& [id, one] : running_) signal_to(id, signal);
  }
  void signal_to(std::uint32_t id, int signal) const {
    LabMessage order;
    order.kind = Kind::kSignal;
    order.id = id;
    order.value = signal;
    send_message(hosts_[running_.at(id).host].lab.get(), order, SendWait::kNo);
  }

  void take_signal() {
    signalfd_siginfo got;
    while (read(signals_.get(), &got, sizeof got) == sizeof got) {
      const int signal = static_cast<int>(got.ssi_signo);
      if (status_ == 0) status_ = kStatusOfSignal + signal;
      if (interrupted_) ends_at_ = Clock::now();  // a second one: at once
      interrupted_ = true;
      end_soon(signal);
    }
  }

  // A reader may be slow, as a pager is; after a signal it has a moment.
  void finish_output() {
    running_.clear();
    output_.take_rest();
    while (output_.waits() && !(interrupted_ && Clock::now() >= *ends_at_)) {
      std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
      output_.add_to(polled);
      if (poll(polled.data(), polled.size(), interrupted_ ? wait_ms() : -1) < 0) return;
      output_.serve(polled);
      if (polled[0].revents != 0) take_signal();
    }
  }

  // `weft lab exec` has connected, and says what it wants.
  void serve_user(std::size_t at) {
    UniqueFd user = std::move(users_[at]);
    users_.erase(users_.begin() + static_cast<std::ptrdiff_t>(at));
    LabMessage order;
    if (!receive_message(user.get(), order) || order.kind != Kind::kExec) return;
    if (order.fds.size() != 3) return;
    const std::string wanted = exec_of(order.text).host;
    for (unsigned host = 0; host < plan_.hosts; ++host) {
      if (wanted != lab::host_name(host) && wanted != lab::host_address(host)) continue;
      order.id = next_id_++;
      if (!send_message(hosts_[host].lab.get(), order, SendWait::kNo)) {
        return refuse(user,
                      fmt::format("{} takes no more commands: {}", wanted, std::strerror(errno)));
      }
      running_[order.id] = {host, false, std::move(user)};
      return;
    }
    refuse(user,
           fmt::format("'{}' is no host of this lab; they are h1 to h{}", wanted, plan_.hosts));
  }
  static void refuse(const UniqueFd& user, std::string why) {
    LabMessage refused;
    refused.kind = Kind::kFailed;
    refused.text = std::move(why);
    send_message(user.get(), refused, SendWait::kNo);
  }
  // It sends nothing more: it has gone, and what it started goes too.
  void hear_from_asker(std::uint32_t id) {
    const auto one = running_.find(id);
    if (one == running_.end()) return;
    signal_to(id, SIGHUP);
    one->second.asked_by.reset();
  }

  HostPlan plan_;
  std::vector<HostEnd> hosts_;
  std::unique_ptr<FrameSwitch> switch_;
  LineOutput output_;
  UniqueFd signals_;
  std::vector<UniqueFd> users_;  // who have not said yet what they want
  std::map<std::uint32_t, Running> running_;
  std::uint32_t next_id_ = 0;
  std::optional<unsigned> until_;
  std::optional<Clock::time_point> ends_at_;
  bool interrupted_ = false;
  int status_ = 0;
};

Outcome<std::optional<unsigned>> until_of(const LabOptions& options,
                                          const std::vector<lab::Command>& commands) {
  if (options.until.empty()) return std::optional<unsigned>();
  for (const lab::Command& command : commands) {
    if (options.until == lab::host_name(command.rank)) return std::optional(command.rank);
  }
  return usage_error(fmt::format("--until: no command runs on '{}'", options.until));
}

}  // namespace

Outcome<int> run_lab(const LabOptions& options) {
  const auto link = lab::parse_link(options.link);
  if (!link) return usage_error("--link: " + link.error());
  const auto hosts = static_cast<unsigned>(options.hosts);
  if (options.loopback && !options.link.empty())
    return usage_error("--loopback has no links, so --link does not go with it");
  const auto commands = lab::commands_of(options.program.program, hosts, options.loopback);
  if (!commands) return usage_error(commands.error());
  const auto until = until_of(options, *commands);
  if (!until) return tl::unexpected(until.error());
  HostPlan plan;
  plan.hosts = hosts;
  plan.network = network_of(*link);
  plan.plain = options.plain;
  plan.loopback = options.loopback;
  if (!plan.loopback) plan.terminal = controlling_terminal();
  for (const lab::Command& command : *commands) {
    plan.commands.push_back(options.program);
    plan.commands.back().program = command.words;
  }
  const auto user = options.loopback ? Outcome<LabUser>(LabUser{}) : enter_lab();
  if (!user) return tl::unexpected(user.error());
  plan.user = *user;
  Lab lab(std::move(plan));
  if (auto made = lab.make_hosts(*link); !made) return tl::unexpected(made.error());
  const auto status = lab.run(*commands, *until);
  if (lab.lost() != 0)
    say(fmt::format("{} frames were lost: a queue was full (--link queue=), or a host was too busy",
                    lab.lost()));
  return status;
}

}  // namespace weft::cli
