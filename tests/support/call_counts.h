// The system calls that processes make, counted by a parent that follows them (ptrace).
//
// The parts run in processes of their own, children of the caller, and mark their way by
// mark_calls(). All threads of a process count, those that no part knows of too.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::test {

// Numbers of calls, in their order.
using Calls = std::vector<long>;

// For those that are counted: it does nothing else.
inline void mark_calls() { static_cast<void>(::syscall(SYS_getppid)); }

// "2 recvfrom, 1 sendto"
inline std::string describe(const Calls& calls) {
  static constexpr std::array<std::pair<long, std::string_view>, 36> kNames{{
      {SYS_eventfd2, "eventfd2"},
      {SYS_epoll_create1, "epoll_create1"},
      {SYS_recvmsg, "recvmsg"},
      {SYS_sendmsg, "sendmsg"},
      {SYS_accept4, "accept4"},
      {SYS_bind, "bind"},
      {SYS_brk, "brk"},
      {SYS_clock_nanosleep, "clock_nanosleep"},
      {SYS_close, "close"},
      {SYS_connect, "connect"},
      {SYS_epoll_ctl, "epoll_ctl"},
      {SYS_epoll_pwait, "epoll_pwait"},
      {SYS_epoll_pwait2, "epoll_pwait2"},
      {SYS_epoll_wait, "epoll_wait"},
      {SYS_fcntl, "fcntl"},
      {SYS_futex, "futex"},
      {SYS_getpeername, "getpeername"},
      {SYS_getrandom, "getrandom"},
      {SYS_getsockname, "getsockname"},
      {SYS_getsockopt, "getsockopt"},
      {SYS_madvise, "madvise"},
      {SYS_mmap, "mmap"},
      {SYS_mprotect, "mprotect"},
      {SYS_munmap, "munmap"},
      {SYS_poll, "poll"},
      {SYS_ppoll, "ppoll"},
      {SYS_pread64, "pread64"},
      {SYS_preadv2, "preadv2"},
      {SYS_prlimit64, "prlimit64"},
      {SYS_read, "read"},
      {SYS_recvfrom, "recvfrom"},
      {SYS_sched_yield, "sched_yield"},
      {SYS_sendto, "sendto"},
      {SYS_setsockopt, "setsockopt"},
      {SYS_socket, "socket"},
      {SYS_write, "write"},
  }};
  std::map<std::string, int> counts;
  for (const long call : calls) {
    const auto known = std::ranges::find(kNames, call, &std::pair<long, std::string_view>::first);
    ++counts[known != kNames.end() ? std::string(known->second) : std::to_string(call)];
  }
  std::string out;
  for (const auto& [name, count] : counts) {
    out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  }
  return out;
}

// Runs parts side by side, and counts. Once; the caller has no other child and no other thread.
class CallCounter {
 public:
  explicit CallCounter(const std::vector<std::function<void()>>& parts) : of_(parts.size()) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const pid_t child = ::fork();
      if (child == 0) run_part(parts[i]);
      parts_[child] = i;
    }
  }
  CallCounter(const CallCounter&) = delete;
  CallCounter& operator=(const CallCounter&) = delete;

  // Until all have ended. False: tracing is not allowed here.
  [[nodiscard]] bool follow() {
    int status = 0;
    for (pid_t thread = next(status); thread > 0; thread = next(status)) {
      if (!WIFSTOPPED(status)) {
        if (parts_.contains(thread)) failed_ |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        not_allowed_ |= WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed;
        continue;
      }
      int signal = WSTOPSIG(status);
      if (signal == (SIGTRAP | 0x80)) note(thread);
      const bool ours = signal == (SIGTRAP | 0x80) || signal == SIGTRAP || signal == SIGSTOP;
      if (signal == SIGSTOP && parts_.contains(thread)) begin(thread);
      if (ours) signal = 0;
      ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
    }
    return !not_allowed_;
  }
  // A part has failed a check of its own, or has not come to its end.
  [[nodiscard]] bool failed() const { return failed_; }
  // The calls of part `i` between its first mark and its second, its third and its fourth, ...
  [[nodiscard]] std::vector<Calls> between_marks(std::size_t i) const {
    std::vector<Calls> out;
    for (std::size_t mark = 0; mark + 1 < of_.at(i).size(); mark += 2) out.push_back(of_[i][mark]);
    return out;
  }

 private:
  static constexpr int kNotAllowed = 77;

  [[noreturn]] static void run_part(const std::function<void()>& part) {
    ::alarm(60);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kNotAllowed);
    ::raise(SIGSTOP);
    part();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  static void begin(pid_t child) {
    ::ptrace(PTRACE_SETOPTIONS, child, nullptr,
             PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
  }
  // The thread that has stopped or ended; -1: all are gone.
  static pid_t next(int& status) {
    while (true) {
      const pid_t thread = ::waitpid(-1, &status, __WALL);
      if (thread > 0 || errno != EINTR) return thread;
    }
  }

  void note(pid_t thread) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return;
    const auto call = static_cast<long>(info.entry.nr);
    std::vector<Calls>& mine = of_[part_of(thread)];
    if (call == SYS_getppid) {
      mine.emplace_back();
    } else if (!mine.empty()) {
      mine.back().push_back(call);
    }
  }
  std::size_t part_of(pid_t thread) {
    const auto known = parts_of_threads_.find(thread);
    if (known != parts_of_threads_.end()) return known->second;
    std::ifstream text("/proc/" + std::to_string(thread) + "/status");
    pid_t process = thread;
    for (std::string word; text >> word;) {
      if (word == "Tgid:") {
        text >> process;
        break;
      }
    }
    return parts_of_threads_[thread] = parts_.at(process);
  }

  std::map<pid_t, std::size_t> parts_;  // by process
  std::map<pid_t, std::size_t> parts_of_threads_;
  std::vector<std::vector<Calls>> of_;
  bool failed_ = false;
  bool not_allowed_ = false;
};

}  // namespace weft::test
