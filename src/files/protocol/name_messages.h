// Messages about names: what has a name, what is in a folder, and changes of names.
// docs/data-protocol.md
//
// Values; any thread. `encode` appends what is behind the head, `decode` takes it.
#pragma once

#include <optional>

#include "files/protocol/data_protocol.h"
#include "files/protocol/session_messages.h"

namespace weft::files {

enum : std::uint32_t {
  kRemoveDirectory = 1U << 0U,
  kRenameKeep = 1U << 0U,  // replace nothing
};

struct StatReply {
  Attributes attributes{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<StatReply> decode(BodyReader in);
};

struct StatRequest {
  static constexpr Op kOp = Op::kStat;
  using Reply = StatReply;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<StatRequest> decode(BodyReader in);
};

struct ListReply {
  std::uint64_t cursor = 0;  // where to go on; 0: the end
  std::uint32_t bytes = 0;   // of entries in the client's memory

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ListReply> decode(BodyReader in);
};

struct ListRequest {
  static constexpr Op kOp = Op::kList;
  using Reply = ListReply;
  std::uint64_t cursor = 0;
  RemoteMemory memory{};
  PathName path{};
  bool tells_failures = false;  // entries may have an errno: Attributes::failure()

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ListRequest> decode(BodyReader in);
};

struct ReadLinkReply {
  std::string_view target{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ReadLinkReply> decode(BodyReader in);
};

struct ReadLinkRequest {
  static constexpr Op kOp = Op::kReadLink;
  using Reply = ReadLinkReply;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ReadLinkRequest> decode(BodyReader in);
};

struct MakeDirectoryRequest {
  static constexpr Op kOp = Op::kMakeDirectory;
  using Reply = NoReply;
  std::uint32_t mode = 0;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<MakeDirectoryRequest> decode(BodyReader in);
};

struct RemoveRequest {
  static constexpr Op kOp = Op::kRemove;
  using Reply = NoReply;
  std::uint32_t flags = 0;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<RemoveRequest> decode(BodyReader in);
};

struct SymlinkRequest {
  static constexpr Op kOp = Op::kSymlink;
  using Reply = NoReply;
  std::string_view target{};
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<SymlinkRequest> decode(BodyReader in);
};

struct RenameRequest {
  static constexpr Op kOp = Op::kRename;
  using Reply = NoReply;
  std::uint32_t flags = 0;
  std::string_view from{};  // PathName::links of `path` hold for it too
  PathName path{};          // the new name

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<RenameRequest> decode(BodyReader in);
};

struct StatFsReply {
  Usage usage{};
  FileSystem file_system{};  // earlier releases leave that out

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<StatFsReply> decode(BodyReader in);
};

struct StatFsRequest {
  static constexpr Op kOp = Op::kStatFs;
  using Reply = StatFsReply;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<StatFsRequest> decode(BodyReader in);
};

}  // namespace weft::files
