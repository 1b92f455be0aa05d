#include "files/data_serving.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>

#include "files/server/data_server.h"
#include "weft/common/message.h"

namespace weft::data {
namespace {

// For the handlers, which run in a thread of their own. None has it while g_handling is 0.
std::atomic<const files::Server*> g_server{nullptr};
std::atomic<int> g_handling{0};

void tell_server(void (files::Server::*what)() const) {
  ++g_handling;
  if (const files::Server* const server = g_server) (server->*what)();
  --g_handling;
}

// Whoever stops the server is not kept waiting by a disk that does not answer, or by a lease that
// another process keeps. To be ended here harms nothing: what is not whole has no name.
constexpr unsigned kEndSeconds = 2;

void on_signal(int) {
  static volatile std::sig_atomic_t ending = 0;
  if (ending == 0) alarm(kEndSeconds);
  ending = 1;
  tell_server(&files::Server::stop);
}

void on_late_end(int) {
  constexpr std::string_view kText =
      "weft serve: ended without waiting for the disk, which still has something to do\n";
  static_cast<void>(!write(STDERR_FILENO, kText.data(), kText.size()));
  _exit(0);
}

void on_reload(int) { tell_server(&files::Server::reload); }

// They end the server in good order, or have it read its token again. A caller may have blocked
// them until now. A thread of their own takes them: the kernel runs no handler in one that waits
// for a file system of the network or of FUSE.
void handle_signals() {
  sigset_t ours;
  sigemptyset(&ours);
  const auto handle = [&](int one, void (*handler)(int), int flags) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(one, &action, nullptr);
    sigaddset(&ours, one);
  };
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    sigaction(one, nullptr, &now);
    if (one == SIGHUP && now.sa_handler == SIG_IGN) continue;  // nohup
    handle(one, on_signal, 0);
  }
  handle(SIGUSR1, on_reload, SA_RESTART);
  handle(SIGALRM, on_late_end, 0);
  sigprocmask(SIG_BLOCK, &ours, nullptr);
  std::thread([ours] {
    pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
    for (;;) pause();
  }).detach();
}

int fail(const files::Failed& why) { return cli::report_failure({why.text(), cli::kExitFailure}); }

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int serve(const files::ServeOptions& options, int announce_fd) {
  raise_descriptor_limit();
  umask(0);  // whoever makes a file has one of their own
  auto server = files::Server::create(options);
  if (!server) return fail(server.error());
  g_server = server->get();
  handle_signals();
  std::fprintf(stderr, "weft serve: listening on port %u%s\n", unsigned{(*server)->port()},
               options.writable ? ", writable" : "");
  if (announce_fd >= 0) {
    dprintf(announce_fd, "%u\n", unsigned{(*server)->port()});
    close(announce_fd);
  }
  const auto done = (*server)->run();
  std::fprintf(stderr, "weft serve: %s\n", (*server)->counters().text().c_str());
  g_server = nullptr;
  while (g_handling != 0) std::this_thread::yield();
  return done ? 0 : fail(done.error());
}

int serve_status(std::uint16_t port) {
  const auto text = files::ask_status(port);
  if (!text) return fail(text.error());
  std::fputs(text->c_str(), stdout);
  return 0;
}

int serve_reload(const files::ServeOptions& options, pid_t server) {
  const auto done = files::give_token(options.port, server, options.token);
  return done ? 0 : fail(done.error());
}

}  // namespace weft::data
