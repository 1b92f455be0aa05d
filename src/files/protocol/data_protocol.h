// The messages of the data protocol, docs/data-protocol.md: values and octets.
//
// Pure functions over bytes: no I/O, any thread. A decoder refuses what is short, too long or out
// of range; what it returns is valid. Views into a message live as long as the message.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace weft::files {

inline constexpr std::uint16_t kDefaultPort = 7180;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kMessageBytes = 4608;  // the longest message
inline constexpr std::size_t kPathBytes = 4095;     // the longest path
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::uint32_t kMaxIoBytes = 16U << 20U;  // of one READ or WRITE
inline constexpr std::uint32_t kCredits = 32;             // requests outstanding, per connection
inline constexpr std::uint32_t kMaxRecordBytes = 64U << 20U;  // of one record of PLAY
inline constexpr std::uint32_t kMaxSlots = 64;                // of the memory that PLAY fills

enum class Op : std::uint8_t {
  kHello = 1,
  kProve = 2,
  kStat = 3,
  kList = 4,
  kOpen = 5,
  kRead = 6,
  kClose = 7,
  kSum = 8,
  kReadLink = 9,
  kCreate = 10,
  kWrite = 11,
  kCommit = 12,
  kMakeDirectory = 13,
  kRemove = 14,
  kSymlink = 15,
  kPlay = 16,
  kGrant = 17,
  kDraft = 18,
  kEdit = 19,
  kSet = 20,
  kRename = 21,
  kSync = 22,
  kStatFs = 23,
};
inline constexpr std::uint8_t kReplyBit = 0x80;

enum : std::uint32_t {  // of a HELLO reply
  kHelloWritable = 1U << 0U,
  kHelloNeedsProof = 1U << 1U,
  kHelloStamps = 1U << 2U,  // attributes have stamps, and SET of nothing takes every handle
  kHelloStatFs = 1U << 3U,  // there is STATFS
};
// The rest of these flags is a number that the server changes when it starts, and when it may have
// lost what it was sent; 0 from servers that do not have it.
inline constexpr unsigned kHelloLifeShift = 8;
enum : std::uint32_t {
  kCommitDurable = 1U << 0U,  // reply once the file and its name are on the disk
  kRemoveDirectory = 1U << 0U,
  kPlayLoop = 1U << 0U,       // behind the last record comes the first
  kGrantSeek = 1U << 0U,      // `record` is the next to be sent
  kEditCreate = 1U << 0U,     // make the file if there is none
  kEditExclusive = 1U << 1U,  // ... and only then
  kEditTruncate = 1U << 2U,
  kSetMode = 1U << 0U,
  kSetSize = 1U << 1U,
  kSetTime = 1U << 2U,
  kRenameKeep = 1U << 0U,  // replace nothing
};

// Request::links: symbolic links are followed wherever they are in the path.
inline constexpr std::uint16_t kLinksAnywhere = 0xffff;

// Attributes::stamp of a file that was changed a moment ago: another change may leave the time of
// the last one as it is, so two such stamps say nothing.
inline constexpr std::uint32_t kFreshStamp = 1;

// Attributes of a file. Times in nanoseconds since 1970.
struct Attributes {
  static constexpr std::size_t kSize = 32;
  std::uint32_t mode = 0;  // type and permissions, as stat(2) has them
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t file_id = 0;  // the same for two names of one file
  // For open files only. Differs after every change by write(2) and the like, even if somebody set
  // the time back. 0: not known.
  std::uint32_t stamp = 0;

  bool operator==(const Attributes&) const = default;
};

// Whether `now` can be the same version of the file as `before`, as far as stamps can tell.
[[nodiscard]] constexpr bool same_version(const Attributes& before, Attributes now) {
  if (now.stamp <= kFreshStamp || before.stamp <= kFreshStamp) now.stamp = before.stamp;
  return now == before;
}

// How full a file system is.
struct Usage {
  static constexpr std::size_t kSize = 40;
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t available_bytes = 0;  // to others than root
  std::uint64_t files = 0;
  std::uint64_t free_files = 0;

  bool operator==(const Usage&) const = default;
};

// A place in the client's registered memory.
struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t bytes = 0;
};

// Each field is used by the operations that the comment names. Others leave it alone.
struct Request {
  Op op = Op::kStat;
  std::uint64_t tag = 0;  // comes back in the reply

  std::uint32_t version = 0;               // Hello
  std::span<const std::uint8_t> secret{};  // Hello: nonce; Prove: proof
  std::string_view path{};                 // Stat List Open ReadLink Create MakeDirectory Remove
                                           // Symlink Draft Edit Set; Rename: the new one
  std::uint16_t links = kLinksAnywhere;    // ... whose first so many octets may hold links
  std::string_view target{};               // Symlink; Rename: the old path
  RemoteMemory memory{};                   // List Open Read Write; Play: the first slot
  std::uint64_t handle = 0;    // Read Close Sum Write Commit Play Grant Sync; Set: 0 or one of Edit
  std::uint64_t offset = 0;    // Read Sum Write Play: octets; List: cursor; Create Draft Set: size
  std::uint64_t identity = 0;  // Draft: what else tells one version of the file from another
  std::uint32_t length = 0;    // Sum
  std::uint32_t mode = 0;      // Create Commit MakeDirectory Edit Set
  std::uint32_t flags = 0;     // Commit Remove Play Grant Edit Set Rename
  std::int64_t mtime_ns = 0;   // Commit Set
  std::uint32_t pitch = 0;     // Play: octets from one slot to the next
  std::uint32_t slots = 0;     // Play
  std::uint32_t records = 0;   // Play: how many the file has
  std::uint32_t record = 0;    // Play, Grant: where to go on
  std::uint64_t limit = 0;     // Play, Grant: records that there is room for, in all
};

struct Reply {
  Op op = Op::kStat;
  std::uint64_t tag = 0;
  std::uint32_t error = 0;  // 0, or an errno of Linux; then nothing else is there

  std::uint32_t version = 0, flags = 0, credits = 0, max_io = 0;  // Hello
  std::span<const std::uint8_t> secret{};                         // Hello: nonce; Prove: proof
  Attributes attributes{};                                        // Stat Open Edit Set
  Usage usage{};                                                  // StatFs
  std::uint64_t handle = 0;   // Open (0: the file is complete in the memory), Create Draft Edit
  std::uint64_t there = 0;    // Draft: octets that an earlier attempt has left
  std::uint64_t cursor = 0;   // List: where to go on, 0 at the end
  std::uint32_t bytes = 0;    // List Open Read Write: octets moved
  std::uint32_t sum = 0;      // Sum: CRC32C
  std::string_view target{};  // ReadLink
  std::uint64_t records = 0;  // Play: sent in all; Grant: started before the request took effect
  std::uint64_t cpu_us = 0;   // Play: CPU time of the server meanwhile
};

// Octets written to `out`, or 0 if a path is too long. REQUIRES: out has kMessageBytes.
[[nodiscard]] std::size_t encode(const Request& request, std::span<std::uint8_t> out);
[[nodiscard]] std::size_t encode(const Reply& reply, std::span<std::uint8_t> out);

// Nothing for a message that this protocol does not have.
[[nodiscard]] std::optional<Request> decode_request(std::span<const std::uint8_t> message);
[[nodiscard]] std::optional<Reply> decode_reply(std::span<const std::uint8_t> message);

// A HELLO of another version, whatever is behind its number.
[[nodiscard]] bool is_other_version(std::span<const std::uint8_t> message);

// The operation and tag of any message that has them, to answer one that is otherwise wrong.
[[nodiscard]] std::optional<Reply> answer_to(std::span<const std::uint8_t> message,
                                             std::uint32_t error);

// Entries of a directory, as LIST writes them into the client's memory.
struct Entry {
  std::string_view name{};
  Attributes attributes{};
};
inline constexpr std::size_t kEntryHeadBytes = 2 + Attributes::kSize;
// Octets written, or 0 if there is no room.
[[nodiscard]] std::size_t encode(const Entry& entry, std::span<std::uint8_t> out);
// Moves `in` behind the entry. Nothing at the end or if the rest is not an entry.
[[nodiscard]] std::optional<Entry> decode_entry(std::span<const std::uint8_t>& in);

}  // namespace weft::files
