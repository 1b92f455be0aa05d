#include "weft/common/where.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace weft::cli {
namespace {

constexpr std::string_view kPeerForms = "write HOST, HOST:PORT or [IPV6]:PORT";
constexpr std::string_view kListenForms = "write PORT, ADDRESS:PORT or [IPV6]:PORT";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_digit);
}

bool is_ipv6(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));  // without the zone
  in6_addr unused{};
  return inet_pton(AF_INET6, address.c_str(), &unused) == 1;
}

std::string in_brackets(std::string_view host) {
  return host.find(':') != std::string_view::npos ? fmt::format("[{}]", host) : std::string(host);
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(" \t") + 1 - start);
}

std::optional<std::uint16_t> port_of(std::string_view text, std::uint16_t lowest) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (!is_number(text) || error != std::errc{} || end != text.data() + text.size()) return {};
  return port >= lowest ? std::optional(port) : std::nullopt;
}

Outcome<std::uint16_t> read_port(std::string_view port, std::string_view all,
                                 std::uint16_t lowest) {
  if (const auto found = port_of(port, lowest)) return *found;
  const std::string in_text = port == all ? "" : fmt::format(" in '{}'", all);
  return usage_error(
      fmt::format("'{}'{} is not a port; write a number from {} to 65535", port, in_text, lowest));
}

// ::1:7200 is an address, but its author may have meant a port.
std::string hint_for_bare_ipv6(std::string_view text) {
  constexpr std::size_t kDigitsOfUsualPort = 4;
  const std::size_t colon = text.rfind(':');
  const std::string_view last = text.substr(colon + 1);
  const std::string_view before = text.substr(0, colon);
  if (last.size() < kDigitsOfUsualPort || !is_number(last) || !is_ipv6(before)) return {};
  return fmt::format("'{}' is read as an address without a port; if {} is the port, write [{}]:{}",
                     text, last, before, last);
}

Outcome<HostPort> read_address(std::string_view text, std::string_view forms,
                               std::uint16_t lowest_port) {
  const auto bad = [&] {
    return usage_error(fmt::format("'{}' is not an address; {}", text, forms));
  };
  HostPort out;
  std::string_view rest;  // from the colon on
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos || !is_ipv6(text.substr(1, close - 1))) return bad();
    out.host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return bad();
  } else if (std::ranges::count(text, ':') > 1) {
    if (!is_ipv6(text)) return bad();
    out.host = text;
    out.hint = hint_for_bare_ipv6(text);
  } else {
    const std::size_t end = std::min(text.find(':'), text.size());
    out.host = text.substr(0, end);
    rest = text.substr(end);
  }
  if (rest.empty()) return out;
  const auto port = read_port(rest.substr(1), text, lowest_port);
  if (!port) return tl::unexpected(port.error());
  out.port = *port;
  return out;
}

// ---- Paths of servers

// Takes the host off the front of `rest`. False: no host is there.
bool take_host(std::string_view& rest, std::string& host) {
  std::size_t end = 0;
  if (rest.starts_with('[')) {
    end = rest.find(']');
    if (end == std::string_view::npos) return false;
    host = rest.substr(1, end++ - 1);
  } else {
    end = std::min(rest.find_first_of(":/"), rest.size());
    host = rest.substr(0, end);
  }
  rest.remove_prefix(end);
  return !host.empty();
}

// HOST[:PORT][/PATH]
Outcome<std::optional<RemotePath>> read_url(std::string_view rest, std::string_view all,
                                            RemotePath out) {
  constexpr std::string_view kForm = "write weft://HOST[:PORT]/PATH";
  if (!take_host(rest, out.host)) {
    return usage_error(fmt::format("'{}' names no host; {}", all, kForm));
  }
  if (rest.starts_with(':')) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    const auto port = read_port(rest.substr(1, slash - 1), all, 1);
    if (!port) return tl::unexpected(port.error());
    out.port = *port;
    rest.remove_prefix(slash);
  }
  if (!rest.empty() && rest.front() != '/') {
    return usage_error(fmt::format("'{}' is not a path of a server; {}", all, kForm));
  }
  out.path = rest.substr(std::min<std::size_t>(1, rest.size()));
  return out;
}

// What follows HOST: is PATH, PORT:PATH or PORT/PATH.
Outcome<std::optional<RemotePath>> read_behind_host(std::string_view rest, std::string_view all,
                                                    bool port_is_named, RemotePath out) {
  const std::size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const std::string_view number = rest.substr(0, end);
  const std::string_view behind = rest.substr(end);
  const std::string host = in_brackets(out.host);
  if (!number.empty() && behind.starts_with(':')) {
    const auto port = read_port(number, all, 1);
    if (!port) return tl::unexpected(port.error());
    out.port = *port;
    rest = behind.substr(1);
  } else if (const auto port = port_of(number, 1); port && !port_is_named) {
    if (behind.starts_with('/')) {
      out.port = *port;
      rest = behind.substr(1);
      out.hint = fmt::format(
          "'{}': {} is read as the port; write {}:{}:{} for that, and {}:./{}{} "
          "if it is a folder",
          all, *port, host, *port, rest, host, number, behind);
    } else if (behind.empty()) {
      out.hint = fmt::format(
          "'{}': {} is read as a name; write {}:./{} for that, and {}:{}: if it "
          "is the port",
          all, number, host, number, host, *port);
    }
  }
  if (rest.starts_with("./") && rest.size() > 2) rest.remove_prefix(2);
  out.path = rest;
  return out;
}

}  // namespace

Outcome<HostPort> parse_host_port(std::string_view text) {
  text = without_blanks(text);
  if (port_of(text, 1)) {
    return usage_error(
        fmt::format("'{0}' is a port without a host; write HOST:{0}, as in localhost:{0}", text));
  }
  auto out = read_address(text, kPeerForms, 1);
  if (!out) return out;
  if (out->host.empty()) {
    if (!out->port) return usage_error(fmt::format("'{}' is not an address; {}", text, kPeerForms));
    // What the system takes no address for.
    out->host = "127.0.0.1";
    out->hint = fmt::format("'{}' is read as {}:{}; write HOST:PORT", text, out->host, *out->port);
  }
  return out;
}

Outcome<HostPort> parse_listen_place(std::string_view text) {
  text = without_blanks(text);
  if (text.empty()) return HostPort{};
  if (is_number(text)) {
    const auto port = read_port(text, text, 0);
    if (!port) return tl::unexpected(port.error());
    return HostPort{"", *port, ""};
  }
  auto out = read_address(text, kListenForms, 0);
  if (out && is_number(out->host)) {
    return usage_error(
        fmt::format("'{}' in '{}' is not an address; {}", out->host, text, kListenForms));
  }
  return out;
}

Outcome<std::optional<RemotePath>> parse_remote_path(std::string_view text,
                                                     std::optional<std::uint16_t> port_option,
                                                     std::uint16_t default_port) {
  constexpr std::string_view kScheme = "weft://";
  RemotePath out;
  out.port = port_option.value_or(default_port);
  if (text.starts_with(kScheme)) {
    return read_url(text.substr(kScheme.size()), text, std::move(out));
  }
  std::string_view rest = text;
  if (!take_host(rest, out.host) || !rest.starts_with(':')) return std::nullopt;
  if (rest.starts_with("://")) {
    return usage_error(fmt::format(
        "'{}' is not a path of a server; write weft://HOST[:PORT]/PATH or HOST:PATH", text));
  }
  return read_behind_host(rest.substr(1), text, port_option.has_value(), std::move(out));
}

}  // namespace weft::cli
