// Names of Unix sockets with no file behind them that could stay.
//
// Header only, over the standard libraries alone.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cassert>
#include <cstddef>
#include <string_view>

namespace weft::os {

class AbstractAddress {
 public:
  // REQUIRES: shorter than sun_path.
  explicit AbstractAddress(std::string_view name) noexcept
      : size_(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) {
    assert(name.size() < sizeof address_.sun_path);
    address_.sun_family = AF_UNIX;
    name.copy(address_.sun_path + 1, name.size());  // the 0 before it makes it abstract
  }
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address_);
  }
  [[nodiscard]] socklen_t size() const noexcept { return size_; }

 private:
  sockaddr_un address_{};
  socklen_t size_;
};

}  // namespace weft::os
