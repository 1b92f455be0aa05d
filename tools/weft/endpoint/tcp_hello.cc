#include "weft/endpoint/tcp_hello.h"

#include <fmt/format.h>

#include <array>

namespace weft::cli {
namespace {

constexpr std::size_t kHelloBytes = 20;
constexpr int kConnectTimeoutMs = 10'000;
constexpr int kHelloTimeoutMs = 1000;

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

std::optional<Hello> read_tcp_hello(int fd) {
  std::array<std::uint8_t, kHelloBytes> bytes{};
  if (!read_all(fd, bytes.data(), bytes.size(), kHelloTimeoutMs)) return std::nullopt;
  return decode_hello(bytes);
}

}  // namespace weft::cli
