// Messages that begin a connection: HELLO and PROVE. docs/data-protocol.md
//
// Values; any thread. `encode` appends what is behind the head, `decode` takes it.
#pragma once

#include <optional>

#include "files/protocol/data_protocol.h"

namespace weft::files {

enum : std::uint32_t {  // of a HELLO reply
  kHelloWritable = 1U << 0U,
  kHelloNeedsProof = 1U << 1U,
  kHelloObjects = 1U << 2U,  // has the operations from LEASE on
  kHelloOwners = 1U << 3U,   // lets clients set owners and all bits of a mode
  kHelloTrusted = 1U << 4U,  // ... and sees all extended attributes, those that are trusted. too
  kHelloAcls = 1U << 5U,     // XATTRS and SETXATTR have ACLs
};

// A reply without anything behind its head.
struct NoReply {
  void encode(MessageWriter& /*out*/) const {}
  [[nodiscard]] static std::optional<NoReply> decode(BodyReader /*in*/) { return NoReply(); }
};

struct HelloReply {
  std::uint32_t version = kVersion;
  std::uint32_t flags = 0;
  std::uint32_t credits = 0;
  std::uint32_t max_io = 0;    // of one READ or WRITE, in octets
  std::uint64_t verifier = 0;  // see WriteReply
  Nonce nonce{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<HelloReply> decode(BodyReader in);
};

struct HelloRequest {
  static constexpr Op kOp = Op::kHello;
  using Reply = HelloReply;
  std::uint32_t version = kVersion;
  Nonce nonce{};

  void encode(MessageWriter& out) const;
  // Takes nothing but the version where that is another, whatever is behind it.
  [[nodiscard]] static std::optional<HelloRequest> decode(BodyReader in);
};

struct ProveReply {
  Proof proof{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ProveReply> decode(BodyReader in);
};

struct ProveRequest {
  static constexpr Op kOp = Op::kProve;
  using Reply = ProveReply;
  Proof proof{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ProveRequest> decode(BodyReader in);
};

}  // namespace weft::files
