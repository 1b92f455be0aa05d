#include "weft/lab/host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "lab/commands.h"
#include "weft/common/message.h"

namespace weft::cli {
namespace {

constexpr int kBacklog = 64;

int status_of(int status) {
  return WIFSIGNALED(status) ? kStatusOfSignal + WTERMSIG(status) : WEXITSTATUS(status);
}

void leave_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) std::signal(signal, SIG_DFL);
}

[[noreturn]] void execute(const std::string& file, const std::vector<std::string>& words) {
  const std::vector<char*> arguments = as_arguments(words);
  execvp(file.c_str(), arguments.data());
  say(fmt::format("{}: {}", file, std::strerror(errno)));
  _exit(errno == ENOENT ? kExitCannotExecute + 1 : kExitCannotExecute);
}

[[noreturn]] void give_up(const Failure& why) { _exit(report_failure(why)); }

// Descriptors 0 to 2 of a process that is to be.
void take_streams(const std::vector<UniqueFd>& fds) {
  for (std::size_t i = 0; i < fds.size(); ++i) dup2(fds[i].get(), static_cast<int>(i));
}

class Host {
 public:
  Host(const HostPlan& plan, UniqueFd lab) : plan_(plan), lab_(std::move(lab)) {}

  [[nodiscard]] bool set_up() {
    LabMessage told;
    if (plan_.loopback) return send_message(lab_.get(), told, SendWait::kYes);
    auto frames = set_up_host(plan_.rank, plan_.hosts, plan_.network, plan_.terminal);
    Outcome<void> ready;
    if (frames) ready = listen_for_users();
    if (!frames || !ready) {
      told.kind = LabMessage::Kind::kFailed;
      told.text = frames ? ready.error().message : frames.error().message;
    } else {
      told.fds.push_back(std::move(*frames));
    }
    return send_message(lab_.get(), told, SendWait::kYes) && told.kind == LabMessage::Kind::kReady;
  }

  void serve() {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, nullptr);
    const UniqueFd children(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    for (;;) {
      std::array<pollfd, 3> polled{
          {{lab_.get(), POLLIN, 0}, {children.get(), POLLIN, 0}, {users_.get(), POLLIN, 0}}};
      if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
      if (polled[1].revents != 0) reap(children.get());
      if (polled[2].revents != 0) hand_over_user();
      if (polled[0].revents != 0 && !obey()) return;
    }
  }

  void end_all() const {
    for (const auto& [id, pid] : running_) kill(-pid, SIGKILL);
    for (const pid_t pid : ended_) kill(-pid, SIGKILL);
  }

 private:
  // `weft lab exec`, and launchers that use it, connect here.
  Outcome<void> listen_for_users() {
    users_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    const std::string path = lab_file("socket");
    std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
    if (bind(users_.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 ||
        listen(users_.get(), kBacklog) != 0) {
      return failure(fmt::format("{}: {}", path, std::strerror(errno)));
    }
    return write_launcher();
  }
  // For those that take the name of one program to reach other hosts by.
  static Outcome<void> write_launcher() {
    std::array<char, 4096> self{};
    const std::string path = lab_file("sh");
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0755));
    if (!fd || readlink("/proc/self/exe", self.data(), self.size() - 1) < 0)
      return failure(fmt::format("{}: {}", path, std::strerror(errno)));
    const std::string text = fmt::format("#!/bin/sh\nexec '{}' lab exec \"$@\"\n", self.data());
    if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return failure(fmt::format("{}: {}", path, std::strerror(errno)));
    return {};
  }

  void hand_over_user() {
    LabMessage told;
    told.kind = LabMessage::Kind::kClient;
    told.fds.emplace_back(accept4(users_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (told.fds.front()) send_message(lab_.get(), told, SendWait::kNo);  // or it is refused
  }

  bool obey() {
    LabMessage order;
    if (!receive_message(lab_.get(), order)) return false;
    if (order.kind == LabMessage::Kind::kSignal) {
      const auto one = running_.find(order.id);
      if (one != running_.end()) kill(-one->second, order.value);
      return true;
    }
    const pid_t pid = fork();
    if (pid == 0) become(order);
    if (pid < 0) {
      tell_end(order.id, kExitCannotExecute);
    } else {
      setpgid(pid, pid);
      running_[order.id] = pid;
    }
    return true;
  }

  [[noreturn]] void become(const LabMessage& order) const {
    setpgid(0, 0);
    take_streams(order.fds);
    leave_signals();
    setenv("WEFT_LAB_RANK", std::to_string(plan_.rank).c_str(), 1);
    setenv("WEFT_LAB_HOSTS", std::to_string(plan_.hosts).c_str(), 1);
    // Names of hosts are addresses then (check/module/peer_names.h).
    plan_.loopback ? setenv("WEFT_LAB_LOOPBACK", "1", 1) : unsetenv("WEFT_LAB_LOOPBACK");
    if (plan_.loopback) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      become_command(plan_.commands.at(static_cast<std::size_t>(order.value)));
    }
    if (auto user = become_user(plan_.user); !user) give_up(user.error());
    setenv("XDG_RUNTIME_DIR", lab_file("run").c_str(), 1);
    if (order.kind == LabMessage::Kind::kExec) become_exec(exec_of(order.text));
    become_command(plan_.commands.at(static_cast<std::size_t>(order.value)));
  }
  [[noreturn]] static void become_exec(const LabExec& exec) {
    if (chdir(exec.folder.c_str()) != 0) static_cast<void>(chdir("/") == 0);
    clearenv();
    for (const std::string& variable : exec.environment) {
      const std::size_t equals = variable.find('=');
      if (equals != std::string::npos)
        setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
    }
    setenv("XDG_RUNTIME_DIR", lab_file("run").c_str(), 1);
    execute("/bin/sh", {"sh", "-c", exec.command});
  }
  [[noreturn]] void become_command(const ProgramOptions& command) const {
    if (!plan_.loopback) set_up_launchers();
    if (plan_.plain) execute(command.program.front(), command.program);
    const Outcome<Prepared> prepared = prepare(command);
    if (!prepared) give_up(prepared.error());
    execute(prepared->path, command.program);
  }
  // Open MPI and MPICH start their daemons on other hosts by a program like ssh.
  void set_up_launchers() const {
    std::string names;
    for (unsigned rank = 0; rank < plan_.hosts; ++rank) names += lab::host_name(rank) + "\n";
    const std::string list = lab_file("run/hosts");
    if (const UniqueFd fd(open(list.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)); fd)
      static_cast<void>(write(fd.get(), names.data(), names.size()) == 0);
    const std::string launcher = lab_file("sh");
    setenv("OMPI_MCA_plm_rsh_agent", launcher.c_str(), 0);
    setenv("OMPI_MCA_orte_default_hostfile", list.c_str(), 0);
    setenv("PRTE_MCA_plm_ssh_agent", launcher.c_str(), 0);
    setenv("PRTE_MCA_prte_default_hostfile", list.c_str(), 0);
    setenv("HYDRA_LAUNCHER", "ssh", 0);
    setenv("HYDRA_LAUNCHER_EXEC", launcher.c_str(), 0);
    setenv("HYDRA_HOST_FILE", list.c_str(), 0);
  }

  void reap(int children) {
    signalfd_siginfo unused;
    while (read(children, &unused, sizeof unused) > 0) continue;
    if (plan_.loopback) return note_ends();
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      for (auto one = running_.begin(); one != running_.end(); ++one) {
        if (one->second != pid) continue;
        const std::uint32_t id = one->first;
        running_.erase(one);
        tell_end(id, status_of(status));
        break;
      }
    }
  }
  // Without hosts what a command has left behind ends by its group. So these stay as they are: the
  // number of the group is nobody else's until then.
  void note_ends() {
    for (auto one = running_.begin(); one != running_.end();) {
      siginfo_t how{};
      const int got =
          waitid(P_PID, static_cast<id_t>(one->second), &how, WEXITED | WNOHANG | WNOWAIT);
      if (got != 0 || how.si_pid == 0) {
        ++one;
        continue;
      }
      ended_.push_back(one->second);
      tell_end(one->first, (how.si_code == CLD_EXITED ? 0 : kStatusOfSignal) + how.si_status);
      one = running_.erase(one);
    }
  }
  void tell_end(std::uint32_t id, int status) const {
    LabMessage told;
    told.kind = LabMessage::Kind::kEnded;
    told.id = id;
    told.value = status;
    send_message(lab_.get(), told, SendWait::kYes);
  }

  const HostPlan& plan_;
  UniqueFd lab_;
  UniqueFd users_;
  std::map<std::uint32_t, pid_t> running_;
  std::vector<pid_t> ended_;  // commands, with `loopback`
};

}  // namespace

void run_host(const HostPlan& plan, UniqueFd lab) {
  // On loopback it has to end its commands itself when the lab has gone.
  if (!plan.loopback) prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();  // the terminal's Ctrl-C is for the lab, which passes it on
  prctl(PR_SET_NAME, fmt::format("weft-lab-{}", lab::host_name(plan.rank)).c_str());
  Host host(plan, std::move(lab));
  if (host.set_up()) host.serve();
  host.end_all();
  _exit(kExitOk);
}

}  // namespace weft::cli
