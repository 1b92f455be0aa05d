#include "files/protocol/data_protocol.h"

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

void put(ByteWriter& out, const Attributes& a) {
  out.be32(a.mode);
  out.be32(a.stamp);
  out.be64(a.size);
  out.be64(static_cast<std::uint64_t>(a.mtime_ns));
  out.be64(a.file_id);
}
Attributes get_attributes(ByteReader& in) {
  Attributes a;
  a.mode = in.be32();
  a.stamp = in.be32();
  a.size = in.be64();
  a.mtime_ns = static_cast<std::int64_t>(in.be64());
  a.file_id = in.be64();
  return a;
}

void put(ByteWriter& out, const Usage& u) {
  for (const std::uint64_t v : {u.bytes, u.free_bytes, u.available_bytes, u.files, u.free_files}) {
    out.be64(v);
  }
}
Usage get_usage(ByteReader& in) {
  Usage u;
  for (std::uint64_t* v : {&u.bytes, &u.free_bytes, &u.available_bytes, &u.files, &u.free_files}) {
    *v = in.be64();
  }
  return u;
}

void put(ByteWriter& out, const RemoteMemory& m) {
  out.be64(m.address);
  out.be32(m.rkey);
  out.be32(m.bytes);
}
RemoteMemory get_memory(ByteReader& in) {
  RemoteMemory m;
  m.address = in.be64();
  m.rkey = in.be32();
  m.bytes = in.be32();
  return m;
}

// Octets of the fixed part behind the head.
std::size_t request_bytes(Op op) {
  switch (op) {
    case Op::kHello: return 4 + kNonceBytes;
    case Op::kProve: return kProofBytes;
    case Op::kStat:
    case Op::kStatFs:
    case Op::kReadLink: return 0;
    case Op::kList: return 8 + 16;
    case Op::kOpen: return 16;
    case Op::kRead:
    case Op::kWrite: return 8 + 8 + 16;
    case Op::kClose: return 8;
    case Op::kSum: return 8 + 8 + 4;
    case Op::kCreate: return 4 + 8;
    case Op::kCommit: return 8 + 4 + 4 + 8;
    case Op::kMakeDirectory:
    case Op::kRemove: return 4;
    case Op::kSymlink: return 2;
    case Op::kPlay: return 8 + 8 + 16 + 4 * 5 + 8;
    case Op::kGrant: return 8 + 8 + 4 + 4;
    case Op::kDraft: return 8 + 8;
    case Op::kEdit: return 4 + 4;
    case Op::kSet: return 8 + 4 + 4 + 8 + 8;
    case Op::kRename: return 4 + 2;
    case Op::kSync: return 8;
  }
  return ~std::size_t{0};
}
bool has_path(Op op) {
  switch (op) {
    case Op::kStat:
    case Op::kStatFs:
    case Op::kReadLink:
    case Op::kList:
    case Op::kOpen:
    case Op::kCreate:
    case Op::kMakeDirectory:
    case Op::kRemove:
    case Op::kSymlink:
    case Op::kDraft:
    case Op::kEdit:
    case Op::kSet:
    case Op::kRename: return true;
    default: return false;
  }
}
std::size_t reply_bytes(Op op) {
  switch (op) {
    case Op::kHello: return 16 + kNonceBytes;
    case Op::kProve: return kProofBytes;
    case Op::kStat: return Attributes::kSize;
    case Op::kStatFs: return Usage::kSize;
    case Op::kList: return 8 + 4;
    case Op::kOpen: return 8 + 4 + Attributes::kSize;
    case Op::kRead:
    case Op::kWrite:
    case Op::kSum: return 4;
    case Op::kCreate:
    case Op::kGrant: return 8;
    case Op::kPlay:
    case Op::kDraft: return 8 + 8;
    case Op::kEdit: return 8 + Attributes::kSize;
    case Op::kSet: return Attributes::kSize;
    default: return 0;
  }
}
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

void put_head(ByteWriter& out, const Request& r) {
  const bool bounded = has_path(r.op) && r.links != kLinksAnywhere;
  out.u8(static_cast<std::uint8_t>(r.op));
  out.u8(bounded ? kLinksBounded : 0);
  out.be16(bounded ? r.links : 0);
  out.be32(0);
  out.be64(r.tag);
}

void put_play(ByteWriter& out, const Request& r) {
  out.be64(r.handle);
  out.be64(r.offset);
  put(out, r.memory);
  for (const std::uint32_t v : {r.pitch, r.slots, r.records, r.record, r.flags}) out.be32(v);
  out.be64(r.limit);
}
void get_play(ByteReader& in, Request& r) {
  r.handle = in.be64();
  r.offset = in.be64();
  r.memory = get_memory(in);
  for (std::uint32_t* v : {&r.pitch, &r.slots, &r.records, &r.record, &r.flags}) *v = in.be32();
  r.limit = in.be64();
}

void put_fields(ByteWriter& out, const Request& r) {
  switch (r.op) {
    case Op::kHello: out.be32(r.version); [[fallthrough]];
    case Op::kProve: out.bytes(r.secret); break;
    case Op::kList:
      out.be64(r.offset);
      put(out, r.memory);
      break;
    case Op::kOpen: put(out, r.memory); break;
    case Op::kRead:
    case Op::kWrite:
      out.be64(r.handle);
      out.be64(r.offset);
      put(out, r.memory);
      break;
    case Op::kClose: out.be64(r.handle); break;
    case Op::kSum:
      out.be64(r.handle);
      out.be64(r.offset);
      out.be32(r.length);
      break;
    case Op::kCreate:
      out.be32(r.mode);
      out.be64(r.offset);
      break;
    case Op::kCommit:
      out.be64(r.handle);
      out.be32(r.mode);
      out.be32(r.flags);
      out.be64(static_cast<std::uint64_t>(r.mtime_ns));
      break;
    case Op::kMakeDirectory: out.be32(r.mode); break;
    case Op::kRemove: out.be32(r.flags); break;
    case Op::kPlay: put_play(out, r); break;
    case Op::kGrant:
      out.be64(r.handle);
      out.be64(r.limit);
      out.be32(r.record);
      out.be32(r.flags);
      break;
    case Op::kDraft:
      out.be64(r.identity);
      out.be64(r.offset);
      break;
    case Op::kEdit:
      out.be32(r.mode);
      out.be32(r.flags);
      break;
    case Op::kSet:
      out.be64(r.handle);
      out.be32(r.flags);
      out.be32(r.mode);
      out.be64(r.offset);
      out.be64(static_cast<std::uint64_t>(r.mtime_ns));
      break;
    case Op::kRename: out.be32(r.flags); [[fallthrough]];
    case Op::kSymlink:
      out.be16(static_cast<std::uint16_t>(r.target.size()));
      out.bytes(octets(r.target));
      break;
    case Op::kSync: out.be64(r.handle); break;
    case Op::kStat:
    case Op::kStatFs:
    case Op::kReadLink: break;
  }
}

// REQUIRES: request_bytes() remain.
bool get_fields(ByteReader& in, Request& r) {
  switch (r.op) {
    case Op::kHello: r.version = in.be32(); [[fallthrough]];
    case Op::kProve: r.secret = in.bytes(kProofBytes); break;
    case Op::kList:
      r.offset = in.be64();
      r.memory = get_memory(in);
      break;
    case Op::kOpen: r.memory = get_memory(in); break;
    case Op::kRead:
    case Op::kWrite:
      r.handle = in.be64();
      r.offset = in.be64();
      r.memory = get_memory(in);
      break;
    case Op::kClose: r.handle = in.be64(); break;
    case Op::kSum:
      r.handle = in.be64();
      r.offset = in.be64();
      r.length = in.be32();
      break;
    case Op::kCreate:
      r.mode = in.be32();
      r.offset = in.be64();
      break;
    case Op::kCommit:
      r.handle = in.be64();
      r.mode = in.be32();
      r.flags = in.be32();
      r.mtime_ns = static_cast<std::int64_t>(in.be64());
      break;
    case Op::kMakeDirectory: r.mode = in.be32(); break;
    case Op::kRemove: r.flags = in.be32(); break;
    case Op::kPlay: get_play(in, r); break;
    case Op::kGrant:
      r.handle = in.be64();
      r.limit = in.be64();
      r.record = in.be32();
      r.flags = in.be32();
      break;
    case Op::kDraft:
      r.identity = in.be64();
      r.offset = in.be64();
      break;
    case Op::kEdit:
      r.mode = in.be32();
      r.flags = in.be32();
      break;
    case Op::kSet:
      r.handle = in.be64();
      r.flags = in.be32();
      r.mode = in.be32();
      r.offset = in.be64();
      r.mtime_ns = static_cast<std::int64_t>(in.be64());
      break;
    case Op::kRename: r.flags = in.be32(); [[fallthrough]];
    case Op::kSymlink: {
      const std::size_t length = in.be16();
      if (length > in.remaining() || length > kPathBytes) return false;
      r.target = text(in.bytes(length));
      break;
    }
    case Op::kSync: r.handle = in.be64(); break;
    case Op::kStat:
    case Op::kStatFs:
    case Op::kReadLink: break;
  }
  return true;
}

// A file offset and what lies behind it fit into what the system calls off_t.
bool offset_is_legal(std::uint64_t offset) { return offset <= (std::uint64_t{1} << 62U); }

bool play_is_legal(const Request& r) {
  return r.memory.bytes != 0 && r.memory.bytes <= kMaxRecordBytes && r.slots != 0 &&
         r.slots <= kMaxSlots && r.pitch >= r.memory.bytes && r.record < r.records;
}

bool is_path(std::string_view path) {
  return path.size() <= kPathBytes && path.find('\0') == std::string_view::npos;
}

}  // namespace

std::size_t encode(const Request& r, std::span<std::uint8_t> out) {
  if (r.path.size() > kPathBytes || r.target.size() > kPathBytes) return 0;
  if (kHeadBytes + request_bytes(r.op) + r.target.size() + r.path.size() > kMessageBytes) return 0;
  ByteWriter writer(out);
  put_head(writer, r);
  put_fields(writer, r);
  if (has_path(r.op)) writer.bytes(octets(r.path));
  return writer.written().size();
}

std::optional<Request> decode_request(std::span<const std::uint8_t> message) {
  ByteReader in(message);
  if (in.remaining() < kHeadBytes || !is_op(message[0])) return std::nullopt;
  Request r;
  r.op = static_cast<Op>(in.u8());
  const bool bounded = (in.u8() & kLinksBounded) != 0 && has_path(r.op);
  const std::uint16_t links = in.be16();
  if (bounded) r.links = links;
  in.skip(4);
  r.tag = in.be64();
  if (in.remaining() < request_bytes(r.op) || !get_fields(in, r)) return std::nullopt;
  if (has_path(r.op)) r.path = text(in.bytes(in.remaining()));
  if (!in.empty() || !is_path(r.path) || !is_path(r.target)) return std::nullopt;
  if (bounded && links > r.path.size()) return std::nullopt;
  if (r.op != Op::kList && !offset_is_legal(r.offset)) return std::nullopt;
  const bool io = r.op == Op::kRead || r.op == Op::kWrite;
  if (io && (r.memory.bytes > kMaxIoBytes || r.memory.bytes == 0)) return std::nullopt;
  if (r.length > kMaxIoBytes) return std::nullopt;
  if (r.op == Op::kPlay && !play_is_legal(r)) return std::nullopt;
  return r;
}

std::size_t encode(const Reply& r, std::span<std::uint8_t> out) {
  ByteWriter writer(out);
  put_head(writer, static_cast<std::uint8_t>(r.op) | kReplyBit, r.error, r.tag);
  if (r.error != 0) return writer.written().size();
  switch (r.op) {
    case Op::kHello:
      for (const std::uint32_t v : {r.version, r.flags, r.credits, r.max_io}) writer.be32(v);
      [[fallthrough]];
    case Op::kProve: writer.bytes(r.secret); break;
    case Op::kStat: put(writer, r.attributes); break;
    case Op::kStatFs: put(writer, r.usage); break;
    case Op::kList:
      writer.be64(r.cursor);
      writer.be32(r.bytes);
      break;
    case Op::kOpen:
      writer.be64(r.handle);
      writer.be32(r.bytes);
      put(writer, r.attributes);
      break;
    case Op::kRead:
    case Op::kWrite: writer.be32(r.bytes); break;
    case Op::kSum: writer.be32(r.sum); break;
    case Op::kCreate: writer.be64(r.handle); break;
    case Op::kReadLink: writer.bytes(octets(r.target.substr(0, kPathBytes))); break;
    case Op::kPlay:
      writer.be64(r.records);
      writer.be64(r.cpu_us);
      break;
    case Op::kGrant: writer.be64(r.records); break;
    case Op::kDraft:
      writer.be64(r.handle);
      writer.be64(r.there);
      break;
    case Op::kEdit: writer.be64(r.handle); [[fallthrough]];
    case Op::kSet: put(writer, r.attributes); break;
    default: break;
  }
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
  if (in.remaining() < reply_bytes(r.op)) return std::nullopt;
  switch (r.op) {
    case Op::kHello:
      r.version = in.be32();
      r.flags = in.be32();
      r.credits = in.be32();
      r.max_io = in.be32();
      [[fallthrough]];
    case Op::kProve: r.secret = in.bytes(kProofBytes); break;
    case Op::kStat: r.attributes = get_attributes(in); break;
    case Op::kStatFs: r.usage = get_usage(in); break;
    case Op::kList:
      r.cursor = in.be64();
      r.bytes = in.be32();
      break;
    case Op::kOpen:
      r.handle = in.be64();
      r.bytes = in.be32();
      r.attributes = get_attributes(in);
      break;
    case Op::kRead:
    case Op::kWrite: r.bytes = in.be32(); break;
    case Op::kSum: r.sum = in.be32(); break;
    case Op::kCreate: r.handle = in.be64(); break;
    case Op::kReadLink: r.target = text(in.bytes(in.remaining())); break;
    case Op::kPlay:
      r.records = in.be64();
      r.cpu_us = in.be64();
      break;
    case Op::kGrant: r.records = in.be64(); break;
    case Op::kDraft:
      r.handle = in.be64();
      r.there = in.be64();
      break;
    case Op::kEdit: r.handle = in.be64(); [[fallthrough]];
    case Op::kSet: r.attributes = get_attributes(in); break;
    default: break;
  }
  return r;
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
  put(writer, entry.attributes);
  writer.bytes(octets(entry.name));
  return need;
}

std::optional<Entry> decode_entry(std::span<const std::uint8_t>& in) {
  if (in.size() < kEntryHeadBytes) return std::nullopt;
  ByteReader reader(in);
  const std::size_t length = reader.be16();
  Entry entry;
  entry.attributes = get_attributes(reader);
  if (reader.remaining() < length || length == 0) return std::nullopt;
  entry.name = text(reader.bytes(length));
  in = reader.rest();
  return entry;
}

}  // namespace weft::files
