#include "weft/faults/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "weft/run/environment.h"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kOutputKept = 64 * 1024;
constexpr std::chrono::seconds kGrace{1};     // for processes that the program leaves
constexpr std::chrono::seconds kToVanish{5};  // for processes that were killed
constexpr int kStepMs = 2;
constexpr int kEndings[] = {SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t got_signal = 0;
void note_signal(int signal) { got_signal = signal; }

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Both ends of a pipe, closed in programs that are executed.
struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int which) {
    if (ends[which] >= 0) close(ends[which]);
    ends[which] = -1;
  }
};

// In the child; ends it if that fails.
[[noreturn]] void execute(const std::string& file, char* const* arguments, int output,
                          pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailure);
  setsid();  // the terminal's Ctrl-C is for the sweep
  const int nothing = open("/dev/null", O_RDONLY);
  if (dup2(nothing, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) _exit(kExitFailure);
  if (nothing > 2) close(nothing);
  for (const int signal : kEndings) std::signal(signal, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
  execv(file.c_str(), arguments);
  const char* why = std::strerror(errno);
  static_cast<void>(write(2, why, std::strlen(why)) == 0);
  _exit(kExitCannotExecute);
}

// The parent of a process; 0: it has ended.
pid_t parent_of(const std::string& pid) {
  std::ifstream in("/proc/" + pid + "/stat");
  std::string text;
  std::getline(in, text);
  const std::size_t name_end = text.rfind(')');  // a name may hold anything
  if (name_end == std::string::npos || name_end + 4 > text.size()) return 0;
  if (text[name_end + 2] == 'Z') return 0;
  return std::atoi(text.c_str() + name_end + 4);  // behind ") S "
}

// Those that there are now.
std::vector<pid_t> descendants() {
  std::map<pid_t, pid_t> parents;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    parents[std::atoi(name.c_str())] = parent_of(name);
  }
  const pid_t self = getpid();
  std::vector<pid_t> out;
  for (const auto& [pid, first_parent] : parents) {
    pid_t above = first_parent;
    for (int depth = 0; above > 1 && above != self && depth < 1000; ++depth) {
      const auto next = parents.find(above);
      above = next != parents.end() ? next->second : 0;
    }
    if (above == self) out.push_back(pid);
  }
  return out;
}

class Child {
 public:
  Child(pid_t pid, int output) : pid_(pid), output_(output) {}

  // Waits for a moment, and takes what there is of output and of ended processes.
  void step() {
    pollfd readable{output_, POLLIN, 0};
    const int ready = open_ ? poll(&readable, 1, kStepMs) : poll(nullptr, 0, kStepMs);
    if (ready > 0) read_output();
    reap();
  }
  void read_output() {
    constexpr int kMost = 64;  // a program may print faster than this reads
    char part[4096];
    ssize_t got = 1;
    for (int i = 0; i < kMost && (got = read(output_, part, sizeof part)) > 0; ++i) {
      end_.output.append(part, static_cast<std::size_t>(got));
      if (end_.output.size() > 2 * kOutputKept)
        end_.output.erase(0, end_.output.size() - kOutputKept);
    }
    if (got == 0) open_ = false;
  }
  void reap() {
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended != pid_) continue;
      main_ended_ = true;
      if (WIFSIGNALED(status)) end_.signal = WTERMSIG(status);
      if (WIFEXITED(status)) end_.status = WEXITSTATUS(status);
    }
    all_ended_ = ended < 0 && errno == ECHILD;
  }
  void kill_all() {
    const auto start = Clock::now();
    while (!all_ended_ && Clock::now() - start < kToVanish) {
      for (const pid_t pid : descendants()) kill(pid, SIGKILL);
      step();
    }
  }

  [[nodiscard]] bool main_ended() const { return main_ended_; }
  [[nodiscard]] bool all_ended() const { return all_ended_; }
  ChildEnd& end() { return end_; }

 private:
  const pid_t pid_;
  const int output_;
  bool open_ = true;
  bool main_ended_ = false;
  bool all_ended_ = false;
  ChildEnd end_;
};

void wait_for(Child& child, const TimeLimit& limit) {
  constexpr double kLookAfter = 0.05;
  const auto start = Clock::now();
  double most = limit.seconds;
  double next_look = kLookAfter;
  while (!child.main_ended() && got_signal == 0 && seconds_since(start) < most) {
    child.step();
    const double now = seconds_since(start);
    if (now < next_look) continue;
    next_look = limit.is_decided && limit.is_decided() ? limit.seconds : now + kLookAfter;
    if (next_look == limit.seconds) most = std::min(most, now + limit.seconds_then);
  }
  child.end().seconds = seconds_since(start);
  child.end().timed_out = !child.main_ended() && got_signal == 0;
  if (child.end().timed_out) child.end().alive = descendants();
  if (child.main_ended()) {
    const auto main_end = Clock::now();
    while (!child.all_ended() && got_signal == 0 && Clock::now() - main_end < kGrace) child.step();
  }
  child.kill_all();
  child.read_output();
  child.end().interrupted = got_signal;
}

}  // namespace

Outcome<void> prepare_for_children() {
  // Files that are opened later do not become the stdout of anything.
  int lowest = 0;
  do {
    lowest = open("/dev/null", O_RDWR);
  } while (lowest >= 0 && lowest <= 2);
  if (lowest >= 0) close(lowest);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return failure(fmt::format("prctl(PR_SET_CHILD_SUBREAPER): {}", std::strerror(errno)));
  std::signal(SIGCHLD, SIG_DFL);  // if it were ignored, nobody could be waited for
  for (const int signal : kEndings) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    sigaction(signal, &action, nullptr);
  }
  return {};
}

Outcome<ChildEnd> run_child(const std::string& file, const std::vector<std::string>& words,
                            const TimeLimit& limit) {
  Pipe pipe;
  if (pipe2(pipe.ends, O_CLOEXEC) != 0)
    return failure(fmt::format("pipe: {}", std::strerror(errno)));
  fcntl(pipe.ends[0], F_SETFL, O_NONBLOCK);
  const std::vector<char*> arguments = as_arguments(words);
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid < 0) return failure(fmt::format("fork: {}", std::strerror(errno)));
  if (pid == 0) execute(file, arguments.data(), pipe.ends[1], self);
  pipe.close_end(1);
  Child child(pid, pipe.ends[0]);
  wait_for(child, limit);
  return child.end();
}

}  // namespace weft::cli
