#include "files/protocol/object_messages.h"

namespace weft::files {

void LeaseReply::encode(MessageWriter& out) const { out.state(state); }

std::optional<LeaseReply> LeaseReply::decode(BodyReader in) {
  LeaseReply r;
  r.state = in.state();
  return in.good() ? std::optional(r) : std::nullopt;
}

void LeaseRequest::encode(MessageWriter& out) const { out.be64(handle); }

std::optional<LeaseRequest> LeaseRequest::decode(BodyReader in) {
  LeaseRequest r;
  r.handle = in.be64();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void LinkRequest::encode(MessageWriter& out) const {
  out.text(from);
  out.path(path);
}

std::optional<LinkRequest> LinkRequest::decode(BodyReader in) {
  LinkRequest r;
  r.from = in.text();
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void OwnRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be32(uid);
  out.be32(gid);
  out.path(path);
}

std::optional<OwnRequest> OwnRequest::decode(BodyReader in) {
  OwnRequest r;
  r.handle = in.be64();
  r.uid = in.be32();
  r.gid = in.be32();
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void XattrsReply::encode(MessageWriter& out) const {
  out.be32(bytes);
  out.state(state);
}

std::optional<XattrsReply> XattrsReply::decode(BodyReader in) {
  XattrsReply r;
  r.bytes = in.be32();
  r.state = in.state();
  return in.good() ? std::optional(r) : std::nullopt;
}

void XattrsRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.memory(memory);
  out.path(path);
  out.extended(acls);
}

std::optional<XattrsRequest> XattrsRequest::decode(BodyReader in) {
  XattrsRequest r;
  r.handle = in.be64();
  r.memory = in.memory();
  r.path = in.path();
  r.acls = in.extended();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void SetXattrRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be32(removes);
  out.text(name);
  out.bytes(value);
  out.path(path);
}

std::optional<SetXattrRequest> SetXattrRequest::decode(BodyReader in) {
  SetXattrRequest r;
  r.handle = in.be64();
  r.removes = in.be32();
  r.name = in.text();
  r.value = in.bytes();
  r.path = in.path();
  const bool legal = r.removes <= 1 && !r.name.empty() && r.name.size() <= kNameBytes;
  return in.whole() && legal ? std::optional(r) : std::nullopt;
}

void KeepReply::encode(MessageWriter& out) const { out.octets(key); }

std::optional<KeepReply> KeepReply::decode(BodyReader in) {
  KeepReply r;
  in.octets(r.key);
  return in.good() ? std::optional(r) : std::nullopt;
}

std::optional<KeepRequest> KeepRequest::decode(BodyReader in) {
  return in.whole() ? std::optional(KeepRequest()) : std::nullopt;
}

void ReopenRequest::encode(MessageWriter& out) const {
  out.octets(key);
  out.be64(handle);
}

std::optional<ReopenRequest> ReopenRequest::decode(BodyReader in) {
  ReopenRequest r;
  in.octets(r.key);
  r.handle = in.be64();
  return in.whole() ? std::optional(r) : std::nullopt;
}

std::size_t encode(const Xattr& one, std::span<std::uint8_t> out) {
  const std::size_t need = kXattrHeadBytes + one.name.size() + one.value.size();
  if (out.size() < need || one.name.empty() || one.name.size() > SetXattrRequest::kNameBytes) {
    return 0;
  }
  ByteWriter writer(out);
  writer.be16(static_cast<std::uint16_t>(one.name.size()));
  writer.be32(static_cast<std::uint32_t>(one.value.size()));
  writer.bytes({reinterpret_cast<const std::uint8_t*>(one.name.data()), one.name.size()});
  writer.bytes(one.value);
  return need;
}

std::optional<Xattr> decode_xattr(std::span<const std::uint8_t>& in) {
  if (in.size() < kXattrHeadBytes) return std::nullopt;
  ByteReader reader(in);
  const std::size_t name_bytes = reader.be16();
  const std::size_t value_bytes = reader.be32();
  if (name_bytes == 0 || name_bytes > SetXattrRequest::kNameBytes) return std::nullopt;
  if (reader.remaining() < name_bytes || reader.remaining() - name_bytes < value_bytes) {
    return std::nullopt;
  }
  const auto name = reader.bytes(name_bytes);
  Xattr out;
  out.name = {reinterpret_cast<const char*>(name.data()), name.size()};
  if (out.name.find('\0') != std::string_view::npos) return std::nullopt;
  out.value = reader.bytes(value_bytes);
  in = reader.rest();
  return out;
}

}  // namespace weft::files
