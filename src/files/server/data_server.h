// The data server: `weft serve`. See docs/data-server.md and docs/data-protocol.md.
//
// One thread serves everybody; no request of one client waits for another's disk.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "files/server/data_session.h"
#include "files/server/peer_user.h"
#include "files/server/status_port.h"
#include "os/event_fd.h"

namespace weft::files {

// "127.0.0.1 port 7180"
[[nodiscard]] std::string text_of(const sockaddr* address);

class Server {
 public:
  // Opens the folders and listens.
  [[nodiscard]] static Outcome<std::unique_ptr<Server>> create(ServeOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  // Serves until stop().
  [[nodiscard]] Outcome<void> run();
  // From a signal handler or another thread.
  void stop() const;
  // Reads the token again, from a signal handler or another thread. New connections have to prove
  // the new one. A token that cannot be read changes nothing.
  void reload() const;
  [[nodiscard]] const ServeCounters& counters() const { return shared_.counters; }
  // The text of `weft serve --status`: one line for each thing, and for each client.
  [[nodiscard]] std::string status() const;

 private:
  explicit Server(ServeOptions options) : shared_(std::move(options)) {}
  [[nodiscard]] Outcome<void> listen();
  [[nodiscard]] Outcome<void> watch(int fd);
  [[nodiscard]] Outcome<void> open_status();
  [[nodiscard]] std::size_t step();
  void sleep();
  [[nodiscard]] int time_left_ms() const;
  void look_at(int timeout_ms);
  void read_token_again();
  [[nodiscard]] Outcome<void> take_token(std::string token);
  void connection_events();
  void connect_request(rdma_cm_id* id);
  [[nodiscard]] const char* refusal(rdma_cm_id* id);
  [[nodiscard]] Session* in_the_way();
  [[nodiscard]] bool newcomers_wait();
  [[nodiscard]] Port* port_for(ibv_context* verbs);
  void completion_events(Port& port);
  void bury();
  void log(const char* what, rdma_cm_id* id, const char* why = "") const;

  Shared shared_;
  rdma_event_channel* events_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  PeerUsers users_;
  os::Fd epoll_;
  os::Fd stop_;
  os::Fd reload_;
  StatusPort status_;
  Clock::time_point started_ = Clock::now();
  bool stopping_ = false;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::size_t first_ = 0;  // who is served first in this round
};

}  // namespace weft::files
