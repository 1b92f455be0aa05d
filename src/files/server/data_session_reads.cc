// Reads of a client, by ReadSend: files, the records of a PLAY, and the names in folders.
#include <algorithm>
#include <cassert>

#include "files/protocol/file_attributes.h"
#include "files/server/data_session.h"
#include "files/server/work_ids.h"

namespace weft::files {
namespace {

// Whether a file that was read whole is still that of its attributes. A file that somebody changes
// meanwhile is no version of it: the client opens it again.
int check_version(const OpenFile& file, const FileState& before) {
  int error = 0;
  const FileState now = state_of(file.get(), &error);
  return error == 0 && !same_token(before, now) ? ESTALE : error;
}

}  // namespace

// ---- Requests

int Session::open(const OpenRequest& request, const Asked& asked) {
  if (!files_.have_room(laters_.size())) return EMFILE;
  auto file = files_.make();
  const bool direct = shared_.options.direct;
  FileState state;
  const int error = shared_.tree.open_file(request.path, direct, false, file->fd, state);
  if (error == 0) opened(file, state, request.memory, asked);
  if (error != EWOULDBLOCK) return error;
  // Another process has a lease of it, and was told to give it up.
  const auto later = std::make_shared<FileState>();
  return laters_.carry_out(
      asked, true,
      [this, file, later, direct, path = KeptPath(request.path)] {
        return shared_.tree.open_file(path.name(), direct, true, file->fd, *later);
      },
      [this, file, later, memory = request.memory, asked] { opened(file, *later, memory, asked); });
}

void Session::opened(OpenFiles::File file, const FileState& state, const RemoteMemory& to,
                     const Asked& asked) {
  OpenReply reply;
  reply.state = state;
  const std::uint64_t size = state.attributes.size;
  const std::uint32_t room = std::min(to.bytes, kMaxIoBytes);
  // Where no octets are asked for, the client wants the file: a lease of it, or to see it grow.
  const bool whole = room != 0 && size <= room;
  if (!whole) reply.handle = files_.add(file);
  const auto first = static_cast<std::uint32_t>(std::min<std::uint64_t>(size, room));
  if (first == 0) return answers_.send(asked, reply);
  RemoteMemory memory = to;
  memory.bytes = first;
  Outgoing out = make_outgoing(std::move(file), asked, 0, memory);
  out.opened = reply;
  begin(std::move(out));
}

int Session::start_read(const ReadRequest& request, const Asked& asked) {
  auto file = files_.find(request.handle);
  if (file == nullptr || file->draft != nullptr) return EBADF;
  begin(make_outgoing(std::move(file), asked, request.offset, request.memory));
  return 0;
}

int Session::start_play(const PlayRequest& request, const Asked& asked) {
  return plays_.start(request, asked, files_.find(request.handle));
}

template <class Reply, class Fill>
int Session::send_page(const RemoteMemory& memory, const Asked& asked, Reply& reply,
                       const Fill& fill) {
  if (memory.bytes == 0) return EINVAL;
  noting_network_use();
  const auto page = listings_.take_page();
  if (!page) return EAGAIN;
  const auto room = page->octets.first(std::min(memory.bytes, Listings::kPageBytes));
  const int error = fill(room);
  if (error != 0 || reply.bytes == 0) {
    listings_.give_back(page->number);
  } else {
    shared_.counters.bytes_out += reply.bytes;
    const int posted =
        post_rdma(id_->qp, IBV_WR_RDMA_WRITE, work_id(WorkKind::kPage, page->number), room.data(),
                  reply.bytes, port_.lists().memory.lkey(), memory.address, memory.rkey);
    if (posted != 0) fail();
  }
  // The reply may follow at once: it cannot overtake the Write.
  if (error == 0) answers_.send(asked, reply);
  return error;
}

int Session::list(const ListRequest& request, const Asked& asked) {
  ListReply reply;
  return send_page(request.memory, asked, reply, [&](std::span<std::uint8_t> room) {
    return listings_.fill(shared_.tree, request, reply, room, *shared_.disposal);
  });
}

int Session::xattrs(const XattrsRequest& request, const Asked& asked) {
  XattrsReply reply;
  return send_page(request.memory, asked, reply, [&](std::span<std::uint8_t> room) {
    return object_requests_.xattrs(request, reply, room);
  });
}

// ---- As a link of the pipeline

Session::Outgoing Session::make_outgoing(OpenFiles::File file, const Asked& asked,
                                         std::uint64_t offset, const RemoteMemory& memory) const {
  Outgoing out;
  out.fd = file->get();
  out.direct = shared_.options.direct;
  out.offset = offset;
  out.bytes = memory.bytes;
  out.file = std::move(file);
  out.asked = asked;
  out.memory = memory;
  return out;
}

void Session::begin(Outgoing outgoing) {
  if (!answers_.begin()) return;
  outgoing_.push_back(std::move(outgoing));
  outgoing_.back().self = std::prev(outgoing_.end());
  shared_.pipeline->submit(*this, outgoing_.back());
}

void Session::begin_record(const Plays::Record& record) {
  Outgoing out = make_outgoing(record.file, {}, record.offset, record.slot);
  out.play = out.order = record.play;
  out.has_tail = true;
  out.record = record.number;
  begin(std::move(out));
}

std::optional<readsend::Segment> Session::take_segment(std::uint32_t bytes) {
  return window_.take(bytes);
}

void Session::give_back(const readsend::Segment& segment) { window_.give_back(segment); }

// The others that wait for the network, if any, have waited for longer than what comes now.
void Session::noting_network_use() {
  if (!waits_for_network()) moved_at_ = Clock::now();
}

int Session::post(readsend::Request& request, readsend::Piece& piece) {
  const auto& out = static_cast<Outgoing&>(request);
  int error = 0;
  if (piece.is_tail()) {
    if (plays_.has_failed(out.play)) return ECANCELED;
    error = post_immediate(id_->qp, work_id(WorkKind::kPiece, &piece), out.record,
                           out.memory.address, out.memory.rkey);
  } else {
    shared_.counters.bytes_out += piece.got;
    noting_network_use();
    error = post_rdma(id_->qp, IBV_WR_RDMA_WRITE, work_id(WorkKind::kPiece, &piece), piece.octets(),
                      piece.got, port_.staging().memory.lkey(), out.memory.address + piece.at,
                      out.memory.rkey);
  }
  if (error != 0) fail();
  return error;
}

void Session::sent(readsend::Request& request) {
  auto& out = static_cast<Outgoing&>(request);
  answers_.end();
  if (out.play != 0) return plays_.sent(out.play, out.complete(), out.error);
  if (out.error != 0) return answers_.refuse(out.asked, out.error);
  // Fewer octets than asked for: the file ends here, or has become shorter.
  const auto bytes = static_cast<std::uint32_t>(out.end);
  if (out.asked.op == Op::kRead) return answers_.send(out.asked, ReadReply{bytes});
  OpenReply reply = out.opened;
  reply.bytes = bytes;
  const int error = reply.handle == 0 ? check_version(*out.file, reply.state) : 0;
  return error == 0 ? answers_.send(out.asked, reply) : answers_.refuse(out.asked, error);
}

void Session::finished(readsend::Request& request) {
  const auto self = static_cast<Outgoing&>(request).self;
  if (self->play != 0) plays_.finished();
  outgoing_.erase(self);
}

}  // namespace weft::files
