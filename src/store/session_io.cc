// The data of a session: chunks of staging memory between files and the client's memory.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "store/session.h"

namespace weft::store {
namespace {

constexpr std::uint32_t kChunkBytes = 256U << 10U;
constexpr std::uint32_t kPage = 4096;  // what O_DIRECT wants, on every disk there is

}  // namespace

// ---- Requests that move data

int Session::open(const Request& request, Reply& reply, bool& later) {
  if (files_.size() >= shared_.options.max_open_files) return EMFILE;
  auto file = std::make_shared<OpenFile>();
  const int error = shared_.tree.open_file({request.path, request.links}, shared_.options.direct,
                                           file->fd, reply.attributes);
  if (error != 0) return error;
  const std::uint64_t size = reply.attributes.size;
  const std::uint32_t room = std::min(request.memory.bytes, kMaxIoBytes);
  const bool whole = size <= room;
  if (!whole) {
    reply.handle = next_handle_++;
    files_.emplace(reply.handle, file);
  }
  const auto first = static_cast<std::uint32_t>(std::min<std::uint64_t>(size, room));
  if (first == 0) return 0;
  Transfer transfer;
  transfer.file = std::move(file);
  transfer.reply = reply;
  transfer.memory = request.memory;
  transfer.memory.bytes = first;
  begin(std::move(transfer));
  later = true;
  return 0;
}

int Session::start_read(const Request& request, const Reply& reply) {
  auto file = find(request.handle);
  if (file == nullptr || file->draft != nullptr) return EBADF;
  Transfer transfer;
  transfer.file = std::move(file);
  transfer.reply = reply;
  transfer.offset = request.offset;
  transfer.memory = request.memory;
  begin(std::move(transfer));
  return 0;
}

int Session::start_write(const Request& request, const Reply& reply) {
  auto file = find(request.handle);
  if (file == nullptr || !file->writable()) return EBADF;
  Transfer transfer;
  transfer.file = std::move(file);
  transfer.reply = reply;
  transfer.offset = request.offset;
  transfer.memory = request.memory;
  transfer.inbound = true;
  begin(std::move(transfer));
  return 0;
}

int Session::list(const Request& request, Reply& reply) {
  Chunk* chunk = new_chunk(std::min(request.memory.bytes, kChunkBytes), kMaxChunks + kMaxLists);
  if (chunk == nullptr) return request.memory.bytes == 0 ? EINVAL : EAGAIN;
  const int error = shared_.tree.list({request.path, request.links}, request.offset,
                                      {chunk->data, std::min(request.memory.bytes, kChunkBytes)},
                                      reply.cursor, reply.bytes);
  if (error != 0 || reply.bytes == 0) {
    release(*chunk);
    if (error == 0) send(reply);
    return error;
  }
  Transfer transfer;
  transfer.reply = reply;
  transfer.memory = request.memory;
  transfer.started = transfer.memory.bytes = transfer.end = reply.bytes;
  transfer.chunks = 1;
  transfers_.push_back(std::move(transfer));
  chunk->transfer = std::prev(transfers_.end());
  chunk->got = reply.bytes;
  push_to_client(*chunk);
  return 0;
}

void Session::begin(Transfer transfer) {
  // More than its credits allow.
  if (transfers_.size() >= kCredits + kMaxRecords) return fail();
  transfer.end = transfer.memory.bytes;
  transfers_.push_back(std::move(transfer));
}

// ---- Chunks

Session::Chunk* Session::new_chunk(std::uint32_t bytes, std::size_t limit) {
  if (bytes == 0 || chunks_.size() >= limit) return nullptr;
  const auto memory = port_.heap().allocate(owner_, bytes, 12);
  if (!memory) return nullptr;
  Chunk* chunk = &chunks_.emplace_back();
  chunk->self = std::prev(chunks_.end());
  chunk->session = this;
  chunk->memory = *memory;
  chunk->data = port_.at(*port_.heap().extent(owner_, *memory));
  return chunk;
}

void Session::release(Chunk& chunk) {
  static_cast<void>(port_.heap().free(owner_, chunk.memory));
  chunks_.erase(chunk.self);
}

std::size_t Session::pump() {
  std::size_t count = start_records();
  while (!dead_ && start_chunk()) ++count;
  return count;
}

bool Session::wants_pump() const {
  if (dead_) return false;
  return std::any_of(transfers_.begin(), transfers_.end(), has_more) ||
         std::any_of(plays_.begin(), plays_.end(),
                     [this](const auto& play) { return can_start_record(play.second); });
}

bool Session::has_more(const Transfer& t) {
  return t.reply.error == 0 && t.started < t.memory.bytes;
}

// One chunk of the oldest request that has any left to start.
bool Session::start_chunk() {
  const auto transfer = std::find_if(transfers_.begin(), transfers_.end(), has_more);
  if (transfer == transfers_.end() || !shared_.disk->has_room()) return false;
  const std::uint64_t offset = transfer->offset + transfer->started;
  const bool direct = shared_.options.direct && !transfer->inbound;
  const auto skew = direct ? static_cast<std::uint32_t>(offset % kPage) : 0U;
  const std::uint32_t bytes =
      std::min(kChunkBytes - skew, transfer->memory.bytes - transfer->started);
  const std::uint32_t room = skew + bytes;
  Chunk* chunk = new_chunk(direct ? (room + kPage - 1) / kPage * kPage : room, kMaxChunks);
  if (chunk == nullptr) return false;
  chunk->transfer = transfer;
  chunk->at = transfer->started;
  chunk->want = bytes;
  chunk->skew = skew;
  transfer->started += bytes;
  ++transfer->chunks;
  if (!transfer->inbound) {
    read_disk(*chunk);
    return true;
  }
  chunk->inbound = true;
  if (chunks_.size() == on_disk_ + 1) moved_at_ = Clock::now();
  const int error =
      post_rdma(id_->qp, IBV_WR_RDMA_READ, reinterpret_cast<std::uintptr_t>(chunk), chunk->data,
                bytes, port_.lkey(), transfer->memory.address + chunk->at, transfer->memory.rkey);
  if (error != 0) fail();
  return error == 0;
}

void Session::read_disk(Chunk& chunk) {
  ++on_disk_;
  const Transfer& t = *chunk.transfer;
  const std::uint64_t offset = t.offset + chunk.at + chunk.got - chunk.skew;
  std::uint32_t bytes = chunk.want - chunk.got + chunk.skew;
  if (shared_.options.direct) bytes = (bytes + kPage - 1) / kPage * kPage;
  shared_.disk->read(t.file->get(), chunk.data + chunk.got, bytes, offset, chunk);
}

void Session::write_disk(Chunk& chunk) {
  ++on_disk_;
  const Transfer& t = *chunk.transfer;
  shared_.disk->write(t.file->get(), chunk.data + chunk.got, chunk.want - chunk.got,
                      t.offset + chunk.at + chunk.got, chunk);
}

void Session::disk_done(Chunk& chunk, std::int64_t result) {
  --on_disk_;
  if (dead_) return release(chunk);
  Transfer& t = *chunk.transfer;
  if (result < 0) t.reply.error = static_cast<std::uint32_t>(-result);
  auto moved = static_cast<std::uint32_t>(std::max<std::int64_t>(result, 0));
  if (shared_.options.direct && !t.inbound) {
    // One attempt brings all there is; what was read around it does not count.
    moved = std::min(moved > chunk.skew ? moved - chunk.skew : 0, chunk.want);
    result = 0;
  }
  chunk.got += moved;
  if (result > 0 && chunk.got < chunk.want) {
    // Short, but not at an end. There is room: this request has just left.
    return t.inbound ? write_disk(chunk) : read_disk(chunk);
  }
  if (t.inbound) {
    if (t.reply.error == 0 && chunk.got < chunk.want) t.reply.error = EIO;
    shared_.counters.bytes_in += chunk.got;
  } else {
    // The file ends here, or has become shorter: the client sees it by the number of octets.
    if (chunk.got < chunk.want) t.end = std::min(t.end, chunk.at + chunk.got);
    if (t.reply.error == 0 && chunk.got != 0) return push_to_client(chunk);
  }
  const TransferAt transfer = chunk.transfer;
  release(chunk);
  chunk_finished(transfer);
}

void Session::push_to_client(Chunk& chunk) {
  const TransferAt transfer = chunk.transfer;
  shared_.counters.bytes_out += chunk.got;
  // The others that wait, if any, have waited for longer than this one.
  if (chunks_.size() == on_disk_ + 1) moved_at_ = Clock::now();
  const int error = post_rdma(id_->qp, IBV_WR_RDMA_WRITE, reinterpret_cast<std::uintptr_t>(&chunk),
                              chunk.data + chunk.skew, chunk.got, port_.lkey(),
                              transfer->memory.address + chunk.at, transfer->memory.rkey);
  if (error != 0) return fail();
  // The reply may follow at once: it cannot overtake the Write.
  chunk_finished(transfer);
}

void Session::network_done(Chunk& chunk) {
  // Of a chunk on its way out the request may be answered and gone.
  if (chunk.inbound) return write_disk(chunk);
  release(chunk);
}

void Session::chunk_finished(TransferAt transfer) {
  --transfer->chunks;
  const bool all = transfer->reply.error != 0 || transfer->started >= transfer->memory.bytes;
  if (!all || transfer->chunks != 0) return;
  if (transfer->play != 0) return record_finished(transfer);
  Reply reply = transfer->reply;
  reply.bytes = transfer->end;
  transfers_.erase(transfer);
  send(reply);
}

}  // namespace weft::store
