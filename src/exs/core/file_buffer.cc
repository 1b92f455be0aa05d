#include "exs/core/file_buffer.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

namespace weft::exs {
namespace {

constexpr std::size_t kKeptBytes = 64UL * 1024UL;

int read_file(const Piece& piece, std::size_t at, std::size_t length, std::uint8_t* to) {
  while (length != 0) {
    const ssize_t got = ::pread(piece.fd, to, length, piece.offset + static_cast<off_t>(at));
    if (got <= 0) return got == 0 ? EINVAL : errno;
    to += got;
    at += static_cast<std::size_t>(got);
    length -= static_cast<std::size_t>(got);
  }
  return 0;
}

}  // namespace

int FileBuffer::load(std::vector<Piece>& pieces, std::size_t from, std::size_t length) {
  assert(expected_ && length != 0);
  if (named_.empty()) named_ = std::move(pieces);
  bytes_.resize(length);
  begin_ = from;
  std::uint8_t* to = bytes_.data();
  int error = 0;
  each_piece(named_, from, length, [&](const Piece& piece, std::size_t at, std::size_t here) {
    if (piece.fd < 0) {
      std::copy_n(piece.base + at, here, to);
    } else if (error == 0) {
      error = read_file(piece, at, here, to);
    }
    to += here;
  });
  assert(to == bytes_.data() + bytes_.size());
  Piece memory;
  memory.base = bytes_.data();
  memory.length = bytes_.size();
  pieces.assign(1, memory);
  return error;
}

void FileBuffer::reset() {
  expected_ = false;
  named_.clear();
  bytes_.clear();
  if (bytes_.capacity() > kKeptBytes) bytes_.shrink_to_fit();
  begin_ = 0;
}

}  // namespace weft::exs
