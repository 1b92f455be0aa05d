// A connection to a server that is made anew when it breaks, with memory that the server reads from
// and writes to.
//
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "files/client/data_client.h"
#include "files/client/listing.h"
#include "files/protocol/registered.h"

namespace weft::files {

class ServerLink {
 public:
  static constexpr unsigned kStarts = 10;  // of one file or request, on so many connections

  // `connected` is called for each connection: whether it is to the same run of the server as the
  // one before, if there was one, and nothing was lost there since.
  ServerLink(ServerAddress server, unsigned retry_seconds, std::function<void(bool)> connected)
      : server_(std::move(server)),
        retry_seconds_(retry_seconds),
        connected_(std::move(connected)) {}

  //   EROFS   the server was started without --writable
  [[nodiscard]] Outcome<void> connect();
  [[nodiscard]] Outcome<void> reconnect(const Failed& why);
  [[nodiscard]] Client& client() { return *client_; }
  [[nodiscard]] const Client& client() const { return *client_; }
  [[nodiscard]] bool alive() const { return client_->alive(); }
  [[nodiscard]] const ServerAddress& server() const { return server_; }
  // Another one with each connection.
  [[nodiscard]] const Registered& memory() const { return memory_; }
  // How many were made.
  [[nodiscard]] unsigned connections() const { return connections_; }

  // For requests that may be sent twice: again on a new connection, if one breaks.
  // `make` gives the request: one that names memory is another with each connection.
  template <class Make>
  [[nodiscard]] auto ask_made(const Make& make)
      -> Outcome<typename std::invoke_result_t<Make>::Reply> {
    for (unsigned starts = 1;; ++starts) {
      auto reply = client_->call(make());
      if (reply || alive() || starts == kStarts) return reply;
      if (auto again = reconnect(reply.error()); !again) return tl::unexpected(again.error());
    }
  }
  template <class Request>
  [[nodiscard]] Outcome<typename Request::Reply> ask(const Request& request) {
    return ask_made([&request] { return request; });
  }
  // As list_folder().
  [[nodiscard]] Outcome<std::vector<Named>> list(const std::string& path, std::uint16_t links);

 private:
  const ServerAddress server_;
  const unsigned retry_seconds_;
  const std::function<void(bool)> connected_;
  std::unique_ptr<Client> client_;
  Registered memory_;
  unsigned connections_ = 0;
};

}  // namespace weft::files
