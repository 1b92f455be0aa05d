// What a data connection says of itself in its MPA private data, and small helpers around
// connections that several parts of the tool need.
#pragma once

#include <weft/weft.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/endpoint/endpoint.h"

namespace weft::cli {

struct Hello {
  TestToken token = 0;
  std::uint32_t index = 0;
};
[[nodiscard]] std::vector<std::uint8_t> encode_hello(const Hello& hello);
[[nodiscard]] std::optional<Hello> decode_hello(std::span<const std::uint8_t> private_data);

// A number that a stranger can't guess.
[[nodiscard]] TestToken make_token();

// Why a connection did not come to be, or ended, as a sentence.
[[nodiscard]] Failure describe_event(const ConnectionEvent& event);

// How a connection of this test is set up; the hello is its private data.
[[nodiscard]] ConnectionParams params_of(const TestSpec& spec, const Hello& hello);

// What a connection agreed on, for a report.
[[nodiscard]] LinkFacts facts_of(const ConnectionInfo& info);

// A listener on a free port of `local`'s address.
[[nodiscard]] Outcome<std::shared_ptr<Listener>> listen_on_any_port(
    Device& device, std::shared_ptr<EventChannel> events, SocketAddress local);

}  // namespace weft::cli
