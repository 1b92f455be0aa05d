#include "weft/endpoint/rdma_hello.h"

#include <endian.h>
#include <fmt/format.h>

#include <cstring>
#include <random>

namespace weft::cli {
namespace {

constexpr std::uint8_t kMagic[8] = {'w', 'e', 'f', 't', 'p', 'e', 'r', 'f'};
constexpr std::size_t kHelloBytes = sizeof(kMagic) + 8 + 4;

}  // namespace

std::vector<std::uint8_t> encode_hello(const Hello& hello) {
  std::vector<std::uint8_t> bytes(kHelloBytes);
  const std::uint64_t token = htobe64(hello.token);
  const std::uint32_t index = htobe32(hello.index);
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  std::memcpy(bytes.data() + 8, &token, 8);
  std::memcpy(bytes.data() + 16, &index, 4);
  return bytes;
}

std::optional<Hello> decode_hello(std::span<const std::uint8_t> private_data) {
  if (private_data.size() != kHelloBytes ||
      std::memcmp(private_data.data(), kMagic, sizeof(kMagic)) != 0) {
    return std::nullopt;
  }
  std::uint64_t token = 0;
  std::uint32_t index = 0;
  std::memcpy(&token, private_data.data() + 8, 8);
  std::memcpy(&index, private_data.data() + 16, 4);
  return Hello{be64toh(token), be32toh(index)};
}

TestToken make_token() {
  std::random_device source;
  return (TestToken{source()} << 32U) | source();
}

Failure describe_event(const ConnectionEvent& event) {
  const std::string_view why = event.error ? describe(*event.error) : "no reason given";
  using Type = ConnectionEvent::Type;
  switch (event.type) {
    case Type::kRejected:
      if (event.error == Error::kConnectionLost) {
        return {"connection refused: nobody listens there, or the listener is no RDMA program"};
      }
      return {fmt::format("the other side refused the RDMA connection: {}", why)};
    case Type::kUnreachable:
      return {fmt::format("cannot reach the other side: {}; check the address and firewalls", why)};
    case Type::kConnectError:
      return {fmt::format("the RDMA connection could not be set up: {}", why)};
    case Type::kDisconnected:
      return {fmt::format("the RDMA connection has ended: {}",
                          event.error ? why : "closed by the other side")};
    case Type::kConnectRequest:
    case Type::kResponse:
    case Type::kEstablished: break;
  }
  return {fmt::format("unexpected event '{}' on a connection", describe(event.type))};
}

ConnectionParams params_of(const TestSpec& spec, const Hello& hello) {
  ConnectionParams params;
  params.private_data = encode_hello(hello);
  params.policy.crc = spec.crc;
  params.policy.markers = spec.markers;
  params.policy.fpdu = spec.fpdu;
  params.policy.path = spec.path;
  return params;
}

LinkFacts facts_of(const ConnectionInfo& info) {
  LinkFacts facts;
  facts.congestion = info.congestion;
  facts.path = info.path;
  facts.crc = info.crc && info.path != "ring";
  facts.markers = info.markers_sent;
  facts.max_ulpdu_bytes = info.max_ulpdu;
  facts.mpa_revision = info.mpa_revision;
  return facts;
}

Outcome<std::shared_ptr<Listener>> listen_on_any_port(Device& device,
                                                      std::shared_ptr<EventChannel> events,
                                                      SocketAddress local) {
  local.set_port(0);
  auto listener = device.create_listener(std::move(events));
  if (!listener) {
    return failure(fmt::format("cannot create a listener: {}", describe(listener.error())));
  }
  if (auto ok = (*listener)->bind(local); !ok) {
    return failure(fmt::format("cannot bind {}: {}", local.text(), describe(ok.error())));
  }
  if (auto ok = (*listener)->listen(0); !ok) {
    return failure(fmt::format("cannot listen on {}: {}", local.text(), describe(ok.error())));
  }
  return *listener;
}

}  // namespace weft::cli
