// weft-socket-relay: keeps the RDMA side of connections of programs that run under
// libweft-sockets.so. Started by that library; descriptor 3 is the socket where requests come in.
// Ends by itself when there has been nothing to do for a while.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <unordered_map>

#include "os/event_fd.h"
#include "sockets/relay/relay_bridge.h"
#include "sockets/relay/relay_client.h"
#include "sockets/relay/relay_declined.h"

namespace weft::sockets {
namespace {

constexpr int kListener = 3;
constexpr int kIdleMs = 10000;
constexpr int kTickMs = 200;
constexpr std::size_t kBridgesMost = 16384;

class Relay {
 public:
  bool start() {
    epoll_ = os::Fd(epoll_create1(EPOLL_CLOEXEC));
    wake_ = os::make_event();
    return epoll_ && wake_ && add(kListener, &listener_tag_) && add(wake_.get(), &wake_tag_);
  }

  void run() {
    for (;;) {
      epoll_event events[64];
      const bool idle = bridges_.empty() && clients_.empty();
      const int count = epoll_wait(epoll_.get(), events, 64, idle ? kIdleMs : patience());
      if (count == 0 && idle && declined_.empty(std::chrono::steady_clock::now())) return;
      bool all = count == 0;
      for (int i = 0; i < count; ++i) all = handle(events[i]) || all;
      for (auto& bridge : bridges_) {
        if (all || bridge.busy()) advance(bridge);
      }
      // Only now: an event of this round may still have pointed to one.
      bridges_.remove_if([](const Bridge& b) { return b.done(); });
      for (const int fd : closed_) {
        clients_.erase(fd);
        close(fd);
      }
      closed_.clear();
    }
  }

 private:
  struct Client {
    int fd = -1;
  };

  bool add(int fd, void* tag) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = tag;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  // True: every bridge has to be looked at.
  bool handle(const epoll_event& event) {
    void* tag = event.data.ptr;
    if (tag == &listener_tag_) {
      accept_client();
    } else if (tag == &wake_tag_) {
      (void)os::lower_event(wake_.get());
      return true;
    } else if (is_client(tag)) {
      serve(*static_cast<Client*>(tag));
    } else {
      advance(*static_cast<Bridge*>(tag));
    }
    return false;
  }

  void advance(Bridge& bridge) {
    bridge.advance();
    if (!bridge.take_declined()) return;
    const RelayRequest& request = bridge.request();
    declined_.note(request.peer, request.peer_length, std::chrono::steady_clock::now());
  }

  bool is_client(const void* tag) const {
    for (const auto& [fd, client] : clients_) {
      if (&client == tag) return true;
    }
    return false;
  }

  void accept_client() {
    const int fd = accept4(kListener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE) usleep(10000);
      return;
    }
    Client& client = clients_[fd];
    client.fd = fd;
    if (!add(fd, &client)) drop(client);
  }

  void drop(Client& client) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.fd, nullptr);
    // Closed at the end of the round: its number must not come back while its entry is there. The
    // program waits for the end of the connection, or has its answer.
    closed_.push_back(client.fd);
  }

  void serve(Client& client) {
    RelayRequest request;
    int fds[3] = {-1, -1, -1};
    int count = 0;
    const ssize_t n = receive_with_fds(client.fd, &request, sizeof request, fds, 3, count);
    if (n < 0 && errno == EAGAIN) return;
    if (n > 0) {
      RelayReply reply;
      int out[2] = {-1, -1};
      const bool whole =
          n == static_cast<ssize_t>(sizeof request) && request.magic == RelayRequest::kMagic;
      if (whole && request.op == RelayOp::kClaim && count == 0) {
        reply.error = claim(request, out);
      } else {
        reply.error = whole && count == 3 ? take(client.fd, request, fds) : EPROTO;
        if (reply.error == 0) fds[0] = fds[1] = fds[2] = -1;
      }
      send_with_fds(client.fd, &reply, sizeof reply, out, out[0] >= 0 ? 2 : 0);
      for (const int fd : {fds[0], fds[1], fds[2], out[0], out[1]}) {
        if (fd >= 0) close(fd);
      }
    }
    drop(client);
  }

  // Work is done for this user alone; a deposit goes to the process that knows its token.
  static bool may_ask(int fd) {
    ucred who{};
    socklen_t length = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 &&
           (who.uid == geteuid() || who.uid == 0);
  }

  int take(int client, const RelayRequest& request, const int (&fds)[3]) {
    if (!may_ask(client)) return EACCES;
    if (bridges_.size() >= kBridgesMost) return ENOSPC;
    if (request.op == RelayOp::kConnect && request.fall_back != 0 &&
        declined_.lately(request.peer, request.peer_length, std::chrono::steady_clock::now())) {
      return kDeclinedLately;
    }
    bridges_.emplace_back(request, fds[0], fds[1], fds[2], epoll_.get(), wake_.get());
    bridges_.back().begin();
    return 0;
  }

  int claim(const RelayRequest& request, int (&out)[2]) {
    for (Bridge& bridge : bridges_) {
      if (bridge.state() != Bridge::State::kDeposited || bridge.token() != request.token) continue;
      bridge.claimed(out);
      return 0;
    }
    return ENOENT;
  }

  // How long to sleep, in milliseconds.
  int patience() const {
    int limit = -1;
    for (const Bridge& bridge : bridges_) {
      if (bridge.busy()) return 0;
      if (bridge.needs_tick()) limit = kTickMs;
    }
    return limit;
  }

  os::Fd epoll_;
  os::Fd wake_;
  char listener_tag_ = 0;
  char wake_tag_ = 0;
  std::list<Bridge> bridges_;
  std::unordered_map<int, Client> clients_;
  Declined declined_;
  std::vector<int> closed_;
};

// The program that started us keeps its files to itself, and its terminal.
void let_go_of_everything() {
  syscall(SYS_close_range, kListener + 1, ~0U, 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {0, 1, 2}) dup2(null, fd);
  close(null);
  fcntl(kListener, F_SETFD, FD_CLOEXEC);
  fcntl(kListener, F_SETFL, O_RDWR | O_NONBLOCK);
  static_cast<void>(!chdir("/"));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
}

}  // namespace
}  // namespace weft::sockets

int main() {
  int listening = 0;
  socklen_t length = sizeof listening;
  if (getsockopt(3, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) {
    std::fprintf(stderr, "weft-socket-relay is started by libweft-sockets.so, not by hand\n");
    return 2;
  }
  weft::sockets::let_go_of_everything();
  weft::sockets::Relay relay;
  if (!relay.start()) return 1;
  relay.run();
  return 0;
}
