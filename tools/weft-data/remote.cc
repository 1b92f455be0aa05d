#include "weft-data/remote.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace weft::data {

bool parse_remote(const std::string& text, std::uint16_t default_port, RemotePath& out) {
  constexpr std::string_view kScheme = "weft://";
  std::string_view rest = text;
  const bool url = rest.starts_with(kScheme);
  if (url) rest.remove_prefix(kScheme.size());
  out.port = default_port;
  std::size_t end = 0;  // of the host
  if (rest.starts_with('[')) {
    end = rest.find(']');
    if (end == std::string_view::npos) return false;
    out.host = rest.substr(1, end++ - 1);
  } else {
    end = std::min(rest.find_first_of(":/"), rest.size());
    out.host = rest.substr(0, end);
  }
  rest.remove_prefix(end);
  if (out.host.empty()) return false;
  if (!url) {
    if (!rest.starts_with(':')) return false;  // "a/b:c" and "file" are of this machine
    out.path = rest.substr(1);
    return true;
  }
  if (rest.starts_with(':')) {
    const auto [at, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), out.port);
    if (error != std::errc{}) return false;
    rest.remove_prefix(static_cast<std::size_t>(at - rest.data()));
  }
  if (!rest.empty() && rest.front() != '/') return false;
  out.path = rest.substr(std::min<std::size_t>(1, rest.size()));
  return true;
}

}  // namespace weft::data
