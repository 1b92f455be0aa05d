#include "weft/common/self.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "weft/common/net.h"
#include "weft/common/sysinfo.h"

namespace weft::cli {
namespace {

constexpr int kStartTimeoutMs = 20'000;
constexpr std::int64_t kEndPatienceNs = 3'000'000'000;

// In the child: only calls that are safe after fork.
[[noreturn]] void become_server(const std::vector<char*>& argv, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailure);  // it had gone before that took effect
  execv("/proc/self/exe", argv.data());
  _exit(kExitFailure);
}

// The port, as a line; 0 if the server ended or said nothing in time.
std::uint16_t read_port(int fd) {
  std::string text;
  while (text.find('\n') == std::string::npos && text.size() < 16) {
    char c = 0;
    if (!wait_readable(fd, kStartTimeoutMs) || read(fd, &c, 1) != 1) return 0;
    text += c;
  }
  return static_cast<std::uint16_t>(std::strtoul(text.c_str(), nullptr, 10));
}

}  // namespace

Outcome<ServerProcess> ServerProcess::start(std::vector<std::string> arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return failure(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  // The child's copy must survive exec: a duplicate without the flag, on a number it is told.
  const int inherited = fcntl(writer.get(), F_DUPFD, 3);
  UniqueFd duplicate(inherited);
  arguments.insert(arguments.begin(), "weft");
  arguments.push_back("--announce-fd");
  arguments.push_back(std::to_string(inherited));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return failure(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (pid == 0) become_server(argv, parent);
  writer.reset();
  duplicate.reset();
  ServerProcess process(pid, read_port(reader.get()));
  if (process.port_ == 0) return failure("the server process did not start; see above for why");
  return process;
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), port_(other.port_) {}

void ServerProcess::tell_to_end() const { kill(pid_, SIGTERM); }

ServerProcess::~ServerProcess() {
  if (pid_ < 0) return;
  const std::int64_t deadline = now_ns() + kEndPatienceNs;
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (now_ns() > deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      return;
    }
    usleep(2000);
  }
}

PinPair choose_pins() {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) return {};
  return {cpus[0], cpus[1]};
}

std::string pin_text(int cpu) { return cpu < 0 ? "not pinned" : fmt::format("cpu {}", cpu); }

}  // namespace weft::cli
