// Set-up, messages, and how a session ends; data_session_reads.cc has what the client reads.
#include "files/server/data_session.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "files/protocol/file_attributes.h"
#include "files/server/leases.h"
#include "files/server/tree_requests.h"
#include "files/server/work_ids.h"

namespace weft::files {
namespace {

// Whatever a client asks for, the send queue has room: a reply, a piece, an immediate, a chunk and
// a page are each posted within their own limit.
constexpr unsigned kSendDepth = MessageRing::kReplySlots + Session::kMaxPieces +
                                Plays::kMostRecords + Uploads::kMostChunks + Listings::kMostPages;
// While other sessions wait for memory, a session whose client takes no byte for this long ends.
constexpr auto kStarvedStall = std::chrono::seconds(1);

}  // namespace

Session::Session(Shared& shared, Port& port, rdma_cm_id* id)
    : Link(kMaxPieces),
      shared_(shared),
      port_(port),
      id_(id),
      answers_(*this, ring_, shared.counters),
      admission_(shared, answers_, Clock::now()),
      window_(port.staging(), port.starved),
      files_(*shared.disposal, shared.options.max_open_files),
      listings_(port.lists(), port.starved),
      laters_(answers_, *shared.background),
      uploads_(shared, answers_, files_, window_, port.staging().memory.lkey()),
      plays_(answers_),
      file_requests_(shared, answers_, files_, laters_, uploads_),
      object_requests_(shared, files_, laters_),
      moved_at_(admission_.created()) {}

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
  auto messages = Registered::create(port_.pd(), MessageRing::kBytes, IBV_ACCESS_LOCAL_WRITE);
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
  const int error = ring_.open(id_->qp, messages_.data(), messages_.lkey());
  if (error != 0) return failed(error, "no receive");
  uploads_.open(id_->qp);
  return {};
}

// With the queue pair ends what the network does with the memory that goes back behind it.
Session::~Session() {
  ring_.close();
  if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (id_ != nullptr) rdma_destroy_id(id_);
}

void Session::fail() {
  if (dead()) return;
  answers_.close();
  admission_.close();
  ring_.close();
  // No Write leaves staging memory any more, nor does a Read enter it: from here on only the disk
  // can touch it.
  rdma_disconnect(id_);
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  shared_.pipeline->close(*this);
  object_requests_.lost();
  files_.close();
  laters_.close();
  listings_.close();
}

void Session::arm() {
  if (!dead()) ibv_req_notify_cq(cq_, 0);
}

std::size_t Session::poll() {
  if (dead()) return 0;
  ibv_wc wcs[32];
  std::size_t total = 0;
  for (;;) {
    const int count = ibv_poll_cq(cq_, 32, wcs);
    if (count < 0) fail();
    if (count <= 0) return total;
    total += static_cast<std::size_t>(count);
    for (int i = 0; i < count && !dead(); ++i) completion(wcs[i]);
    if (dead() || count < 32) return total;
  }
}

void Session::completion(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) return fail();
  const WorkKind kind = kind_of(wc.wr_id);
  if (kind == WorkKind::kReceive) return request(slot_of(wc.wr_id), wc.byte_len);
  // Requests are no sign that the client takes anything.
  moved_at_ = Clock::now();
  switch (kind) {
    case WorkKind::kReceive: return;
    case WorkKind::kReply: return ring_.sent(slot_of(wc.wr_id));
    case WorkKind::kPage: return listings_.give_back(slot_of(wc.wr_id));
    case WorkKind::kChunk: return window_.drained(uploads_.network_done(wc.wr_id), moved_at_);
    case WorkKind::kPiece: {
      auto& piece = object_of<readsend::Piece>(wc.wr_id);
      window_.drained(piece.got, moved_at_);
      return shared_.pipeline->network_done(piece, true);
    }
  }
}

void Session::request(std::size_t slot, std::uint32_t bytes) {
  ++shared_.counters.requests;
  // A copy: the receive is posted again before the reply that lets the client use it.
  std::uint8_t copy[kMessageBytes];
  assert(bytes <= sizeof copy);
  if (ring_.take(slot, {copy, bytes}) != 0) return fail();
  if (admission_.refuses()) return;
  const std::span<const std::uint8_t> message(copy, bytes);
  const auto head = decode_head(message);
  if (!head || head->is_reply) return fail();
  dispatch(*head, body_of(*head, message));
}

void Session::dispatch(const Head& head, const BodyReader& body) {
  const Asked asked{head.op, head.tag};
  if (head.op == Op::kHello) return start(asked, body, admission_, &Admission::greet);
  if (head.op == Op::kProve) return start(asked, body, admission_, &Admission::prove_client);
  if (!ready()) return answers_.refuse(asked, EACCES);
  TreeRequests names(shared_.tree);
  switch (head.op) {
    case Op::kHello:
    case Op::kProve: return;
    case Op::kStat: return serve(asked, body, names, &TreeRequests::stat);
    case Op::kStatFs: return serve(asked, body, names, &TreeRequests::usage);
    case Op::kMakeDirectory: return serve(asked, body, names, &TreeRequests::make_directory);
    case Op::kSymlink: return serve(asked, body, names, &TreeRequests::symlink);
    case Op::kReadLink: return serve(asked, body, names, &TreeRequests::read_link);
    case Op::kClose: return serve(asked, body, *this, &Session::close_file);
    case Op::kGrant: return serve(asked, body, plays_, &Plays::grant);
    case Op::kOpen: return start(asked, body, *this, &Session::open);
    case Op::kList: return start(asked, body, *this, &Session::list);
    case Op::kRead: return start(asked, body, *this, &Session::start_read);
    case Op::kPlay: return start(asked, body, *this, &Session::start_play);
    case Op::kWrite: return start(asked, body, uploads_, &Uploads::write);
    case Op::kSync: return start(asked, body, uploads_, &Uploads::sync);
    case Op::kRename: return start(asked, body, file_requests_, &FileRequests::rename);
    case Op::kRemove: return start(asked, body, file_requests_, &FileRequests::remove);
    case Op::kCreate: return start(asked, body, file_requests_, &FileRequests::create);
    case Op::kDraft: return start(asked, body, file_requests_, &FileRequests::draft);
    case Op::kEdit: return start(asked, body, file_requests_, &FileRequests::edit);
    case Op::kSet: return start(asked, body, file_requests_, &FileRequests::set);
    case Op::kCommit: return start(asked, body, file_requests_, &FileRequests::commit);
    case Op::kSum: return start(asked, body, file_requests_, &FileRequests::sum);
    case Op::kExtents: return start(asked, body, file_requests_, &FileRequests::extents);
    case Op::kLease: return serve(asked, body, object_requests_, &ObjectRequests::lease);
    case Op::kLink: return serve(asked, body, object_requests_, &ObjectRequests::link);
    case Op::kOwn: return serve(asked, body, object_requests_, &ObjectRequests::own);
    case Op::kXattrs: return start(asked, body, *this, &Session::xattrs);
    case Op::kSetXattr: return serve(asked, body, object_requests_, &ObjectRequests::set_xattr);
    case Op::kKeep: return serve(asked, body, object_requests_, &ObjectRequests::keep);
    case Op::kReopen: return serve(asked, body, object_requests_, &ObjectRequests::reopen);
  }
}

std::size_t Session::pump() {
  std::size_t count = 0;
  for (; !dead(); ++count) {
    const auto record = plays_.next();
    if (!record) break;
    begin_record(*record);
  }
  for (; !dead() && uploads_.can_start(); ++count) {
    noting_network_use();
    if (!uploads_.start_chunk()) break;
  }
  return count;
}

void Session::tick(Clock::time_point now) {
  if (dead()) return;
  admission_.tick(now);
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

int Session::close_file(const CloseRequest& request, CloseReply& reply) {
  const auto file = files_.take(request.handle);
  if (file == nullptr) return EBADF;
  if (file->draft != nullptr) {
    file->draft->discard();
  } else {
    int error = 0;  // then the state says nothing, and the client takes the file for changed
    reply.state = state_of(file->get(), &error);
    if (file->leased && Leases::has(*file)) reply.state.level = kLevelLease;
  }
  plays_.close(request.handle);
  return 0;
}

}  // namespace weft::files
