// Reading of a served file, with read-ahead: blocks of the registered memory hold what the server
// was asked for.
#include <algorithm>
#include <cstring>

#include "files/mount/remote.h"

namespace weft::mount {

namespace {

// Blocks that one reader may have asked for; the rest is for others.
constexpr std::uint32_t kMaxDepth = 8;

}  // namespace

void Remote::forget_blocks(std::uint64_t id) {
  for (Block& block : blocks_) {
    if (block.file != id) continue;
    block.dropped = true;
    if (block.state == Block::State::kHere) block = Block();
  }
}

std::uint8_t* Remote::data_of(const Block& block) const {
  return memory_.data() + kCallBytes +
         static_cast<std::size_t>(&block - blocks_.data()) * kBlockBytes;
}

Remote::Block* Remote::find(std::uint64_t file, std::uint64_t offset) {
  for (Block& block : blocks_) {
    const bool has = block.state != Block::State::kFree && block.file == file && !block.dropped &&
                     offset >= block.offset && offset - block.offset < block.want;
    if (has) return &block;
  }
  return nullptr;
}

// Null: every block is on its way, or the connection is gone.
Remote::Block* Remote::ask(std::uint64_t id, const File& file, std::uint64_t offset,
                           std::uint32_t bytes) {
  Block* block = nullptr;
  for (Block& one : blocks_) {
    if (one.state == Block::State::kAsked || &one == pinned_) continue;
    if (one.state == Block::State::kFree) {
      block = &one;
      break;
    }
    if (block == nullptr || one.used < block->used) block = &one;
  }
  if (block == nullptr || client_->outstanding() >= client_->credits()) return nullptr;
  *block = {Block::State::kAsked,
            id,
            offset,
            std::min({bytes, kBlockBytes, client_->max_io()}),
            0,
            0,
            ++clock_,
            false};
  const files::ReadRequest request{
      file.handle, offset, {files::address_of(data_of(*block)), memory_.rkey(), block->want}};
  if (client_->post(request, static_cast<std::uint64_t>(block - blocks_.data()))) return block;
  *block = Block();
  return nullptr;
}

// A reader who goes straight on gets more and more blocks in advance.
void Remote::read_ahead(std::uint64_t id, File& file, std::uint64_t offset, std::uint32_t bytes) {
  if (!file.size_known) return;  // what was read ahead would soon be old
  if (offset != file.next) file.depth = 0;
  file.next = offset + bytes;
  if (file.depth == 0) file.ahead = file.next;
  const std::uint32_t most =
      std::min(kMaxDepth, std::max(1U, static_cast<std::uint32_t>(blocks_.size() / 2)));
  if (file.ahead <= file.next) file.depth = std::min(most, std::max(1U, file.depth * 2));
  const std::uint64_t size = file.state.attributes.size;
  const std::uint64_t until = std::min(size, file.next + std::uint64_t{file.depth} * kBlockBytes);
  file.ahead = std::max(file.ahead, file.next);
  while (file.ahead < until) {
    if (find(id, file.ahead) == nullptr) {
      const auto want =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(kBlockBytes, size - file.ahead));
      if (ask(id, file, file.ahead, want) == nullptr) return;
    }
    const Block* block = find(id, file.ahead);
    file.ahead = block->offset + block->want;
  }
}

std::int64_t Remote::try_read(std::uint64_t id, File& file, std::uint8_t* to, std::uint32_t bytes,
                              std::uint64_t offset) {
  if (make_room() != 0) return -EIO;
  pinned_ = find(id, offset);
  if (pinned_ == nullptr) pinned_ = ask(id, file, offset, bytes);
  read_ahead(id, file, offset, bytes);
  pinned_ = nullptr;
  std::uint32_t done = 0;
  while (done < bytes) {
    Block* block = find(id, offset + done);
    if (block == nullptr) {
      if (make_room() != 0) return -EIO;
      block = ask(id, file, offset + done, bytes - done);
    }
    if (block == nullptr || block->state == Block::State::kAsked) {
      const auto answer = client_->wait();
      if (!answer || !take(*answer)) return -EIO;
      continue;
    }
    block->used = ++clock_;
    if (block->error != 0) {
      const int error = block->error;
      *block = Block();
      return -error;
    }
    const auto skip = static_cast<std::uint32_t>(offset + done - block->offset);
    const std::uint32_t here = block->got > skip ? block->got - skip : 0;
    const std::uint32_t take_now = std::min(here, bytes - done);
    std::memcpy(to + done, data_of(*block) + skip, take_now);
    done += take_now;
    const bool end = block->got < block->want && take_now == here;
    if (skip + take_now == block->got) *block = Block();  // read to its end: others need the room
    if (end) break;
  }
  return done;
}

std::int64_t Remote::read(std::uint64_t id, std::uint8_t* to, std::uint32_t bytes,
                          std::uint64_t offset) {
  const auto at = files_.find(id);
  if (at == files_.end()) return -EBADF;
  if (!files::offset_is_legal(offset + bytes)) return 0;  // no file is as long
  File& file = at->second;
  if (const std::uint64_t now = changes_.of(file.state.attributes.file_id); now != file.changes) {
    file.changes = now;
    file.size_known = false;
    forget_blocks(id);
  }
  if (file.size_known) {
    if (offset >= file.state.attributes.size) return 0;
    bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(bytes, file.state.attributes.size - offset));
  }
  for (int tries = 0;; ++tries) {
    if (const int error = ready_with(file)) return -error;
    const std::int64_t got = try_read(id, file, to, bytes, offset);
    if (got >= 0 || (client_ != nullptr && client_->alive()) || tries != 0) return got;
  }
}

}  // namespace weft::mount
