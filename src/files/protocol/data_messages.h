// All messages of the data protocol, and how they become octets.
//
// A request is a struct with kOp, the type of its Reply, `encode` and `decode`; a reply has the
// last two. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "files/protocol/file_messages.h"
#include "files/protocol/name_messages.h"
#include "files/protocol/object_messages.h"
#include "files/protocol/play_messages.h"
#include "files/protocol/session_messages.h"

namespace weft::files {

// Each writes a whole message to `out`, which has kMessageBytes, and returns its octets; 0: a text
// is too long for a message.
template <class Request>
[[nodiscard]] std::size_t encode_request(const Request& request, std::uint64_t tag,
                                         std::span<std::uint8_t> out) {
  MessageWriter writer(out);
  request.encode(writer);
  return writer.finish({.op = Request::kOp, .tag = tag});
}

template <class Reply>
[[nodiscard]] std::size_t encode_reply(Op op, const Reply& reply, std::uint64_t tag,
                                       std::span<std::uint8_t> out) {
  MessageWriter writer(out);
  reply.encode(writer);
  return writer.finish({.op = op, .is_reply = true, .tag = tag});
}

// A reply that says no: `error` is an errno of Linux.
[[nodiscard]] inline std::size_t encode_refusal(Op op, std::uint32_t error, std::uint64_t tag,
                                                std::span<std::uint8_t> out) {
  return MessageWriter(out).finish({.op = op, .is_reply = true, .error = error, .tag = tag});
}

// ... to a HELLO of another version; says which one this side speaks.
[[nodiscard]] inline std::size_t encode_other_version(std::uint32_t error, std::uint64_t tag,
                                                      std::span<std::uint8_t> out) {
  MessageWriter writer(out);
  writer.be32(kVersion);
  return writer.finish({.op = Op::kHello, .is_reply = true, .error = error, .tag = tag});
}

}  // namespace weft::files
