// Messages that push the records of a film into a ring of slots. docs/data-protocol.md
//
// Values; any thread. `encode` appends what is behind the head, `decode` takes it.
#pragma once

#include <optional>

#include "files/protocol/data_protocol.h"
#include "files/protocol/session_messages.h"

namespace weft::files {

enum : std::uint32_t {
  kPlayLoop = 1U << 0U,   // behind the last record comes the first
  kGrantSeek = 1U << 0U,  // `record` is the next to be sent
};

struct PlayReply {
  std::uint64_t records = 0;  // sent in all
  std::uint64_t cpu_us = 0;   // CPU time of the server meanwhile

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<PlayReply> decode(BodyReader in);
};

struct PlayRequest {
  static constexpr Op kOp = Op::kPlay;
  using Reply = PlayReply;
  std::uint64_t handle = 0;
  std::uint64_t offset = 0;  // of record 0
  RemoteMemory memory{};     // the first slot
  std::uint32_t pitch = 0;   // octets from one slot to the next
  std::uint32_t slots = 0;
  std::uint32_t records = 0;  // how many the file has
  std::uint32_t record = 0;   // the first to be sent
  std::uint32_t flags = 0;
  std::uint64_t limit = 0;  // records that there is room for, in all

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<PlayRequest> decode(BodyReader in);
};

struct GrantReply {
  std::uint64_t records = 0;  // started before the request took effect

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<GrantReply> decode(BodyReader in);
};

struct GrantRequest {
  static constexpr Op kOp = Op::kGrant;
  using Reply = GrantReply;
  std::uint64_t handle = 0;
  std::uint64_t limit = 0;   // records that there is room for, in all
  std::uint32_t record = 0;  // where to go on
  std::uint32_t flags = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<GrantRequest> decode(BodyReader in);
};

}  // namespace weft::files
