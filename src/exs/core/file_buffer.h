// The memory through which RDMA sends an operation's files: one part of its bytes at a time.
//
// Values, but for load(), which reads the files. With the mutex of the operation's socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exs/core/piece.h"

namespace weft::exs {

class FileBuffer {
 public:
  // The operation has pieces that are files.
  void expect() { expected_ = true; }
  [[nodiscard]] bool expected() const { return expected_; }
  // load() has been called.
  [[nodiscard]] bool loaded() const { return !named_.empty(); }

  // The bytes of the operation that are here: [begin(), end()).
  [[nodiscard]] std::size_t begin() const { return begin_; }
  [[nodiscard]] std::size_t end() const { return begin_ + bytes_.size(); }

  // Brings bytes [from, from + length) of the operation here, in place of others. `pieces` is what
  // the application named, at the first call; afterwards it is the memory of this buffer. 0 or an
  // errno: EINVAL where a file is shorter than it was.
  // REQUIRES expected(), and that nobody reads the buffer any more.
  [[nodiscard]] int load(std::vector<Piece>& pieces, std::size_t from, std::size_t length);

  // The pieces that the application named, once loaded().
  [[nodiscard]] const std::vector<Piece>& named() const { return named_; }
  void forget_named() { named_.clear(); }
  // Ready for another operation; keeps a little memory.
  void reset();

 private:
  bool expected_ = false;
  std::vector<Piece> named_;
  std::vector<std::uint8_t> bytes_;
  std::size_t begin_ = 0;
};

}  // namespace weft::exs
