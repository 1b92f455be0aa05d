#include "files/protocol/data_protocol.h"

#include <algorithm>
#include <cassert>
#include <cerrno>

namespace weft::files {
namespace {

// Flags of a request. Servers ignore those that they do not know.
constexpr std::uint8_t kLinksBounded = 1;
constexpr std::uint8_t kExtended = 2;

std::span<const std::uint8_t> octets_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

void put(ByteWriter& out, const Attributes& a) {
  out.be32(a.mode);
  out.be32(a.links);
  out.be32(a.uid);
  out.be32(a.gid);
  out.be64(a.size);
  out.be64(a.blocks);
  out.be64(static_cast<std::uint64_t>(a.mtime_ns));
  out.be64(static_cast<std::uint64_t>(a.ctime_ns));
  out.be64(a.file_id);
  out.be64(a.device);
}

Attributes take_attributes(ByteReader& in) {
  Attributes a;
  a.mode = in.be32();
  a.links = in.be32();
  a.uid = in.be32();
  a.gid = in.be32();
  a.size = in.be64();
  a.blocks = in.be64();
  a.mtime_ns = static_cast<std::int64_t>(in.be64());
  a.ctime_ns = static_cast<std::int64_t>(in.be64());
  a.file_id = in.be64();
  a.device = in.be64();
  return a;
}

}  // namespace

int Attributes::failure() const {
  constexpr std::uint32_t kErrnoMax = 4095;
  if (mode != 0) return 0;
  return links == 0 || links > kErrnoMax ? EIO : static_cast<int>(links);
}

Attributes Attributes::of_failure(int error) {
  Attributes out;
  out.links = static_cast<std::uint32_t>(error);
  return out;
}

// ---- Reading

std::optional<Head> decode_head(std::span<const std::uint8_t> message) {
  ByteReader in(message);
  if (in.remaining() < Head::kSize) return std::nullopt;
  const std::uint8_t first = in.u8();
  const auto op = static_cast<std::uint8_t>(first & ~kReplyBit);
  if (op == 0 || op > static_cast<std::uint8_t>(kLastOp)) return std::nullopt;
  Head head;
  head.op = static_cast<Op>(op);
  head.is_reply = (first & kReplyBit) != 0;
  const unsigned flags = in.u8() & (head.is_reply ? 0U : ~0U);
  const std::uint16_t links = in.be16();
  if ((flags & kLinksBounded) != 0) head.links = links;
  head.extended = (flags & kExtended) != 0;
  const std::uint32_t error = in.be32();
  if (head.is_reply) head.error = error;
  head.tag = in.be64();
  return head;
}

BodyReader body_of(const Head& head, std::span<const std::uint8_t> message) {
  return {message.subspan(Head::kSize), head.links, head.extended};
}

bool BodyReader::has(std::size_t bytes) {
  good_ = good_ && bytes <= in_.remaining();
  return good_;
}

std::uint16_t BodyReader::be16() { return has(2) ? in_.be16() : std::uint16_t{0}; }
std::uint32_t BodyReader::be32() { return has(4) ? in_.be32() : 0U; }
std::uint64_t BodyReader::be64() { return has(8) ? in_.be64() : 0U; }

void BodyReader::octets(std::span<std::uint8_t> to) {
  if (has(to.size())) std::ranges::copy(in_.bytes(to.size()), to.begin());
}

Attributes BodyReader::attributes() {
  return has(Attributes::kSize) ? take_attributes(in_) : Attributes();
}

FileState BodyReader::state() {
  FileState out;
  out.attributes = attributes();
  octets(out.object);
  out.level = be32();
  return out;
}

Usage BodyReader::usage() {
  Usage out;
  if (!has(Usage::kSize)) return out;
  out.bytes = in_.be64();
  out.free_bytes = in_.be64();
  out.available_bytes = in_.be64();
  out.files = in_.be64();
  out.free_files = in_.be64();
  return out;
}

RemoteMemory BodyReader::memory() {
  RemoteMemory out;
  out.address = be64();
  out.rkey = be32();
  out.bytes = be32();
  return out;
}

std::string_view BodyReader::take_text(std::size_t bytes) {
  if (!has(bytes)) return {};
  const auto found = in_.bytes(bytes);
  const std::string_view text(reinterpret_cast<const char*>(found.data()), found.size());
  good_ = text.size() <= kPathBytes && text.find('\0') == std::string_view::npos;
  return good_ ? text : std::string_view();
}

std::string_view BodyReader::text() {
  const std::size_t bytes = be16();
  return take_text(bytes);
}

std::span<const std::uint8_t> BodyReader::bytes() {
  const std::size_t size = be16();
  return has(size) ? in_.bytes(size) : std::span<const std::uint8_t>();
}

std::string_view BodyReader::rest() { return take_text(in_.remaining()); }

PathName BodyReader::path() {
  const PathName out{rest(), links_};
  good_ = good_ && (links_ == kLinksAnywhere || links_ <= out.text.size());
  return out;
}

// ---- Writing

MessageWriter::MessageWriter(std::span<std::uint8_t> room)
    : start_(room.data()), out_(room.first(kMessageBytes)) {
  out_.zeros(Head::kSize);
}

bool MessageWriter::has_room(std::size_t bytes) {
  fits_ = fits_ && bytes <= out_.room();
  return fits_;
}

void MessageWriter::be32(std::uint32_t value) {
  if (has_room(4)) out_.be32(value);
}

void MessageWriter::be64(std::uint64_t value) {
  if (has_room(8)) out_.be64(value);
}

void MessageWriter::octets(std::span<const std::uint8_t> from) {
  if (has_room(from.size())) out_.bytes(from);
}

void MessageWriter::attributes(const Attributes& value) {
  if (has_room(Attributes::kSize)) put(out_, value);
}

void MessageWriter::state(const FileState& value) {
  attributes(value.attributes);
  octets(value.object);
  be32(value.level);
}

void MessageWriter::usage(const Usage& value) {
  be64(value.bytes);
  be64(value.free_bytes);
  be64(value.available_bytes);
  be64(value.files);
  be64(value.free_files);
}

void MessageWriter::memory(const RemoteMemory& value) {
  be64(value.address);
  be32(value.rkey);
  be32(value.bytes);
}

void MessageWriter::text(std::string_view value) {
  fits_ = fits_ && value.size() <= kPathBytes;
  if (!has_room(2 + value.size())) return;
  out_.be16(static_cast<std::uint16_t>(value.size()));
  out_.bytes(octets_of(value));
}

void MessageWriter::bytes(std::span<const std::uint8_t> value) {
  fits_ = fits_ && value.size() <= kMessageBytes;
  if (!has_room(2 + value.size())) return;
  out_.be16(static_cast<std::uint16_t>(value.size()));
  out_.bytes(value);
}

void MessageWriter::rest(std::string_view value) {
  fits_ = fits_ && value.size() <= kPathBytes;
  octets(octets_of(value));
}

void MessageWriter::path(const PathName& value) {
  rest(value.text);
  links_ = value.links;
  has_path_ = true;
}

std::size_t MessageWriter::finish(const Head& head) {
  if (!fits_) return 0;
  const bool bounded = has_path_ && links_ != kLinksAnywhere;
  ByteWriter out({start_, Head::kSize});
  out.u8(
      static_cast<std::uint8_t>(static_cast<unsigned>(head.op) | (head.is_reply ? kReplyBit : 0U)));
  out.u8(static_cast<std::uint8_t>((bounded ? kLinksBounded : 0U) | (extended_ ? kExtended : 0U)));
  out.be16(bounded ? links_ : 0);
  out.be32(head.error);
  out.be64(head.tag);
  return out_.written().size();
}

// ---- Entries of a list

std::size_t encode(const Entry& entry, std::span<std::uint8_t> out) {
  const std::size_t need = kEntryHeadBytes + entry.name.size();
  if (out.size() < need || entry.name.size() > 0xffff) return 0;
  ByteWriter writer(out);
  writer.be16(static_cast<std::uint16_t>(entry.name.size()));
  put(writer, entry.attributes);
  writer.bytes(octets_of(entry.name));
  return need;
}

std::optional<Entry> decode_entry(std::span<const std::uint8_t>& in) {
  if (in.size() < kEntryHeadBytes) return std::nullopt;
  ByteReader reader(in);
  const std::size_t length = reader.be16();
  Entry entry;
  entry.attributes = take_attributes(reader);
  if (reader.remaining() < length || length == 0) return std::nullopt;
  const auto name = reader.bytes(length);
  entry.name = {reinterpret_cast<const char*>(name.data()), name.size()};
  in = reader.rest();
  return entry;
}

}  // namespace weft::files
