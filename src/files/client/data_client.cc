#include "files/client/data_client.h"

#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace weft::files {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kResolveMs = 5000;
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr std::uint64_t kRequestBit = std::uint64_t{1} << 32U;

}  // namespace

Failed explain(std::uint32_t error, std::string_view path) {
  std::string what(path);
  if (error == EXDEV)
    what += ": leads out of the folder that is served, as absolute symbolic links always do";
  if (error == EUSERS) return {EUSERS, std::move(what), "too many clients"};
  if (error == EOVERFLOW) {
    return {EOVERFLOW, std::move(what),
            "holds more octets than its size says, as files of /proc do"};
  }
  if (error == EROFS) what += ": the server was started without --writable";
  return {static_cast<int>(error), std::move(what)};
}

bool keeps_changed(const Outcome<void>& same, const CopyOptions& options, CopyTotals& totals,
                   const CopyWatcher& watcher) {
  if (same || same.error().error != ESTALE || !options.allow_changing) return false;
  ++totals.changed;
  if (watcher.warned) {
    watcher.warned({ESTALE, same.error().what,
                    "the file changed while it was copied; the copy has parts of several versions, "
                    "as --allow-changing permits"});
  }
  return true;
}

namespace {

// `theirs` is 1 also where the server does not say which version it speaks.
tl::unexpected<Failed> other_version(const std::string& host, std::uint32_t theirs) {
  return failed(EPROTONOSUPPORT, host,
                "the server speaks version " + std::to_string(theirs) +
                    " of the data protocol, and this program version " + std::to_string(kVersion) +
                    "; upgrade Weft on " + (theirs < kVersion ? host : "this machine"));
}

}  // namespace

Outcome<void> connect_again(const Failed& why, unsigned seconds,
                            const std::function<Outcome<void>()>& connect) {
  constexpr std::chrono::milliseconds kPause{200};
  if (why.error == EINTR || why.error == EPROTO || why.error == EPROTONOSUPPORT)
    return tl::unexpected(why);
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  Failed last = why;
  while (Clock::now() < end) {
    auto ok = connect();
    if (ok) return {};
    last = ok.error();
    if (last.error == EACCES || last.error == EROFS || last.error == EPROTONOSUPPORT) break;
    std::this_thread::sleep_for(kPause);
  }
  return tl::unexpected(last);
}

Outcome<std::unique_ptr<Client>> Client::connect(const ServerAddress& server,
                                                 std::uint32_t immediates) {
  std::unique_ptr<Client> client(new Client(immediates));
  if (auto ok = client->open(server); !ok) return tl::unexpected(ok.error());
  if (auto ok = client->greet(server.token); !ok) {
    Failed why = ok.error();
    why.what = server.host + (why.what.empty() ? "" : ": " + why.what);
    return tl::unexpected(why);
  }
  return client;
}

Client::~Client() {
  if (id_ != nullptr) {
    if (connected_) rdma_disconnect(id_);
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
  }
  messages_ = Registered();
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  if (id_ != nullptr) rdma_destroy_id(id_);
  if (events_ != nullptr) rdma_destroy_event_channel(events_);
}

Outcome<void> Client::open(const ServerAddress& server) {
  host_ = server.host;
  patience_ms_ = server.patience_ms;
  stop_fd_ = server.stop_fd;
  const std::string where = server.host + " port " + std::to_string(server.port);
  events_ = rdma_create_event_channel();
  if (events_ == nullptr || rdma_create_id(events_, &id_, nullptr, RDMA_PS_TCP) != 0) {
    return failed(errno, where);
  }
  if (auto ok = reach(server, where); !ok) return ok;
  if (auto ok = set_up_queues(); !ok) return ok;
  rdma_conn_param parameters{};
  parameters.responder_resources = 16;
  parameters.initiator_depth = 16;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  if (rdma_connect(id_, &parameters) != 0) return failed(errno, where);
  if (auto ok = await(RDMA_CM_EVENT_ESTABLISHED, where); !ok) return ok;
  connected_ = true;
  alive_ = true;
  return {};
}

Outcome<void> Client::reach(const ServerAddress& server, const std::string& where) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(server.host.c_str(), std::to_string(server.port).c_str(), &hints, &found);
  if (error != 0) return failed(EHOSTUNREACH, server.host, gai_strerror(error));
  const bool asked = rdma_resolve_addr(id_, nullptr, found->ai_addr, kResolveMs) == 0;
  const int why = errno;
  freeaddrinfo(found);
  if (!asked) return failed(why, where);
  if (auto ok = await(RDMA_CM_EVENT_ADDR_RESOLVED, where); !ok) return ok;
  if (rdma_resolve_route(id_, kResolveMs) != 0) return failed(errno, where);
  return await(RDMA_CM_EVENT_ROUTE_RESOLVED, where);
}

// The next event of the connection that is being made, which has to be this one.
Outcome<void> Client::await(rdma_cm_event_type wanted, const std::string& where) {
  pollfd watched[] = {{events_->fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  const int ready = ::poll(watched, 2, patience_ms_);
  if (ready == 0) return failed(ETIMEDOUT, where, "the server does not answer");
  if (ready < 0 || watched[1].revents != 0) return failed(EINTR, where, "interrupted");
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(events_, &event) != 0) return failed(errno, where);
  const bool rejected = event->event == RDMA_CM_EVENT_REJECTED;
  const int status = std::abs(event->status);
  const int error = rejected || status == 0 ? ECONNREFUSED : status;
  const bool good = event->event == wanted;
  std::string reason;
  if (rejected && event->param.conn.private_data_len != 0) {
    const auto* text = static_cast<const char*>(event->param.conn.private_data);
    reason = "the server refused: " +
             std::string(text, strnlen(text, event->param.conn.private_data_len));
  } else if (error == ECONNREFUSED) {
    // A connection that a crowded server ends without a word looks the same.
    reason =
        "no server listens there; start `weft serve`, or name its port: HOST:PORT:PATH. A server "
        "that is full may say the same: then try again later";
  }
  rdma_ack_cm_event(event);
  return good ? Outcome<void>() : failed(error, where, reason);
}

Outcome<void> Client::set_up_queues() {
  pd_ = ibv_alloc_pd(id_->verbs);
  channel_ = ibv_create_comp_channel(id_->verbs);
  if (pd_ == nullptr || channel_ == nullptr) return failed(errno, "no RDMA objects");
  cq_ =
      ibv_create_cq(id_->verbs, static_cast<int>(4 * kCredits + immediates_), nullptr, channel_, 0);
  if (cq_ == nullptr) return failed(errno, "no completion queue");
  ibv_qp_init_attr attr{};
  attr.send_cq = cq_;
  attr.recv_cq = cq_;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = 2 * kCredits;
  attr.cap.max_recv_wr = static_cast<std::uint32_t>(receives());
  attr.cap.max_send_sge = 1;
  attr.cap.max_recv_sge = 1;
  if (rdma_create_qp(id_, pd_, &attr) != 0) return failed(errno, "no queue pair");
  auto messages =
      Registered::create(pd_, (receives() + 2 * kCredits) * kMessageBytes, IBV_ACCESS_LOCAL_WRITE);
  if (!messages) return tl::unexpected(messages.error());
  messages_ = std::move(*messages);
  // One more than credits: the reply that is being looked at is posted again late.
  for (std::size_t slot = 0; slot < receives(); ++slot) {
    if (auto ok = post_slot(slot); !ok) return failed(ENOMEM, "no receive");
  }
  return {};
}

Outcome<HelloReply> Client::hello(const Nonce& nonce) {
  if (auto ok = post(HelloRequest{kVersion, nonce}); !ok) return tl::unexpected(ok.error());
  auto answer = wait();
  if (!answer) return tl::unexpected(answer.error());
  if (answer->op != Op::kHello) return broken("the server answered something else");
  if (answer->error == EPROTONOSUPPORT) {
    alive_ = false;
    const std::uint32_t theirs = answer->body.be32();  // version 1 says nothing here
    return other_version(host_, std::max(theirs, 1U));
  }
  if (answer->error != 0) return tl::unexpected(explain(answer->error, {}));
  auto reply = read<HelloReply>(*answer);
  if (!reply || reply->version == kVersion) return reply;
  alive_ = false;
  return other_version(host_, reply->version);
}

Outcome<void> Client::greet(const std::string& token) {
  const Nonce nonce = random_nonce();
  const auto reply = hello(nonce);
  if (!reply) return tl::unexpected(reply.error());
  credits_ = std::clamp<std::uint32_t>(reply->credits, 1, kCredits);
  max_io_ = std::clamp<std::uint32_t>(reply->max_io, 1, kMaxIoBytes);
  verifier_ = reply->verifier;
  flags_ = reply->flags;
  if ((reply->flags & kHelloNeedsProof) == 0) {
    if (token.empty()) return {};
    // Whoever listens there may take what is meant for a server that knows the token.
    alive_ = false;
    return failed(EACCES, host_,
                  "the server asks for no token, so it cannot prove that it is the one you mean; "
                  "start it with --token-file, or leave --token-file out");
  }
  if (token.empty())
    return failed(EACCES, host_, "the server wants a token; give --token-file FILE");
  return prove_both(token, nonce, reply->nonce);
}

Outcome<void> Client::prove_both(const std::string& token, const Nonce& nonce,
                                 const Nonce& server) {
  const auto answer = call(ProveRequest{prove(token, Side::kClient, nonce, server)});
  if (!answer) {
    if (answer.error().error == EACCES) {
      return failed(EACCES, host_, "the server has another token; give both sides the same file");
    }
    return tl::unexpected(answer.error());
  }
  if (!same(answer->proof, prove(token, Side::kServer, nonce, server))) {
    alive_ = false;
    return failed(EACCES, host_,
                  "the server does not know the token, so it is not the server that you mean");
  }
  return {};
}

tl::unexpected<Failed> Client::lost() {
  alive_ = false;
  return failed(ECONNRESET, host_, "the connection to the server is gone");
}

tl::unexpected<Failed> Client::broken(const char* how) {
  alive_ = false;
  return failed(EPROTO, host_, how);
}

Outcome<void> Client::may_post() {
  if (!alive_) return lost();
  return outstanding_ >= credits_ ? failed(EAGAIN) : Outcome<void>();
}

// A slot is free again once its reply is here, and there are twice as many as credits.
std::span<std::uint8_t> Client::room_for_request() {
  const std::size_t slot = next_request_ % (2 * kCredits);
  return {messages_.data() + (receives() + slot) * kMessageBytes, kMessageBytes};
}

// Sends the message in room_for_request(). 0 octets: it was too long.
Outcome<void> Client::post_encoded(std::size_t bytes, std::string_view name) {
  if (bytes == 0) return failed(ENAMETOOLONG, std::string(name));
  assert(bytes <= kMessageBytes && outstanding_ < credits_);
  const std::size_t slot = next_request_ % (2 * kCredits);
  if (post_send(id_->qp, kRequestBit | slot, room_for_request().data(),
                static_cast<std::uint32_t>(bytes), messages_.lkey()) != 0) {
    return lost();
  }
  ++next_request_;
  ++outstanding_;
  return {};
}

Outcome<void> Client::repost() {
  if (held_ == ~std::size_t{0}) return {};
  return post_slot(std::exchange(held_, ~std::size_t{0}));
}

Outcome<void> Client::post_slot(std::size_t slot) {
  assert(slot < receives());
  if (post_receive(id_->qp, slot, messages_.data() + slot * kMessageBytes, kMessageBytes,
                   messages_.lkey()) != 0) {
    return lost();
  }
  return {};
}

Outcome<void> Client::take_record(const ibv_wc& wc) {
  if (records_.size() >= immediates_) {
    return broken("the server sent a record that there was no room for");
  }
  records_.push_back(ntohl(wc.imm_data));
  return post_slot(wc.wr_id);
}

Outcome<std::optional<Client::Arrival>> Client::next() {
  if (!alive_) return lost();
  if (records_.empty() && !kept_) {
    if (auto ok = repost(); !ok) return tl::unexpected(ok.error());
    Answer answer;
    const auto got = poll(answer);
    if (!got) return tl::unexpected(got.error());
    if (*got) kept_ = answer;
  }
  Arrival arrival;
  // Records that poll() found came before the reply.
  if (!records_.empty()) {
    arrival.is_record = true;
    arrival.record = records_.front();
    records_.pop_front();
    return arrival;
  }
  if (!kept_) return std::optional<Arrival>();
  arrival.answer = *std::exchange(kept_, std::nullopt);
  return arrival;
}

Outcome<void> Client::arm() {
  if (!alive_) return lost();
  // Events of earlier arming, if there are any: the descriptor is readable until they are taken.
  pollfd ready{channel_->fd, POLLIN, 0};
  while (::poll(&ready, 1, 0) == 1) {
    if (auto ok = sleep(); !ok) return ok;
  }
  if (ibv_req_notify_cq(cq_, 0) != 0) return lost();
  return {};
}

// Whether a reply was there.
Outcome<bool> Client::poll(Answer& answer) {
  ibv_wc wc{};
  for (;;) {
    const int count = ibv_poll_cq(cq_, 1, &wc);
    if (count < 0) return lost();
    if (count == 0) return false;
    if (wc.status != IBV_WC_SUCCESS) return lost();
    if ((wc.wr_id & kRequestBit) != 0) continue;
    if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      if (auto ok = take_record(wc); !ok) return tl::unexpected(ok.error());
      continue;
    }
    assert(held_ == ~std::size_t{0} && wc.wr_id < receives() && wc.byte_len <= kMessageBytes);
    held_ = wc.wr_id;
    const std::span<const std::uint8_t> message(messages_.data() + held_ * kMessageBytes,
                                                wc.byte_len);
    const auto head = decode_head(message);
    if (!head || !head->is_reply || outstanding_ == 0) {
      return broken("the server sent something that is no reply");
    }
    --outstanding_;
    answer = {head->op, head->tag, head->error, body_of(*head, message)};
    return true;
  }
}

Outcome<void> Client::sleep() {
  if (patience_ms_ >= 0 || stop_fd_ >= 0) {
    pollfd watched[] = {{channel_->fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    const int ready = ::poll(watched, 2, patience_ms_);
    if (ready == 0) {
      alive_ = false;
      return failed(ETIMEDOUT, host_, "the server does not answer");
    }
    if (ready < 0 || watched[1].revents != 0) return failed(EINTR, host_, "interrupted");
  }
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_, &cq, &context) != 0) {
    if (errno == EINTR) return failed(EINTR, host_, "interrupted");
    return lost();
  }
  ibv_ack_cq_events(cq, 1);
  return {};
}

Outcome<Answer> Client::wait() {
  if (!alive_) return lost();
  if (kept_) return *std::exchange(kept_, std::nullopt);
  if (auto ok = repost(); !ok) return tl::unexpected(ok.error());
  Answer answer;
  const auto start = Clock::now();
  bool armed = false;
  for (;;) {
    const auto got = poll(answer);
    if (!got) return tl::unexpected(got.error());
    if (*got) return answer;
    if (Clock::now() - start < kSpin) continue;
    if (!armed) {
      // Once more after arming: what is in the queue by then raises no event.
      if (ibv_req_notify_cq(cq_, 0) != 0) return lost();
      armed = true;
      continue;
    }
    if (auto ok = sleep(); !ok) return tl::unexpected(ok.error());
    armed = false;
  }
}

// The answer to the only request; `name` is for the text of a failure.
Outcome<Answer> Client::wait_for(Op op, std::string_view name) {
  auto answer = wait();
  if (!answer) return answer;
  if (answer->op != op) return broken("the server answered something else");
  if (answer->error != 0) return tl::unexpected(refusal(*answer, name));
  return answer;
}

Failed Client::refusal(const Answer& answer, std::string_view name) const {
  if (answer.error == EROFS && writable()) {
    return {EROFS, std::string(name), "this file system of the server is read-only"};
  }
  return explain(answer.error, name);
}

}  // namespace weft::files
