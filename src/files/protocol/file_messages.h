// Messages about the contents of files. docs/data-protocol.md
//
// Values; any thread. `encode` appends what is behind the head, `decode` takes it.
#pragma once

#include <array>
#include <optional>

#include "files/protocol/data_protocol.h"
#include "files/protocol/session_messages.h"

namespace weft::files {

enum : std::uint32_t {
  kCommitDurable = 1U << 0U,  // reply once the file and its name are on the disk
  kCommitNoName = 1U << 1U,   // ... or only the file: its folder is flushed later
  kEditCreate = 1U << 0U,     // make the file if there is none
  kEditExclusive = 1U << 1U,  // ... and only then
  kEditTruncate = 1U << 2U,
  kSetMode = 1U << 0U,
  kSetSize = 1U << 1U,
  kSetTime = 1U << 2U,
  kSetFlush = 1U << 3U,  // reply once it is on the disk; of a folder: also the names in it
};

struct OpenReply {
  std::uint64_t handle = 0;  // 0: the file is complete in the memory
  std::uint32_t bytes = 0;
  FileState state{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<OpenReply> decode(BodyReader in);
};

struct OpenRequest {
  static constexpr Op kOp = Op::kOpen;
  using Reply = OpenReply;
  RemoteMemory memory{};
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<OpenRequest> decode(BodyReader in);
};

struct ReadReply {
  std::uint32_t bytes = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ReadReply> decode(BodyReader in);
};

struct ReadRequest {
  static constexpr Op kOp = Op::kRead;
  using Reply = ReadReply;
  std::uint64_t handle = 0;
  std::uint64_t offset = 0;
  RemoteMemory memory{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ReadRequest> decode(BodyReader in);
};

struct CloseReply {
  FileState state{};  // of a file that was open for reading: compare it with that of OPEN

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<CloseReply> decode(BodyReader in);
};

struct CloseRequest {
  static constexpr Op kOp = Op::kClose;
  using Reply = CloseReply;
  std::uint64_t handle = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<CloseRequest> decode(BodyReader in);
};

struct SumReply {
  std::uint32_t sum = 0;  // CRC32C

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<SumReply> decode(BodyReader in);
};

struct SumRequest {
  static constexpr Op kOp = Op::kSum;
  using Reply = SumReply;
  std::uint64_t handle = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<SumRequest> decode(BodyReader in);
};

// Octets of a file that are no hole.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct ExtentsReply {
  static constexpr std::size_t kMost = 256;
  std::uint64_t next = 0;  // there may be more from there on; 0: no more
  std::uint32_t count = 0;
  std::array<Extent, kMost> extents{};  // `count` of them, in the order of the file

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ExtentsReply> decode(BodyReader in);
};

struct ExtentsRequest {
  static constexpr Op kOp = Op::kExtents;
  using Reply = ExtentsReply;
  std::uint64_t handle = 0;
  std::uint64_t offset = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<ExtentsRequest> decode(BodyReader in);
};

struct CreateReply {
  std::uint64_t handle = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<CreateReply> decode(BodyReader in);
};

struct CreateRequest {
  static constexpr Op kOp = Op::kCreate;
  using Reply = CreateReply;
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<CreateRequest> decode(BodyReader in);
};

struct WriteReply {
  std::uint32_t bytes = 0;
  // A number that the server changes when it starts, and when it may have lost what it was sent.
  // What was written under another number than SYNC has may not be on the disk.
  std::uint64_t verifier = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<WriteReply> decode(BodyReader in);
};

struct WriteRequest {
  static constexpr Op kOp = Op::kWrite;
  using Reply = WriteReply;
  std::uint64_t handle = 0;
  std::uint64_t offset = 0;
  RemoteMemory memory{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<WriteRequest> decode(BodyReader in);
};

struct CommitRequest {
  static constexpr Op kOp = Op::kCommit;
  using Reply = NoReply;
  std::uint64_t handle = 0;
  std::uint32_t mode = 0;
  std::uint32_t flags = 0;
  std::int64_t mtime_ns = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<CommitRequest> decode(BodyReader in);
};

struct DraftReply {
  std::uint64_t handle = 0;
  std::uint64_t there = 0;  // octets that an earlier attempt has left

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<DraftReply> decode(BodyReader in);
};

struct DraftRequest {
  static constexpr Op kOp = Op::kDraft;
  using Reply = DraftReply;
  std::uint64_t identity = 0;  // what else tells one version of the file from another
  std::uint64_t size = 0;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<DraftRequest> decode(BodyReader in);
};

struct EditReply {
  std::uint64_t handle = 0;
  FileState state{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<EditReply> decode(BodyReader in);
};

struct EditRequest {
  static constexpr Op kOp = Op::kEdit;
  using Reply = EditReply;
  std::uint32_t mode = 0;
  std::uint32_t flags = 0;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<EditRequest> decode(BodyReader in);
};

struct SetReply {
  Attributes attributes{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<SetReply> decode(BodyReader in);
};

struct SetRequest {
  static constexpr Op kOp = Op::kSet;
  using Reply = SetReply;
  std::uint64_t handle = 0;  // 0: what `path` names
  std::uint32_t what = 0;    // kSetMode and so on
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  PathName path{};

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<SetRequest> decode(BodyReader in);
};

struct SyncReply {
  std::uint64_t verifier = 0;  // see WriteReply

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<SyncReply> decode(BodyReader in);
};

struct SyncRequest {
  static constexpr Op kOp = Op::kSync;
  using Reply = SyncReply;
  std::uint64_t handle = 0;

  void encode(MessageWriter& out) const;
  [[nodiscard]] static std::optional<SyncRequest> decode(BodyReader in);
};

}  // namespace weft::files
