#include "files/server/uploads.h"

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "files/protocol/file_attributes.h"
#include "files/server/work_ids.h"

namespace weft::files {
namespace {

constexpr std::uint32_t kChunkBytes = 256U << 10U;

}  // namespace

int Uploads::write(const WriteRequest& request, const Asked& asked) {
  auto file = files_.find(request.handle);
  if (file == nullptr || !file->writable()) return EBADF;
  if (file->edited && !shared_.options.owners) {
    if (const int error = drop_set_ids(file->get()); error != 0) return error;
  }
  if (!answers_.begin()) return 0;
  Incoming incoming;
  incoming.file = std::move(file);
  incoming.asked = asked;
  incoming.offset = request.offset;
  incoming.memory = request.memory;
  incoming_.push_back(std::move(incoming));
  return 0;
}

int Uploads::sync(const SyncRequest& request, const Asked& asked) {
  auto file = files_.find(request.handle);
  if (file == nullptr || file->draft != nullptr) return EBADF;
  if (!shared_.tree.writable()) return EROFS;
  if (!answers_.begin()) return 0;
  Sync& sync = syncs_.emplace_back();
  sync.self = std::prev(syncs_.end());
  sync.uploads = this;
  sync.file = std::move(file);
  sync.asked = asked;
  shared_.disk->sync(sync.file->get(), sync);
  return 0;
}

void Uploads::synced(Sync& sync, std::int64_t result) {
  assert(sync.uploads == this);
  const Asked asked = sync.asked;
  syncs_.erase(sync.self);
  if (result < 0) shared_.note_lost_flush();
  if (answers_.closed()) return;
  answers_.end();
  if (result >= 0) return answers_.send(asked, SyncReply{shared_.verifier});
  answers_.refuse(asked, static_cast<int>(-result));
}

bool Uploads::wants_memory() const {
  return std::any_of(incoming_.begin(), incoming_.end(),
                     [](const Incoming& i) { return i.has_more(); });
}

bool Uploads::busy_with(const OpenFiles::File& file) const {
  return std::any_of(incoming_.begin(), incoming_.end(),
                     [&](const Incoming& i) { return i.file == file; });
}

Uploads::Chunk* Uploads::new_chunk(std::uint32_t bytes) {
  assert(bytes != 0 && bytes <= kChunkBytes && chunks_.size() <= kMostChunks);
  if (chunks_.size() == kMostChunks) return nullptr;
  const auto segment = window_.take(bytes);
  if (!segment) return nullptr;
  Chunk* chunk = &chunks_.emplace_back();
  chunk->self = std::prev(chunks_.end());
  chunk->uploads = this;
  chunk->memory = *segment;
  return chunk;
}

void Uploads::release(Chunk& chunk) {
  assert(chunk.uploads == this);
  window_.give_back(chunk.memory);
  chunks_.erase(chunk.self);
}

// One chunk of the oldest request that has any left to start.
bool Uploads::start_chunk() {
  const auto incoming = std::find_if(incoming_.begin(), incoming_.end(),
                                     [](const Incoming& i) { return i.has_more(); });
  assert(incoming != incoming_.end() && shared_.disk->has_room());
  const std::uint32_t bytes = std::min(kChunkBytes, incoming->memory.bytes - incoming->started);
  Chunk* chunk = new_chunk(bytes);
  if (chunk == nullptr) return false;
  chunk->incoming = incoming;
  chunk->at = incoming->started;
  chunk->want = bytes;
  incoming->started += bytes;
  ++incoming->chunks;
  const int error =
      post_rdma(qp_, IBV_WR_RDMA_READ, work_id(WorkKind::kChunk, chunk), chunk->memory.data, bytes,
                lkey_, incoming->memory.address + chunk->at, incoming->memory.rkey);
  if (error != 0) answers_.fail();
  return error == 0;
}

std::uint32_t Uploads::network_done(std::uint64_t wr_id) {
  auto& chunk = object_of<Chunk>(wr_id);
  const std::uint32_t bytes = chunk.want;
  write_disk(chunk);
  return bytes;
}

void Uploads::write_disk(Chunk& chunk) {
  assert(chunk.uploads == this && chunk.got < chunk.want);
  ++on_disk_;
  const Incoming& i = *chunk.incoming;
  shared_.disk->write(i.file->get(), chunk.memory.data + chunk.got, chunk.want - chunk.got,
                      i.offset + chunk.at + chunk.got, chunk);
}

void Uploads::written(Chunk& chunk, std::int64_t result) {
  assert(on_disk_ > 0 && result <= std::int64_t{chunk.want} - chunk.got);
  --on_disk_;
  if (result < 0) shared_.note_lost_write(static_cast<int>(-result));
  if (answers_.closed()) return release(chunk);
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
  if (--incoming->chunks == 0 && !incoming->has_more()) finish(incoming);
}

void Uploads::finish(std::list<Incoming>::iterator incoming) {
  assert(incoming->chunks == 0);
  const Asked asked = incoming->asked;
  const int error = incoming->error;
  const WriteReply reply{incoming->memory.bytes, shared_.verifier};
  incoming_.erase(incoming);
  answers_.end();
  return error == 0 ? answers_.send(asked, reply) : answers_.refuse(asked, error);
}

}  // namespace weft::files
