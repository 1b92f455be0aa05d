// The words and the ring of a lane, with the octets of a call in several parts.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "sockets/grant/grant_words.h"

namespace weft::sockets::granted {

class LaneMemory : public GrantMemory {
 public:
  // `skip` octets of the parts are done.
  LaneMemory(const GrantMemory& memory, const iovec* parts, std::size_t count,
             std::uint64_t skip = 0)
      : GrantMemory(memory), parts_(parts), count_(count), skip_(skip) {}

  void put(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes) {
    each(position, offset, bytes, [this](std::uint8_t* at, std::uint64_t from, std::uint64_t n) {
      set_source(at);
      GrantMemory::put(from, 0, n);
    });
  }
  void get(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes) {
    each(position, offset, bytes, [this](std::uint8_t* at, std::uint64_t from, std::uint64_t n) {
      set_target(at);
      GrantMemory::get(from, 0, n);
    });
  }

 private:
  template <class Copy>
  void each(std::uint64_t position, std::uint64_t offset, std::uint64_t bytes, Copy copy) {
    offset += skip_;
    for (std::size_t i = 0; i < count_ && bytes > 0; ++i) {
      const std::uint64_t length = parts_[i].iov_len;
      if (offset >= length) {
        offset -= length;
        continue;
      }
      const std::uint64_t n = std::min(bytes, length - offset);
      copy(static_cast<std::uint8_t*>(parts_[i].iov_base) + offset, position, n);
      position += n;
      bytes -= n;
      offset = 0;
    }
    assert(bytes == 0);  // the parts have room for all that the call asked for
  }

  const iovec* parts_;
  std::size_t count_;
  std::uint64_t skip_;
};

}  // namespace weft::sockets::granted
