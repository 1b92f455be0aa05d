// Set-up, messages and requests that are answered at once; data_session_changes.cc changes files,
// data_session_io.cc moves the data.
#include "files/server/data_session.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>

namespace weft::files {
namespace {

constexpr std::uint32_t kReplySlots = 2 * kCredits;
// Whatever a client asks for, the send queue has room: a reply, a piece, an immediate and a chunk
// are each posted within their own limit.
constexpr unsigned kSendDepth = kReplySlots + Session::kMaxPieces + Session::kMaxRecords +
                                Session::kMaxChunks + Session::kMaxLists;
constexpr auto kSetUpTime = std::chrono::seconds(10);
constexpr auto kRefusalDelay = std::chrono::seconds(1);
// Staging memory that one session may hold, at most and to begin with.
constexpr std::uint64_t kStagingPerSession = std::uint64_t{16} << 20U;
constexpr std::uint64_t kFirstWindow = std::uint64_t{1} << 20U;
// While other sessions wait for memory, a session whose client takes no byte for this long ends.
constexpr auto kStarvedStall = std::chrono::seconds(1);

// wr_id: a piece's address, a chunk's with 2 added, or one of these. Both are aligned, so the low
// bits tell.
constexpr std::uint64_t receive_id(std::size_t slot) { return slot << 2U | 1U; }
constexpr std::uint64_t reply_id(std::size_t slot) { return slot << 2U | 3U; }
constexpr std::uint64_t kChunkBits = 2;

}  // namespace

Session::Session(Shared& shared, Port& port, rdma_cm_id* id)
    : Link(kMaxPieces),
      shared_(shared),
      port_(port),
      id_(id),
      owner_(port.staging().heap->add_owner(kStagingPerSession)),
      list_owner_(port.lists().heap->add_owner()),
      window_bytes_(kFirstWindow) {}

Outcome<std::unique_ptr<Session>> Session::create(Shared& shared, Port& port, rdma_cm_id* id) {
  std::unique_ptr<Session> session(new Session(shared, port, id));
  if (auto ready = session->set_up(); !ready) {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    session->id_ = nullptr;  // stays the caller's
    return tl::unexpected(ready.error());
  }
  return session;
}

Outcome<void> Session::set_up() {
  auto messages = Registered::create(port_.pd(), (kCredits + kReplySlots) * kMessageBytes,
                                     IBV_ACCESS_LOCAL_WRITE);
  if (!messages) return tl::unexpected(messages.error());
  messages_ = std::move(*messages);
  cq_ = ibv_create_cq(port_.verbs(), static_cast<int>(kCredits + kSendDepth), this, port_.channel(),
                      0);
  if (cq_ == nullptr) return failed(errno, "no completion queue");
  ibv_qp_init_attr attr{};
  attr.send_cq = cq_;
  attr.recv_cq = cq_;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = kSendDepth;
  attr.cap.max_recv_wr = kCredits;
  attr.cap.max_send_sge = 1;
  attr.cap.max_recv_sge = 1;
  if (rdma_create_qp(id_, port_.pd(), &attr) != 0) return failed(errno, "no queue pair");
  for (std::size_t slot = 0; slot < kCredits; ++slot) {
    const int error =
        post_receive(id_->qp, receive_id(slot), messages_.data() + slot * kMessageBytes,
                     kMessageBytes, messages_.lkey());
    if (error != 0) return failed(error, "no receive");
  }
  for (std::size_t slot = 0; slot < kReplySlots; ++slot) free_replies_.push_back(slot);
  server_nonce_ = random_nonce();
  return {};
}

Session::~Session() {
  if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (id_ != nullptr) rdma_destroy_id(id_);
  assert(port_.staging().held_bytes >= held_bytes_);
  port_.staging().heap->remove_owner(owner_);
  port_.staging().held_bytes -= held_bytes_;
  port_.lists().heap->remove_owner(list_owner_);
}

void Session::fail() {
  if (dead_) return;
  assert(!ready() || shared_.ready > 0);
  dead_ = true;
  if (ready()) --shared_.ready;
  // No Write leaves staging memory any more, nor does a Read enter it: from here on only the disk
  // can touch it.
  rdma_disconnect(id_);
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  shared_.pipeline->close(*this);
  files_.clear();
  laters_.clear();
  listings_.clear();
}

void Session::arm() {
  if (!dead_) ibv_req_notify_cq(cq_, 0);
}

std::size_t Session::poll() {
  if (dead_) return 0;
  ibv_wc wcs[32];
  std::size_t total = 0;
  for (;;) {
    const int count = ibv_poll_cq(cq_, 32, wcs);
    if (count < 0) fail();
    if (count <= 0) return total;
    total += static_cast<std::size_t>(count);
    for (int i = 0; i < count && !dead_; ++i) completion(wcs[i]);
    if (dead_ || count < 32) return total;
  }
}

void Session::completion(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) return fail();
  const std::size_t slot = wc.wr_id >> 2U;
  // Requests are no sign that the client takes anything.
  if ((wc.wr_id & 3U) != 1) moved_at_ = Clock::now();
  switch (wc.wr_id & 3U) {
    case 1: return request(slot, wc.byte_len);
    case kChunkBits: return network_done(*reinterpret_cast<Chunk*>(wc.wr_id - kChunkBits));
    case 3:
      assert(slot < kReplySlots && free_replies_.size() < kReplySlots);
      free_replies_.push_back(slot);
      return;
    default: {
      auto& piece = *reinterpret_cast<readsend::Piece*>(wc.wr_id);
      drained(piece.got);
      shared_.pipeline->network_done(piece, true);
    }
  }
}

void Session::request(std::size_t slot, std::uint32_t bytes) {
  assert(slot < kCredits && bytes <= kMessageBytes);
  std::uint8_t* at = messages_.data() + slot * kMessageBytes;
  ++shared_.counters.requests;
  // A copy: the receive is posted again before the reply that lets the client use it.
  std::uint8_t copy[kMessageBytes];
  std::copy_n(at, bytes, copy);
  if (post_receive(id_->qp, receive_id(slot), at, kMessageBytes, messages_.lkey()) != 0) {
    return fail();
  }
  if (refuse_at_) return;
  const std::span<const std::uint8_t> message(copy, bytes);
  const auto head = decode_head(message);
  if (!head || head->is_reply) return fail();
  dispatch(*head, body_of(*head, message));
}

void Session::dispatch(const Head& head, const BodyReader& body) {
  const Asked asked{head.op, head.tag};
  if (head.op == Op::kHello) return start(asked, body, &Session::greet);
  if (head.op == Op::kProve) return start(asked, body, &Session::prove_client);
  if (state_ != State::kReady) return refuse(asked, EACCES);
  switch (head.op) {
    case Op::kHello:
    case Op::kProve: return;
    case Op::kStat: return serve(asked, body, &Session::stat);
    case Op::kStatFs: return serve(asked, body, &Session::usage);
    case Op::kReadLink: return serve(asked, body, &Session::read_link);
    case Op::kMakeDirectory: return serve(asked, body, &Session::make_directory);
    case Op::kSymlink: return serve(asked, body, &Session::symlink);
    case Op::kClose: return serve(asked, body, &Session::close_file);
    case Op::kGrant: return serve(asked, body, &Session::grant);
    case Op::kOpen: return start(asked, body, &Session::open);
    case Op::kList: return start(asked, body, &Session::list);
    case Op::kRead: return start(asked, body, &Session::start_read);
    case Op::kWrite: return start(asked, body, &Session::start_write);
    case Op::kSync: return start(asked, body, &Session::start_sync);
    case Op::kPlay: return start(asked, body, &Session::start_play);
    case Op::kRename: return start(asked, body, &Session::rename);
    case Op::kRemove: return start(asked, body, &Session::remove);
    case Op::kCreate: return start(asked, body, &Session::create);
    case Op::kDraft: return start(asked, body, &Session::draft);
    case Op::kEdit: return start(asked, body, &Session::edit);
    case Op::kSet: return start(asked, body, &Session::set);
    case Op::kCommit: return start(asked, body, &Session::commit);
    case Op::kSum: return start(asked, body, &Session::sum);
    case Op::kExtents: return start(asked, body, &Session::extents);
  }
}

std::span<std::uint8_t> Session::room_for_reply() {
  // Replies that were not even taken by the network while twice as many requests came: this client
  // does not keep to its credits.
  if (!dead_ && free_replies_.empty()) fail();
  if (dead_) return {};
  return {messages_.data() + (kCredits + free_replies_.back()) * kMessageBytes, kMessageBytes};
}

// Sends the message in room_for_reply().
void Session::post_reply(std::size_t bytes) {
  assert(!free_replies_.empty() && bytes <= kMessageBytes);
  const std::size_t slot = free_replies_.back();
  free_replies_.pop_back();
  const std::uint8_t* at = messages_.data() + (kCredits + slot) * kMessageBytes;
  if (post_send(id_->qp, reply_id(slot), at, static_cast<std::uint32_t>(bytes), messages_.lkey()) !=
      0) {
    fail();
  }
}

void Session::refuse(const Asked& asked, int error) {
  const auto room = room_for_reply();
  if (room.empty()) return;
  ++shared_.counters.errors;
  post_reply(encode_refusal(asked.op, static_cast<std::uint32_t>(error), asked.tag, room));
}

std::uint64_t Shared::new_verifier() {
  std::uint64_t number = 0;
  static_cast<void>(getrandom(&number, sizeof number, 0));
  return std::max<std::uint64_t>(number, 1);
}

void Shared::note_lost_write(int error) {
  const bool no_room = error == ENOSPC || error == EDQUOT || error == EFBIG;
  if (!no_room) verifier = new_verifier();
}

int Shared::flush(int fd) {
  if (fsync(fd) == 0) return 0;
  const int error = errno;
  note_lost_flush();
  return error;
}

int Session::admit() {
  assert(!ready() && !dead_);
  if (shared_.ready >= shared_.options.max_clients) return EUSERS;
  ++shared_.ready;
  state_ = State::kReady;
  return 0;
}

int Session::greet(const HelloRequest& request, const Asked& asked) {
  if (state_ != State::kNew) return EPROTO;
  if (request.version != kVersion) {
    ++shared_.counters.other_versions;
    ++shared_.counters.errors;
    const auto room = room_for_reply();
    if (!room.empty()) post_reply(encode_other_version(EPROTONOSUPPORT, asked.tag, room));
    return 0;
  }
  client_nonce_ = request.nonce;
  const bool needs_proof = !shared_.options.token.empty();
  if (needs_proof) {
    state_ = State::kProving;
  } else if (const int error = admit(); error != 0) {
    return error;
  }
  HelloReply reply;
  reply.flags =
      (shared_.tree.writable() ? kHelloWritable : 0U) | (needs_proof ? kHelloNeedsProof : 0U);
  reply.credits = kCredits;
  reply.max_io = kMaxIoBytes;
  reply.verifier = shared_.verifier;
  reply.nonce = server_nonce_;
  send(asked, reply);
  return 0;
}

int Session::prove_client(const ProveRequest& request, const Asked& asked) {
  if (state_ != State::kProving) return EPROTO;
  const std::string& token = shared_.options.token;
  if (!same(prove(token, Side::kClient, client_nonce_, server_nonce_), request.proof)) {
    // Guessing costs a second a time, and a new connection.
    ++shared_.counters.refused_tokens;
    refusal_ = asked;
    refuse_at_ = Clock::now() + kRefusalDelay;
    return 0;
  }
  if (const int error = admit(); error != 0) return error;
  send(asked, ProveReply{prove(token, Side::kServer, client_nonce_, server_nonce_)});
  return 0;
}

void Session::tick(Clock::time_point now) {
  if (dead_) return;
  if (refuse_at_ && now >= *refuse_at_) {
    if (!refusal_) return fail();  // it had its answer a moment ago
    refuse(*std::exchange(refusal_, std::nullopt), EACCES);
    refuse_at_ = now + kRefusalDelay;
  }
  if (state_ != State::kReady && now - created_ > kSetUpTime) fail();
  // It would keep others from the staging memory.
  const auto silent = now - moved_at_;
  const bool in_the_way = port_.starved && silent > kStarvedStall;
  const bool stalls = silent > std::chrono::seconds(shared_.options.stall_seconds);
  if (waits_for_network() && (in_the_way || stalls)) {
    port_.starved = false;  // one goes at a time
    ++shared_.counters.stalled;
    fail();
  }
}

int Session::stat(const StatRequest& request, StatReply& reply) {
  return shared_.tree.stat(request.path, reply.attributes);
}

int Session::usage(const StatFsRequest& request, StatFsReply& reply) {
  return shared_.tree.usage(request.path, reply.usage);
}

int Session::read_link(const ReadLinkRequest& request, ReadLinkReply& reply) {
  const int error = shared_.tree.read_link(request.path, link_);
  reply.target = link_;
  return error;
}

int Session::make_directory(const MakeDirectoryRequest& request, NoReply& /*reply*/) {
  return shared_.tree.make_directory(request.path, request.mode);
}

int Session::symlink(const SymlinkRequest& request, NoReply& /*reply*/) {
  return shared_.tree.symlink(request.path, request.target);
}

std::shared_ptr<Session::OpenFile> Session::find(std::uint64_t handle) const {
  const auto at = files_.find(handle);
  return at == files_.end() ? nullptr : at->second;
}

std::uint64_t Session::add(std::shared_ptr<OpenFile> file) {
  assert(file != nullptr);
  files_.emplace(next_handle_, std::move(file));
  return next_handle_++;
}

}  // namespace weft::files
