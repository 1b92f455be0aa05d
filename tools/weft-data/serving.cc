#include "weft-data/serving.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "files/server/data_server.h"
#include "weft/common/message.h"

namespace weft::data {
namespace {

const files::Server* g_server = nullptr;

void on_signal(int) {
  if (g_server != nullptr) g_server->stop();
}

void on_reload(int) {
  if (g_server != nullptr) g_server->reload();
}

// They end the server in good order, or have it read its token again. A caller may have blocked
// them until now.
void handle_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(one, nullptr, &action);
    if (one == SIGHUP && action.sa_handler == SIG_IGN) continue;  // nohup
    action = {};
    action.sa_handler = on_signal;
    sigaction(one, &action, nullptr);
    sigaddset(&ends, one);
  }
  struct sigaction action {};
  action.sa_handler = on_reload;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  sigaddset(&ends, SIGUSR1);
  sigprocmask(SIG_UNBLOCK, &ends, nullptr);
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int fail(const files::Failed& why) { return cli::report_failure({why.text(), cli::kExitFailure}); }

}  // namespace

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

int serve(const files::ServeOptions& options, int announce_fd) {
  raise_descriptor_limit();
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
  return done ? 0 : fail(done.error());
}

int serve_status(std::uint16_t port) {
  const auto text = files::ask_status(port);
  if (!text) return fail(text.error());
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace weft::data
