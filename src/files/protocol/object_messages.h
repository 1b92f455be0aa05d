// Messages about what a file is besides its contents: owners, further names, extended attributes;
// and about who has it open: leases, and files that outlive a connection. docs/data-protocol.md
//
// Values; any thread. `encode` appends what is behind the head, `decode` takes it.
#pragma once

#include <optional>

#include "files/protocol/data_protocol.h"
#include "files/protocol/file_messages.h"
#include "files/protocol/session_messages.h"

namespace weft::files {

struct LeaseReply {
  FileState state{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<LeaseReply> decode(BodyReader in);
};

// From here to CLOSE nobody may write the file.
struct LeaseRequest {
  static constexpr Op kOp = Op::kLease;
  using Reply = LeaseReply;
  std::uint64_t handle = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<LeaseRequest> decode(BodyReader in);
};

// A further name for a file.
struct LinkRequest {
  static constexpr Op kOp = Op::kLink;
  using Reply = NoReply;
  std::string_view from{};  // PathName::links of `path` hold for it too
  PathName path{};          // the new name

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<LinkRequest> decode(BodyReader in);
};

inline constexpr std::uint32_t kSameOwner = ~std::uint32_t{0};  // stays as it is

struct OwnRequest {
  static constexpr Op kOp = Op::kOwn;
  using Reply = NoReply;
  std::uint64_t handle = 0;  // 0: what `path` names
  std::uint32_t uid = kSameOwner, gid = kSameOwner;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<OwnRequest> decode(BodyReader in);
};

struct XattrsReply {
  std::uint32_t bytes = 0;  // of entries in the client's memory
  FileState state{};        // their version

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<XattrsReply> decode(BodyReader in);
};

struct XattrsRequest {
  static constexpr Op kOp = Op::kXattrs;
  using Reply = XattrsReply;
  std::uint64_t handle = 0;  // 0: what `path` names
  RemoteMemory memory{};
  PathName path{};
  bool acls = false;  // those, too

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<XattrsRequest> decode(BodyReader in);
};

struct SetXattrRequest {
  static constexpr Op kOp = Op::kSetXattr;
  using Reply = NoReply;
  // As Linux has it, but what is longer does not fit into a message beside a path.
  static constexpr std::size_t kNameBytes = 255;
  std::uint64_t handle = 0;   // 0: what `path` names
  std::uint32_t removes = 0;  // 1: the attribute goes
  std::string_view name{};
  std::span<const std::uint8_t> value{};
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<SetXattrRequest> decode(BodyReader in);
};

// Names what a client has open, so that another connection of it finds it.
using KeepKey = std::array<std::uint8_t, 16>;

struct KeepReply {
  KeepKey key{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<KeepReply> decode(BodyReader in);
};

struct KeepRequest {
  static constexpr Op kOp = Op::kKeep;
  using Reply = KeepReply;

  void encode(MessageWriter& /*out*/) const {}
  [[nodiscard]] static std::optional<KeepRequest> decode(BodyReader in);
};

struct ReopenRequest {
  static constexpr Op kOp = Op::kReopen;
  using Reply = EditReply;
  KeepKey key{};             // of the connection that was lost
  std::uint64_t handle = 0;  // ... that it had

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ReopenRequest> decode(BodyReader in);
};

// Extended attributes of one file, as XATTRS writes them into the client's memory.
struct Xattr {
  std::string_view name{};
  std::span<const std::uint8_t> value{};
};
inline constexpr std::size_t kXattrHeadBytes = 2 + 4;
// Octets written, or 0 if there is no room.
[[nodiscard]] std::size_t encode(const Xattr& one, std::span<std::uint8_t> out);
// Moves `in` behind the attribute. Nothing at the end or if the rest is no attribute.
[[nodiscard]] std::optional<Xattr> decode_xattr(std::span<const std::uint8_t>& in);

}  // namespace weft::files
