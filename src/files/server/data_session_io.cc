// The data of a session: what the client reads, by ReadSend, and what it writes, in chunks.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cassert>

#include "files/protocol/file_attributes.h"
#include "files/server/data_session.h"

namespace weft::files {
namespace {

constexpr std::uint32_t kChunkBytes = 256U << 10U;
constexpr std::uint64_t kChunkBit = 2;  // as data_session.cc tells completions apart
constexpr std::uint32_t kListPageBytes = 64U << 10U;

// Where memory gets short, a session may hold what it drains in so much time, within these limits;
// and the last part of the memory is for sessions that hold nothing.
constexpr std::chrono::milliseconds kDrainTime{20};
constexpr std::uint64_t kLeastWindow = kChunkBytes;
constexpr std::uint64_t kMostWindow = std::uint64_t{4} << 20U;
constexpr std::uint64_t kReservedPart = 8;

}  // namespace

// ---- Requests that move data

int Session::open(const OpenRequest& request, const Asked& asked) {
  if (!may_open()) return EMFILE;
  auto file = new_file();
  const bool direct = shared_.options.direct;
  FileState state;
  const int error = shared_.tree.open_file(request.path, direct, false, file->fd, state);
  if (error == 0) opened(file, state, request.memory, asked);
  if (error != EWOULDBLOCK) return error;
  // Another process has a lease of it, and was told to give it up.
  const auto later = std::make_shared<FileState>();
  return carry_out(
      asked, true,
      [this, file, later, direct, path = KeptPath(request.path)] {
        return shared_.tree.open_file(path.name(), direct, true, file->fd, *later);
      },
      [this, file, later, memory = request.memory, asked] { opened(file, *later, memory, asked); });
}

void Session::opened(std::shared_ptr<OpenFile> file, const FileState& state, const RemoteMemory& to,
                     const Asked& asked) {
  OpenReply reply;
  reply.state = state;
  const std::uint64_t size = state.attributes.size;
  const std::uint32_t room = std::min(to.bytes, kMaxIoBytes);
  const bool whole = size <= room;
  if (!whole) reply.handle = add(file);
  const auto first = static_cast<std::uint32_t>(std::min<std::uint64_t>(size, room));
  if (first == 0) return send(asked, reply);
  RemoteMemory memory = to;
  memory.bytes = first;
  Outgoing out = make_outgoing(std::move(file), asked, 0, memory);
  out.opened = reply;
  begin(std::move(out));
}

int Session::start_read(const ReadRequest& request, const Asked& asked) {
  auto file = find(request.handle);
  if (file == nullptr || file->draft != nullptr) return EBADF;
  begin(make_outgoing(std::move(file), asked, request.offset, request.memory));
  return 0;
}

int Session::start_write(const WriteRequest& request, const Asked& asked) {
  auto file = find(request.handle);
  if (file == nullptr || !file->writable()) return EBADF;
  if (!begin_one()) return 0;
  Incoming incoming;
  incoming.file = std::move(file);
  incoming.asked = asked;
  incoming.offset = request.offset;
  incoming.memory = request.memory;
  incoming_.push_back(std::move(incoming));
  return 0;
}

int Session::start_sync(const SyncRequest& request, const Asked& asked) {
  auto file = find(request.handle);
  if (file == nullptr || file->draft != nullptr) return EBADF;
  if (!shared_.tree.writable()) return EROFS;
  if (!begin_one()) return 0;
  Sync& sync = syncs_.emplace_back();
  sync.self = std::prev(syncs_.end());
  sync.session = this;
  sync.file = std::move(file);
  sync.asked = asked;
  shared_.disk->sync(sync.file->get(), sync);
  return 0;
}

void Session::synced(Sync& sync, std::int64_t result) {
  assert(sync.session == this);
  const Asked asked = sync.asked;
  syncs_.erase(sync.self);
  if (result < 0) shared_.note_lost_flush();
  if (dead_) return;
  assert(unanswered_ > 0);
  --unanswered_;
  if (result >= 0) return send(asked, SyncReply{shared_.verifier});
  refuse(asked, static_cast<int>(-result));
}

int Session::list(const ListRequest& request, const Asked& asked) {
  if (request.memory.bytes == 0) return EINVAL;
  noting_network_use();
  Chunk* chunk = new_list();
  if (chunk == nullptr) return EAGAIN;
  ListReply reply;
  const int error =
      fill_page(request, reply, {chunk->data, std::min(request.memory.bytes, kListPageBytes)});
  if (error != 0 || reply.bytes == 0) {
    release(*chunk);
  } else {
    shared_.counters.bytes_out += reply.bytes;
    const int posted = post_rdma(id_->qp, IBV_WR_RDMA_WRITE, address_of(chunk) | kChunkBit,
                                 chunk->data, reply.bytes, port_.lists().memory.lkey(),
                                 request.memory.address, request.memory.rkey);
    if (posted != 0) fail();
  }
  // The reply may follow at once: it cannot overtake the Write.
  if (error == 0) send(asked, reply);
  return error;
}

// One page of a list. What a client has begun stays open; the oldest makes room for more than
// kMaxListings, and its client begins anew.
int Session::fill_page(const ListRequest& request, ListReply& reply, std::span<std::uint8_t> room) {
  KeptListing one{std::string(request.path.text), request.path.links, request.cursor, nullptr};
  const auto at = std::find_if(listings_.begin(), listings_.end(), [&](const KeptListing& k) {
    return request.cursor != 0 && k.cursor == one.cursor && k.path == one.path &&
           k.links == one.links;
  });
  if (at != listings_.end()) {
    one.listing = std::move(at->listing);
    listings_.erase(at);
  }
  const int error =
      shared_.tree.list(request.path, request.cursor, room, reply.cursor, reply.bytes, one.listing);
  if (one.listing == nullptr) return error;
  one.cursor = reply.cursor;
  listings_.push_front(std::move(one));
  if (listings_.size() > kMaxListings) listings_.pop_back();
  return error;
}

// A request whose answer comes later.   false: more than the credits allow, the session is dead
bool Session::begin_one() {
  if (unanswered_ >= kCredits + kMaxRecords) fail();
  if (!dead_) ++unanswered_;
  return !dead_;
}

// ---- What the client reads

Session::Outgoing Session::make_outgoing(std::shared_ptr<OpenFile> file, const Asked& asked,
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
  if (!begin_one()) return;
  outgoing_.push_back(std::move(outgoing));
  outgoing_.back().self = std::prev(outgoing_.end());
  shared_.pipeline->submit(*this, outgoing_.back());
}

std::optional<readsend::Segment> Session::take_segment(std::uint32_t bytes) {
  if (!may_take(bytes)) return std::nullopt;
  Port::Area& staging = port_.staging();
  const auto memory = staging.heap->allocate(owner_, bytes, 12);
  if (!memory) {
    port_.starved = port_.starved || held_bytes_ == 0;
    return std::nullopt;
  }
  if (held_bytes_ == 0) {
    port_.starved = false;
    window_from_ = Clock::now();
    drained_bytes_ = 0;
  }
  const auto extent = staging.heap->extent(owner_, *memory);
  assert(extent && extent->bytes >= bytes);
  held_bytes_ += extent->bytes;
  staging.held_bytes += extent->bytes;
  return readsend::Segment{staging.memory.data() + extent->offset, *memory};
}

void Session::give_back(const readsend::Segment& segment) {
  Port::Area& staging = port_.staging();
  const auto extent = staging.heap->extent(owner_, segment.handle);
  assert(extent && held_bytes_ >= extent->bytes && staging.held_bytes >= extent->bytes);
  held_bytes_ -= extent->bytes;
  staging.held_bytes -= extent->bytes;
  static_cast<void>(staging.heap->free(owner_, segment.handle));
}

// A client that takes its data slowly needs little memory to be kept busy; what it held beyond that
// would be missing for those who take theirs quickly. One segment is everybody's.
bool Session::may_take(std::uint32_t bytes) const {
  if (held_bytes_ == 0) return true;
  const Port::Area& staging = port_.staging();
  const std::uint64_t size = staging.memory.size();
  const std::uint64_t used = staging.held_bytes + bytes;
  // While half of it is free, nobody is in anybody's way.
  const std::uint64_t window = used <= size / 2 ? kMostWindow : window_bytes_;
  return held_bytes_ + bytes <= window && used + size / kReservedPart <= size;
}

// The network has taken so many bytes of the client's data, or brought them.
void Session::drained(std::uint32_t bytes) {
  drained_bytes_ += bytes;
  const auto now = Clock::now();
  const auto span = now - window_from_;
  if (span < kDrainTime) return;
  const double part =
      std::chrono::duration<double>(kDrainTime) / std::chrono::duration<double>(span);
  window_bytes_ = std::clamp(static_cast<std::uint64_t>(static_cast<double>(drained_bytes_) * part),
                             kLeastWindow, kMostWindow);
  window_from_ = now;
  drained_bytes_ = 0;
}

// The others that wait for the network, if any, have waited for longer than what comes now.
void Session::noting_network_use() {
  if (!waits_for_network()) moved_at_ = Clock::now();
}

int Session::post(readsend::Request& request, readsend::Piece& piece) {
  const auto& out = static_cast<Outgoing&>(request);
  int error = 0;
  if (piece.is_tail()) {
    if (plays_.at(out.play).error != 0) return ECANCELED;
    error = post_immediate(id_->qp, address_of(&piece), out.record, out.memory.address,
                           out.memory.rkey);
  } else {
    shared_.counters.bytes_out += piece.got;
    noting_network_use();
    error =
        post_rdma(id_->qp, IBV_WR_RDMA_WRITE, address_of(&piece), piece.octets(), piece.got,
                  port_.staging().memory.lkey(), out.memory.address + piece.at, out.memory.rkey);
  }
  if (error != 0) fail();
  return error;
}

void Session::sent(readsend::Request& request) {
  auto& out = static_cast<Outgoing&>(request);
  assert(unanswered_ > 0);
  --unanswered_;
  if (out.play != 0) return record_sent(out);
  if (out.error != 0) return refuse(out.asked, out.error);
  // Fewer octets than asked for: the file ends here, or has become shorter.
  const auto bytes = static_cast<std::uint32_t>(out.end);
  if (out.asked.op == Op::kRead) return send(out.asked, ReadReply{bytes});
  OpenReply reply = out.opened;
  reply.bytes = bytes;
  const int error = reply.handle == 0 ? check_version(*out.file, reply.state) : 0;
  return error == 0 ? send(out.asked, reply) : refuse(out.asked, error);
}

// Whether a file that was read whole is still that of its attributes. A file that somebody changes
// meanwhile is no version of it: the client opens it again.
int Session::check_version(const OpenFile& file, const FileState& before) {
  int error = 0;
  const FileState now = state_of(file.get(), &error);
  return error == 0 && !same_token(before, now) ? ESTALE : error;
}

void Session::finished(readsend::Request& request) {
  const auto self = static_cast<Outgoing&>(request).self;
  assert(self->play == 0 || records_ > 0);
  if (self->play != 0) --records_;
  outgoing_.erase(self);
}

// ---- What the client writes

Session::Chunk* Session::new_list() {
  Port::Area& lists = port_.lists();
  if (lists_ >= kMaxLists) return nullptr;
  const auto memory = lists.heap->allocate(list_owner_, kListPageBytes);
  if (!memory) {
    port_.starved = port_.starved || lists_ == 0;
    return nullptr;
  }
  ++lists_;
  Chunk* chunk = &chunks_.emplace_back();
  chunk->self = std::prev(chunks_.end());
  chunk->session = this;
  chunk->names = true;
  chunk->memory = *memory;
  chunk->data = lists.memory.data() + lists.heap->extent(list_owner_, *memory)->offset;
  return chunk;
}

Session::Chunk* Session::new_chunk(std::uint32_t bytes) {
  assert(bytes != 0 && bytes <= kChunkBytes && chunks_.size() >= lists_);
  if (chunks_.size() - lists_ >= kMaxChunks) return nullptr;
  const auto segment = take_segment(bytes);
  if (!segment) return nullptr;
  Chunk* chunk = &chunks_.emplace_back();
  chunk->self = std::prev(chunks_.end());
  chunk->session = this;
  chunk->memory = segment->handle;
  chunk->data = segment->data;
  return chunk;
}

void Session::release(Chunk& chunk) {
  assert(chunk.session == this && (!chunk.names || lists_ > 0));
  if (chunk.names) {
    static_cast<void>(port_.lists().heap->free(list_owner_, chunk.memory));
    --lists_;
  } else {
    give_back({chunk.data, chunk.memory});
  }
  chunks_.erase(chunk.self);
}

std::size_t Session::pump() {
  std::size_t count = start_records();
  while (!dead_ && start_chunk()) ++count;
  return count;
}

bool Session::wants_pump() const {
  if (dead_) return false;
  return std::any_of(incoming_.begin(), incoming_.end(), has_more) ||
         std::any_of(plays_.begin(), plays_.end(),
                     [this](const auto& play) { return can_start_record(play.second); });
}

bool Session::has_more(const Incoming& i) { return i.error == 0 && i.started < i.memory.bytes; }

// One chunk of the oldest request that has any left to start.
bool Session::start_chunk() {
  const auto incoming = std::find_if(incoming_.begin(), incoming_.end(), has_more);
  if (incoming == incoming_.end() || !shared_.disk->has_room()) return false;
  const std::uint32_t bytes = std::min(kChunkBytes, incoming->memory.bytes - incoming->started);
  noting_network_use();
  Chunk* chunk = new_chunk(bytes);
  if (chunk == nullptr) return false;
  chunk->incoming = incoming;
  chunk->at = incoming->started;
  chunk->want = bytes;
  incoming->started += bytes;
  ++incoming->chunks;
  const int error = post_rdma(id_->qp, IBV_WR_RDMA_READ, address_of(chunk) | kChunkBit, chunk->data,
                              bytes, port_.staging().memory.lkey(),
                              incoming->memory.address + chunk->at, incoming->memory.rkey);
  if (error != 0) fail();
  return error == 0;
}

void Session::write_disk(Chunk& chunk) {
  assert(!chunk.names && chunk.got < chunk.want);
  ++chunks_on_disk_;
  const Incoming& i = *chunk.incoming;
  shared_.disk->write(i.file->get(), chunk.data + chunk.got, chunk.want - chunk.got,
                      i.offset + chunk.at + chunk.got, chunk);
}

void Session::disk_done(Chunk& chunk, std::int64_t result) {
  assert(chunks_on_disk_ > 0 && result <= std::int64_t{chunk.want} - chunk.got);
  --chunks_on_disk_;
  if (result < 0) shared_.note_lost_write(static_cast<int>(-result));
  if (dead_) return release(chunk);
  const auto incoming = chunk.incoming;
  assert(incoming->chunks > 0);
  int& error = incoming->error;
  if (result < 0) error = static_cast<int>(-result);
  chunk.got += static_cast<std::uint32_t>(std::max<std::int64_t>(result, 0));
  // Short, but not at an end. There is room: this request has just left.
  if (result > 0 && chunk.got < chunk.want) return write_disk(chunk);
  if (error == 0 && chunk.got < chunk.want) error = EIO;
  shared_.counters.bytes_in += chunk.got;
  release(chunk);
  if (--incoming->chunks == 0 && !has_more(*incoming)) finish_write(incoming);
}

void Session::finish_write(std::list<Incoming>::iterator incoming) {
  assert(incoming->chunks == 0 && unanswered_ > 0);
  const Asked asked = incoming->asked;
  const int error = incoming->error;
  const WriteReply reply{incoming->memory.bytes, shared_.verifier};
  incoming_.erase(incoming);
  --unanswered_;
  return error == 0 ? send(asked, reply) : refuse(asked, error);
}

void Session::network_done(Chunk& chunk) {
  if (chunk.names) return release(chunk);
  drained(chunk.want);
  write_disk(chunk);
}

}  // namespace weft::files
