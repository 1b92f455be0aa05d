// How the data server and its client fail: an errno, and a sentence for the user.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace weft::files {

struct Failed {
  int error = 0;         // an errno
  std::string what;      // the file or address, or what could not be done
  std::string why = {};  // the reason and what to do, where the errno does not say it

  [[nodiscard]] std::string text() const {
    const std::string reason = why.empty() ? std::strerror(error) : why;
    return what.empty() ? reason : what + ": " + reason;
  }
};
template <class T>
using Outcome = tl::expected<T, Failed>;

[[nodiscard]] inline tl::unexpected<Failed> failed(int error, std::string what = {},
                                                   std::string why = {}) {
  return tl::unexpected<Failed>(Failed{error, std::move(what), std::move(why)});
}

}  // namespace weft::files
