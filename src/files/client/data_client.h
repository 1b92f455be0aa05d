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
#include <string_view>

#include "files/client/copy_options.h"
#include "files/protocol/data_messages.h"
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

// A reply as it came: which request it is for, and an error or what is behind the head. Views into
// it live until the client's next call.
struct Answer {
  Op op = Op::kStat;
  std::uint64_t tag = 0;
  std::uint32_t error = 0;
  BodyReader body{};
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
  [[nodiscard]] bool writable() const { return (flags_ & kHelloWritable) != 0; }
  // The server has the operations from LEASE on.
  [[nodiscard]] bool has_objects() const { return (flags_ & kHelloObjects) != 0; }
  // It lets clients set owners and all bits of a mode.
  [[nodiscard]] bool takes_owners() const { return (flags_ & kHelloOwners) != 0; }
  // It tells all extended attributes that begin with trusted., and lets clients set them.
  [[nodiscard]] bool tells_trusted() const { return (flags_ & kHelloTrusted) != 0; }
  // It knows ACLs.
  [[nodiscard]] bool has_acls() const { return (flags_ & kHelloAcls) != 0; }
  // That the server had when the connection was made.
  [[nodiscard]] std::uint64_t verifier() const { return verifier_; }
  [[nodiscard]] std::uint32_t credits() const { return credits_; }
  [[nodiscard]] std::uint32_t max_io() const { return max_io_; }
  [[nodiscard]] std::uint32_t outstanding() const { return outstanding_; }
  [[nodiscard]] bool alive() const { return alive_; }

  // Sends a request; `tag` comes back in its answer.
  //   ENAMETOOLONG; ECONNRESET; EAGAIN: credits() are outstanding
  template <class Request>
  [[nodiscard]] Outcome<void> post(const Request& request, std::uint64_t tag = 0) {
    if (auto ok = may_post(); !ok) return ok;
    return post_encoded(encode_request(request, tag, room_for_request()), name_in(request));
  }
  // The next answer. An error of the server in it is not a failure here.
  //   ECONNRESET   the connection is gone
  //   ETIMEDOUT    the server was silent for too long; the connection is gone
  //   EINTR        a signal, or ServerAddress::stop_fd; the reply is still to come
  //   EPROTO       the server broke the protocol
  [[nodiscard]] Outcome<Answer> wait();
  // The reply in an answer that has no error.   EPROTO: it is no such reply; the connection is gone
  template <class Reply>
  [[nodiscard]] Outcome<Reply> read(const Answer& answer) {
    auto reply = Reply::decode(answer.body);
    if (!reply) return broken("the server sent something that is no reply");
    return *reply;
  }
  // Ends the connection: the server broke the protocol, this way. EPROTO.
  [[nodiscard]] tl::unexpected<Failed> broken(const char* how);
  // Explains an answer with an error; it is about this name.
  [[nodiscard]] Failed refusal(const Answer& answer, std::string_view name) const;
  // One request and its reply; an error in the reply is a failure, with the request's path, or
  // `about`, in its text. Records that arrive meanwhile are kept for next().
  // REQUIRES: nothing is outstanding.
  template <class Request>
  [[nodiscard]] Outcome<typename Request::Reply> call(const Request& request,
                                                      std::string_view about = {}) {
    if (auto ok = post(request); !ok) return tl::unexpected(ok.error());
    const std::string_view name = about.empty() ? name_in(request) : about;
    const auto answer = wait_for(Request::kOp, name);
    if (!answer) return tl::unexpected(answer.error());
    return read<typename Request::Reply>(*answer);
  }

  // A message from the server: a reply, or the end of a record of PLAY.
  struct Arrival {
    bool is_record = false;
    std::uint32_t record = 0;
    Answer answer{};
  };
  // The next message that has arrived; does not wait.
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
  [[nodiscard]] Outcome<HelloReply> hello(const Nonce& nonce);
  [[nodiscard]] Outcome<void> prove_both(const std::string& token, const Nonce& nonce,
                                         const Nonce& server);
  template <class Request>
  [[nodiscard]] static std::string_view name_in(const Request& request) {
    if constexpr (requires { request.path; }) return request.path.text;
    return {};
  }
  [[nodiscard]] Outcome<void> may_post();
  [[nodiscard]] std::span<std::uint8_t> room_for_request();
  [[nodiscard]] Outcome<void> post_encoded(std::size_t bytes, std::string_view name);
  [[nodiscard]] Outcome<Answer> wait_for(Op op, std::string_view name);
  [[nodiscard]] Outcome<bool> poll(Answer& answer);
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
  std::optional<Answer> kept_;         // arrived behind them
  std::uint32_t credits_ = 1;
  std::uint32_t max_io_ = 0;
  std::uint64_t verifier_ = 0;
  std::uint32_t flags_ = 0;  // of HELLO
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

// Whether a file of which all was copied that it had at the beginning may stay, although `same`
// says that it changed meanwhile; then it is counted, and the user is told.
[[nodiscard]] bool keeps_changed(const Outcome<void>& same, const CopyOptions& options,
                                 CopyTotals& totals, const CopyWatcher& watcher);

// Explains a failure to a person, with the file's name in front.
[[nodiscard]] Failed explain(std::uint32_t error, std::string_view path);

}  // namespace weft::files
