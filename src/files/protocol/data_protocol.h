// The data protocol, docs/data-protocol.md: its limits, the values that messages are made of, and
// the head that each message has. The messages themselves: data_messages.h.
//
// Pure functions over bytes: no I/O, any thread. A decoder refuses what is short or out of range;
// what it returns is valid. Views into a message live as long as the message.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace weft::files {

inline constexpr std::uint16_t kDefaultPort = 7180;
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::size_t kMessageBytes = 4608;  // the longest message
inline constexpr std::size_t kPathBytes = 4095;     // the longest path
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::uint32_t kMaxIoBytes = 16U << 20U;  // of one READ or WRITE
inline constexpr std::uint32_t kCredits = 32;             // requests outstanding, per connection
inline constexpr std::uint32_t kMaxRecordBytes = 64U << 20U;  // of one record of PLAY
inline constexpr std::uint32_t kMaxSlots = 64;                // of the memory that PLAY fills

using Nonce = std::array<std::uint8_t, kNonceBytes>;
using Proof = std::array<std::uint8_t, kProofBytes>;

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
  kExtents = 24,
  kLease = 25,
  kLink = 26,
  kOwn = 27,
  kXattrs = 28,
  kSetXattr = 29,
  kKeep = 30,
  kReopen = 31,
};
inline constexpr Op kLastOp = Op::kReopen;
inline constexpr std::uint8_t kReplyBit = 0x80;

// Symbolic links are followed wherever they are in a path.
inline constexpr std::uint16_t kLinksAnywhere = 0xffff;

// A path below the served folder, whose first `links` octets may hold symbolic links to follow.
struct PathName {
  std::string_view text{};
  std::uint16_t links = kLinksAnywhere;
};

// Attributes of a file. Times in nanoseconds since 1970.
struct Attributes {
  static constexpr std::size_t kSize = 64;
  std::uint32_t mode = 0;  // type and permissions, as stat(2) has them
  std::uint32_t links = 0;
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t size = 0;
  std::uint64_t blocks = 0;  // of 512 octets
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;  // of the last change of the inode: nobody can set it
  std::uint64_t file_id = 0;  // the same for two names of one file
  std::uint64_t device = 0;   // of a device file

  bool operator==(const Attributes&) const = default;

  // In a list: a name that the server cannot look at has no mode, and its errno. 0: it has one.
  [[nodiscard]] int failure() const;
  [[nodiscard]] static Attributes of_failure(int error);
};

// Names a file: no other file of the server has it, not even a later one that gets the number of a
// removed one.
using ObjectId = std::array<std::uint8_t, 16>;

// How well FileState tells versions of a file apart.
enum : std::uint32_t {
  kLevelNone = 0,   // it was changed a moment ago: a further change may leave the times as they are
  kLevelTimes = 1,  // every later change by write(2) and the like gives other times
  kLevelLease = 2,  // of CLOSE: nobody could write it since LEASE, not even through a mapping
};

// An open file and its version.
struct FileState {
  static constexpr std::size_t kSize = Attributes::kSize + sizeof(ObjectId) + 4;
  Attributes attributes{};
  ObjectId object{};
  std::uint32_t level = kLevelNone;

  bool operator==(const FileState&) const = default;
};

// Whether object, size and times are the same. That is one version only if `before` has a level.
[[nodiscard]] constexpr bool same_token(const FileState& before, const FileState& now) {
  return before.object == now.object && before.attributes.size == now.attributes.size &&
         before.attributes.mtime_ns == now.attributes.mtime_ns &&
         before.attributes.ctime_ns == now.attributes.ctime_ns;
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

// Which file system that is. 0: unknown.
struct FileSystem {
  std::uint64_t device = 0;  // may be another one after the server's machine was started anew
  std::uint64_t id = 0;

  bool operator==(const FileSystem&) const = default;
};

// A place in the client's registered memory.
struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t bytes = 0;

  bool operator==(const RemoteMemory&) const = default;
};

// A file offset, and what one request moves from there, fit into what the system calls off_t.
[[nodiscard]] constexpr bool offset_is_legal(std::uint64_t offset) {
  return offset <= (std::uint64_t{1} << 62U);
}

// The first octets of every message.
struct Head {
  static constexpr std::size_t kSize = 16;
  Op op = Op::kStat;
  bool is_reply = false;
  std::uint16_t links = kLinksAnywhere;  // PathName::links of the paths of a request
  bool extended = false;                 // a later release's LIST or XATTRS: see there
  std::uint32_t error = 0;               // of a reply: 0, or an errno of Linux
  std::uint64_t tag = 0;                 // a reply has that of its request
};

// The octets behind a head. What is asked for and not there is zero or empty, and the message is
// broken from then on: a decoder reads all of its fields, and then asks whole().
class BodyReader {
 public:
  BodyReader() = default;
  BodyReader(std::span<const std::uint8_t> octets, std::uint16_t links, bool extended = false)
      : in_(octets), links_(links), extended_(extended) {}

  [[nodiscard]] std::uint16_t be16();
  [[nodiscard]] std::uint32_t be32();
  [[nodiscard]] std::uint64_t be64();
  [[nodiscard]] std::int64_t time_ns() { return static_cast<std::int64_t>(be64()); }
  void octets(std::span<std::uint8_t> to);
  [[nodiscard]] Attributes attributes();
  [[nodiscard]] FileState state();
  [[nodiscard]] Usage usage();
  [[nodiscard]] RemoteMemory memory();
  // Octets with their number before them, and all that is left. A NUL, and more than kPathBytes,
  // break the message.
  [[nodiscard]] std::string_view text();
  [[nodiscard]] std::string_view rest();
  // As text(), of any octets.
  [[nodiscard]] std::span<const std::uint8_t> bytes();
  // The rest as a path. Links are bounded within it, or the message is broken.
  [[nodiscard]] PathName path();
  [[nodiscard]] std::uint16_t links() const { return links_; }
  [[nodiscard]] bool extended() const { return extended_; }

  // Whether every field was there; there may be octets behind them.
  [[nodiscard]] bool good() const { return good_; }
  // ... and there are none.
  [[nodiscard]] bool whole() const { return good_ && in_.empty(); }

 private:
  [[nodiscard]] bool has(std::size_t bytes);
  [[nodiscard]] std::string_view take_text(std::size_t bytes);

  ByteReader in_;
  std::uint16_t links_ = kLinksAnywhere;
  bool extended_ = false;
  bool good_ = true;
};

// Nothing where there is no head, or one of another protocol.
[[nodiscard]] std::optional<Head> decode_head(std::span<const std::uint8_t> message);
// REQUIRES: decode_head() found `head` there.
[[nodiscard]] BodyReader body_of(const Head& head, std::span<const std::uint8_t> message);

// Writes a message from its second part on; the head comes last, when it is known.
class MessageWriter {
 public:
  // REQUIRES: kMessageBytes of room.
  explicit MessageWriter(std::span<std::uint8_t> room);

  void be32(std::uint32_t value);
  void be64(std::uint64_t value);
  void time_ns(std::int64_t value) { be64(static_cast<std::uint64_t>(value)); }
  void octets(std::span<const std::uint8_t> from);
  void attributes(const Attributes& value);
  void state(const FileState& value);
  void usage(const Usage& value);
  void memory(const RemoteMemory& value);
  void text(std::string_view value);
  void rest(std::string_view value);
  void bytes(std::span<const std::uint8_t> value);
  void path(const PathName& value);
  void extended(bool value) { extended_ = value; }
  // Octets of the message, or 0 if a text was too long for it.
  [[nodiscard]] std::size_t finish(const Head& head);

 private:
  [[nodiscard]] bool has_room(std::size_t bytes);

  std::uint8_t* const start_;
  ByteWriter out_;
  std::uint16_t links_ = kLinksAnywhere;
  bool has_path_ = false;
  bool extended_ = false;
  bool fits_ = true;
};

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
