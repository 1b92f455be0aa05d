#include "files/protocol/data_protocol.h"

#include <concepts>
#include <type_traits>
#include <utility>

#include "base/bytes.h"

namespace weft::files {
namespace {

constexpr std::size_t kHeadBytes = 16;
constexpr std::uint8_t kLinksBounded = 1;  // flag of a request

std::span<const std::uint8_t> octets(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
std::string_view text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// --- the fields of each message, once, in the order of their octets ---

// A text that is the rest of its message; any other has its length before it.
template <class Text>
struct Rest {
  Text& text;
};
template <class Text>
Rest(Text&) -> Rest<Text>;

template <class Of, class Visit>
void fields(Of& r, Visit& visit) requires std::same_as<std::remove_const_t<Of>, Request> {
  switch (r.op) {
    case Op::kHello: return visit(r.version, r.secret);
    case Op::kProve: return visit(r.secret);
    case Op::kStat:
    case Op::kStatFs:
    case Op::kReadLink: return visit(Rest{r.path});
    case Op::kList: return visit(r.offset, r.memory, Rest{r.path});
    case Op::kOpen: return visit(r.memory, Rest{r.path});
    case Op::kRead:
    case Op::kWrite: return visit(r.handle, r.offset, r.memory);
    case Op::kClose:
    case Op::kSync: return visit(r.handle);
    case Op::kSum: return visit(r.handle, r.offset, r.length);
    case Op::kCreate: return visit(r.mode, r.offset, Rest{r.path});
    case Op::kCommit: return visit(r.handle, r.mode, r.flags, r.mtime_ns);
    case Op::kMakeDirectory: return visit(r.mode, Rest{r.path});
    case Op::kRemove: return visit(r.flags, Rest{r.path});
    case Op::kSymlink: return visit(r.target, Rest{r.path});
    case Op::kPlay:
      return visit(r.handle, r.offset, r.memory, r.pitch, r.slots, r.records, r.record, r.flags,
                   r.limit);
    case Op::kGrant: return visit(r.handle, r.limit, r.record, r.flags);
    case Op::kDraft: return visit(r.identity, r.offset, Rest{r.path});
    case Op::kEdit: return visit(r.mode, r.flags, Rest{r.path});
    case Op::kSet: return visit(r.handle, r.flags, r.mode, r.offset, r.mtime_ns, Rest{r.path});
    case Op::kRename: return visit(r.flags, r.target, Rest{r.path});
  }
}

template <class Of, class Visit>
void fields(Of& r, Visit& visit) requires std::same_as<std::remove_const_t<Of>, Reply> {
  switch (r.op) {
    case Op::kHello: return visit(r.version, r.flags, r.credits, r.max_io, r.secret);
    case Op::kProve: return visit(r.secret);
    case Op::kStat:
    case Op::kSet: return visit(r.attributes);
    case Op::kStatFs: return visit(r.usage);
    case Op::kList: return visit(r.cursor, r.bytes);
    case Op::kOpen: return visit(r.handle, r.bytes, r.attributes);
    case Op::kRead:
    case Op::kWrite: return visit(r.bytes);
    case Op::kSum: return visit(r.sum);
    case Op::kReadLink: return visit(Rest{r.target});
    case Op::kCreate: return visit(r.handle);
    case Op::kPlay: return visit(r.records, r.cpu_us);
    case Op::kGrant: return visit(r.records);
    case Op::kDraft: return visit(r.handle, r.there);
    case Op::kEdit: return visit(r.handle, r.attributes);
    case Op::kClose:
    case Op::kCommit:
    case Op::kMakeDirectory:
    case Op::kRemove:
    case Op::kSymlink:
    case Op::kRename:
    case Op::kSync: return;
  }
}

template <class Of, class Visit>
void fields(Of& a, Visit& visit) requires std::same_as<std::remove_const_t<Of>, Attributes> {
  visit(a.mode, a.stamp, a.size, a.mtime_ns, a.file_id);
}

template <class Of, class Visit>
void fields(Of& u, Visit& visit) requires std::same_as<std::remove_const_t<Of>, Usage> {
  visit(u.bytes, u.free_bytes, u.available_bytes, u.files, u.free_files);
}

template <class Of, class Visit>
void fields(Of& m, Visit& visit) requires std::same_as<std::remove_const_t<Of>, RemoteMemory> {
  visit(m.address, m.rkey, m.bytes);
}

// --- what is done with them ---

// The octets that a message has at least.
class Sizer {
 public:
  template <class... Field>
  void operator()(const Field&... field) {
    (add(field), ...);
  }
  std::size_t octets = 0;
  bool has_rest = false;

 private:
  template <class Field>
  void add(const Field& field) {
    if constexpr (std::integral<Field>) {
      octets += sizeof field;
    } else if constexpr (std::same_as<Field, std::string_view>) {
      octets += 2;
    } else if constexpr (std::same_as<Field, std::span<const std::uint8_t>>) {
      octets += kProofBytes;
    } else {
      fields(field, *this);
    }
  }
  template <class Text>
  void add(const Rest<Text>& /*rest*/) {
    has_rest = true;
  }
};

template <class Message>
Sizer size_of(Op op) {
  Message message;
  message.op = op;
  Sizer out;
  fields(std::as_const(message), out);
  return out;
}

// Into memory that has room.
class FieldWriter {
 public:
  explicit FieldWriter(ByteWriter& out) : out_(out) {}
  template <class... Field>
  void operator()(const Field&... field) {
    (put(field), ...);
  }

 private:
  template <class Field>
  void put(const Field& field) {
    if constexpr (std::integral<Field> && sizeof field == 4) {
      out_.be32(field);
    } else if constexpr (std::integral<Field>) {
      out_.be64(static_cast<std::uint64_t>(field));
    } else if constexpr (std::same_as<Field, std::string_view>) {
      out_.be16(static_cast<std::uint16_t>(field.size()));
      out_.bytes(octets(field));
    } else if constexpr (std::same_as<Field, std::span<const std::uint8_t>>) {
      out_.bytes(field);
    } else {
      fields(field, *this);
    }
  }
  template <class Text>
  void put(const Rest<Text>& rest) {
    out_.bytes(octets(rest.text.substr(0, kPathBytes)));
  }

  ByteWriter& out_;
};

// REQUIRES: as many octets as the Sizer says are there. !ok: a text is longer than its message.
class FieldReader {
 public:
  explicit FieldReader(ByteReader& in) : in_(in) {}
  template <class... Field>
  void operator()(Field&&... field) {
    (get(field), ...);
  }
  bool ok = true;

 private:
  template <class Field>
  void get(Field& field) {
    if constexpr (std::integral<Field> && sizeof field == 4) {
      field = in_.be32();
    } else if constexpr (std::integral<Field>) {
      field = static_cast<Field>(in_.be64());
    } else if constexpr (std::same_as<Field, std::string_view>) {
      const std::size_t length = in_.be16();
      ok = ok && length <= in_.remaining() && length <= kPathBytes;
      if (ok) field = text(in_.bytes(length));
    } else if constexpr (std::same_as<Field, std::span<const std::uint8_t>>) {
      field = in_.bytes(kProofBytes);
    } else {
      fields(field, *this);
    }
  }
  template <class Text>
  void get(Rest<Text>& rest) {
    if (ok) rest.text = text(in_.bytes(in_.remaining()));
  }

  ByteReader& in_;
};

bool is_op(std::uint8_t value) {
  return value >= static_cast<std::uint8_t>(Op::kHello) &&
         value <= static_cast<std::uint8_t>(Op::kStatFs);
}

void put_head(ByteWriter& out, std::uint8_t op, std::uint32_t error, std::uint64_t tag) {
  out.u8(op);
  out.zeros(3);
  out.be32(error);
  out.be64(tag);
}

void put_head(ByteWriter& out, const Request& r, bool has_path) {
  const bool bounded = has_path && r.links != kLinksAnywhere;
  out.u8(static_cast<std::uint8_t>(r.op));
  out.u8(bounded ? kLinksBounded : 0);
  out.be16(bounded ? r.links : 0);
  out.be32(0);
  out.be64(r.tag);
}

// A file offset and what lies behind it fit into what the system calls off_t.
bool offset_is_legal(std::uint64_t offset) { return offset <= (std::uint64_t{1} << 62U); }

bool play_is_legal(const Request& r) {
  return r.memory.bytes != 0 && r.memory.bytes <= kMaxRecordBytes && r.slots != 0 &&
         r.slots <= kMaxSlots && r.pitch >= r.memory.bytes && r.record < r.records;
}

bool is_legal(const Request& r) {
  if (r.op != Op::kList && !offset_is_legal(r.offset)) return false;
  const bool io = r.op == Op::kRead || r.op == Op::kWrite;
  if (io && (r.memory.bytes > kMaxIoBytes || r.memory.bytes == 0)) return false;
  if (r.length > kMaxIoBytes) return false;
  return r.op != Op::kPlay || play_is_legal(r);
}

bool is_path(std::string_view path) {
  return path.size() <= kPathBytes && path.find('\0') == std::string_view::npos;
}

}  // namespace

std::size_t encode(const Request& r, std::span<std::uint8_t> out) {
  if (r.path.size() > kPathBytes || r.target.size() > kPathBytes) return 0;
  const Sizer size = size_of<Request>(r.op);
  if (kHeadBytes + size.octets + r.target.size() + r.path.size() > kMessageBytes) return 0;
  ByteWriter writer(out);
  put_head(writer, r, size.has_rest);
  FieldWriter put(writer);
  fields(r, put);
  return writer.written().size();
}

std::optional<Request> decode_request(std::span<const std::uint8_t> message) {
  ByteReader in(message);
  if (in.remaining() < kHeadBytes || !is_op(message[0])) return std::nullopt;
  Request r;
  r.op = static_cast<Op>(in.u8());
  const Sizer size = size_of<Request>(r.op);
  const bool bounded = (in.u8() & kLinksBounded) != 0 && size.has_rest;
  const std::uint16_t links = in.be16();
  if (bounded) r.links = links;
  in.skip(4);
  r.tag = in.be64();
  if (in.remaining() < size.octets) return std::nullopt;
  FieldReader get(in);
  fields(r, get);
  if (!get.ok || !in.empty() || !is_path(r.path) || !is_path(r.target)) return std::nullopt;
  if (bounded && links > r.path.size()) return std::nullopt;
  return is_legal(r) ? std::optional(r) : std::nullopt;
}

std::size_t encode(const Reply& r, std::span<std::uint8_t> out) {
  ByteWriter writer(out);
  put_head(writer, static_cast<std::uint8_t>(r.op) | kReplyBit, r.error, r.tag);
  FieldWriter put(writer);
  if (r.error == 0) fields(r, put);
  return writer.written().size();
}

std::optional<Reply> decode_reply(std::span<const std::uint8_t> message) {
  ByteReader in(message);
  if (in.remaining() < kHeadBytes || (message[0] & kReplyBit) == 0) return std::nullopt;
  const auto op = static_cast<std::uint8_t>(in.u8() & ~kReplyBit);
  if (!is_op(op)) return std::nullopt;
  Reply r;
  r.op = static_cast<Op>(op);
  in.skip(3);
  r.error = in.be32();
  r.tag = in.be64();
  if (r.error != 0) return r;
  if (in.remaining() < size_of<Reply>(r.op).octets) return std::nullopt;
  FieldReader get(in);
  fields(r, get);
  return r;
}

bool is_other_version(std::span<const std::uint8_t> message) {
  return message.size() >= kHeadBytes + sizeof kVersion &&
         message[0] == static_cast<std::uint8_t>(Op::kHello) &&
         load_be32(message.data() + kHeadBytes) != kVersion;
}

std::optional<Reply> answer_to(std::span<const std::uint8_t> message, std::uint32_t error) {
  if (message.size() < kHeadBytes || !is_op(message[0])) return std::nullopt;
  Reply r;
  r.op = static_cast<Op>(message[0]);
  r.tag = load_be64(message.data() + 8);
  r.error = error;
  return r;
}

std::size_t encode(const Entry& entry, std::span<std::uint8_t> out) {
  const std::size_t need = kEntryHeadBytes + entry.name.size();
  if (out.size() < need || entry.name.size() > 0xffff) return 0;
  ByteWriter writer(out);
  writer.be16(static_cast<std::uint16_t>(entry.name.size()));
  FieldWriter put(writer);
  put(entry.attributes);
  writer.bytes(octets(entry.name));
  return need;
}

std::optional<Entry> decode_entry(std::span<const std::uint8_t>& in) {
  if (in.size() < kEntryHeadBytes) return std::nullopt;
  ByteReader reader(in);
  const std::size_t length = reader.be16();
  Entry entry;
  FieldReader get(reader);
  get(entry.attributes);
  if (reader.remaining() < length || length == 0) return std::nullopt;
  entry.name = text(reader.bytes(length));
  in = reader.rest();
  return entry;
}

}  // namespace weft::files
