// How the data server and its client fail: an errno, and a sentence for the user.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace weft::store {

struct Failed {
  int error = 0;     // an errno
  std::string what;  // what could not be done, and why

  [[nodiscard]] std::string text() const {
    return what.empty() ? std::strerror(error) : what + ": " + std::strerror(error);
  }
};
template <class T>
using Outcome = tl::expected<T, Failed>;

[[nodiscard]] inline tl::unexpected<Failed> failed(int error, std::string what = {}) {
  return tl::unexpected<Failed>(Failed{error, std::move(what)});
}

}  // namespace weft::store
