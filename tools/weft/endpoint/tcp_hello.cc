#include "weft/endpoint/tcp_hello.h"

#include <fmt/format.h>

#include <array>

namespace weft::cli {
namespace {

constexpr std::size_t kHelloBytes = 20;
constexpr int kConnectTimeoutMs = 10'000;
constexpr int kHelloTimeoutMs = 1000;
constexpr int kBacklog = 1024;

}  // namespace

Outcome<UniqueFd> tcp_join(const SocketAddress& server, const Hello& hello,
                           const SocketChoice& choice) {
  auto fd = tcp_connect(server, kConnectTimeoutMs, choice);
  if (!fd) return fd;
  const auto bytes = encode_hello(hello);
  if (!write_all(fd->get(), bytes.data(), bytes.size(), kConnectTimeoutMs)) {
    return failure(fmt::format("{} has closed the connection", server.text()));
  }
  return fd;
}

Outcome<Json> tcp_listen_on_any_port(SocketAddress local, const SocketChoice& choice,
                                     UniqueFd& listener) {
  local.set_port(0);
  auto made = tcp_listen(local, kBacklog, choice);
  if (!made) return tl::unexpected(made.error());
  listener = std::move(*made);
  return Json{{"port", local_address_of(listener.get()).port()}};
}

std::optional<Hello> read_tcp_hello(int fd) {
  std::array<std::uint8_t, kHelloBytes> bytes{};
  if (!read_all(fd, bytes.data(), bytes.size(), kHelloTimeoutMs)) return std::nullopt;
  return decode_hello(bytes);
}

}  // namespace weft::cli
