// A connection to a data server: requests out, replies in, in whatever order they come.
//
// One thread. Up to credits() requests may be outstanding. A connection that failed stays failed:
// make a new one.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "files/protocol/data_protocol.h"
#include "files/protocol/registered.h"
#include "files/protocol/token_proof.h"

namespace weft::files {

struct ServerAddress {
  std::string host;
  std::uint16_t port = kDefaultPort;
  std::string token;  // empty: none
  // How long the server may be silent while a connection or a reply is awaited: then the connection
  // is given up. Negative: for ever.
  int patience_ms = -1;
  // Ends every wait while it is readable. The caller's; negative: none.
  int stop_fd = -1;
};

class Client {
 public:
  //   ECONNREFUSED   nobody listens, or the server refuses; the text says why
  //   ETIMEDOUT      the server did not answer for ServerAddress::patience_ms
  //   EACCES         the server wants a token, or another one; or did not prove that it has it
  // `immediates`: how many records of PLAY may be on their way.
  [[nodiscard]] static Outcome<std::unique_ptr<Client>> connect(const ServerAddress& server,
                                                                std::uint32_t immediates = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] bool writable() const { return writable_; }
  // The number that the server changes when it may have lost what it was sent; 0: it has none.
  [[nodiscard]] std::uint32_t server_life() const { return life_; }
  // Attributes::stamp is there, and SET of nothing gives the attributes of every open file.
  [[nodiscard]] bool has_stamps() const { return stamps_; }
  [[nodiscard]] bool has_statfs() const { return statfs_; }
  [[nodiscard]] std::uint32_t credits() const { return credits_; }
  [[nodiscard]] std::uint32_t max_io() const { return max_io_; }
  [[nodiscard]] std::uint32_t outstanding() const { return outstanding_; }
  [[nodiscard]] bool alive() const { return alive_; }

  // Sends a request with its tag.   ENAMETOOLONG; ECONNRESET; EAGAIN: credits() are outstanding
  [[nodiscard]] Outcome<void> post(const Request& request);
  // The next reply, whose views live until the next call. Its own error is not a failure here.
  //   ECONNRESET   the connection is gone
  //   ETIMEDOUT    the server was silent for too long; the connection is gone
  //   EINTR        a signal, or ServerAddress::stop_fd; the reply is still to come
  //   EPROTO       the server broke the protocol
  [[nodiscard]] Outcome<Reply> wait();
  // One request and its reply; an error in the reply is a failure, with `path` in its text.
  // REQUIRES: nothing is outstanding.
  // Records that arrive meanwhile are kept for next().
  [[nodiscard]] Outcome<Reply> call(const Request& request);

  // A message from the server: a reply, or the end of a record of PLAY.
  struct Arrival {
    bool is_record = false;
    std::uint32_t record = 0;
    Reply reply{};
  };
  // The next message that has arrived; does not wait. A reply's views live until the next call.
  [[nodiscard]] Outcome<std::optional<Arrival>> next();
  // For poll(2): arm(), then next() until it has nothing, then wait until fd() is readable.
  [[nodiscard]] int fd() const { return channel_->fd; }
  [[nodiscard]] Outcome<void> arm();

 private:
  explicit Client(std::uint32_t immediates) : immediates_(immediates) {}
  [[nodiscard]] std::size_t receives() const { return kCredits + 1 + immediates_; }
  [[nodiscard]] Outcome<void> open(const ServerAddress& server);
  [[nodiscard]] Outcome<void> reach(const ServerAddress& server, const std::string& where);
  [[nodiscard]] Outcome<void> await(rdma_cm_event_type wanted, const std::string& where);
  [[nodiscard]] Outcome<void> set_up_queues();
  [[nodiscard]] Outcome<void> greet(const std::string& token);
  [[nodiscard]] Outcome<void> prove_both(const std::string& token, const Nonce& nonce,
                                         const Nonce& server);
  [[nodiscard]] Outcome<bool> poll(Reply& reply);
  [[nodiscard]] Outcome<void> take_record(const ibv_wc& wc);
  [[nodiscard]] Outcome<void> post_slot(std::size_t slot);
  [[nodiscard]] Outcome<void> sleep();
  [[nodiscard]] Outcome<void> repost();
  [[nodiscard]] tl::unexpected<Failed> lost();

  rdma_event_channel* events_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  Registered messages_;  // replies, then requests
  std::uint64_t next_request_ = 0;
  std::size_t held_ = ~std::size_t{0};  // the receive whose reply the caller looks at
  std::uint32_t outstanding_ = 0;
  const std::uint32_t immediates_;
  std::deque<std::uint32_t> records_;  // arrived, not yet taken by next()
  std::optional<Reply> kept_;          // arrived behind them
  std::uint32_t credits_ = 1;
  std::uint32_t max_io_ = 0;
  bool writable_ = false;
  bool stamps_ = false;
  bool statfs_ = false;
  std::uint32_t life_ = 0;
  bool connected_ = false;
  bool alive_ = false;
  std::string host_;  // for messages
  int patience_ms_ = -1;
  int stop_fd_ = -1;
};

// After a break: the server may be starting again. Calls `connect` until it succeeds, or for so
// many seconds. Gives up at once, with `why` or what `connect` says, where another attempt cannot
// help.
[[nodiscard]] Outcome<void> connect_again(const Failed& why, unsigned seconds,
                                          const std::function<Outcome<void>()>& connect);

// Explains a failure to a person, with the file's name in front.
[[nodiscard]] Failed explain(std::uint32_t error, std::string_view path);

}  // namespace weft::files
