#include "files/protocol/name_messages.h"

namespace weft::files {

void StatReply::encode(MessageWriter& out) const { out.attributes(attributes); }

std::optional<StatReply> StatReply::decode(BodyReader in) {
  StatReply r;
  r.attributes = in.attributes();
  return in.good() ? std::optional(r) : std::nullopt;
}

void StatRequest::encode(MessageWriter& out) const { out.path(path); }

std::optional<StatRequest> StatRequest::decode(BodyReader in) {
  StatRequest r;
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void ListReply::encode(MessageWriter& out) const {
  out.be64(cursor);
  out.be32(bytes);
}

std::optional<ListReply> ListReply::decode(BodyReader in) {
  ListReply r;
  r.cursor = in.be64();
  r.bytes = in.be32();
  return in.good() ? std::optional(r) : std::nullopt;
}

void ListRequest::encode(MessageWriter& out) const {
  out.be64(cursor);
  out.memory(memory);
  out.path(path);
  out.extended(tells_failures);
}

std::optional<ListRequest> ListRequest::decode(BodyReader in) {
  ListRequest r;
  r.cursor = in.be64();
  r.memory = in.memory();
  r.path = in.path();
  r.tells_failures = in.extended();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void ReadLinkReply::encode(MessageWriter& out) const { out.rest(target); }

std::optional<ReadLinkReply> ReadLinkReply::decode(BodyReader in) {
  ReadLinkReply r;
  r.target = in.rest();
  return in.good() ? std::optional(r) : std::nullopt;
}

void ReadLinkRequest::encode(MessageWriter& out) const { out.path(path); }

std::optional<ReadLinkRequest> ReadLinkRequest::decode(BodyReader in) {
  ReadLinkRequest r;
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void MakeDirectoryRequest::encode(MessageWriter& out) const {
  out.be32(mode);
  out.path(path);
}

std::optional<MakeDirectoryRequest> MakeDirectoryRequest::decode(BodyReader in) {
  MakeDirectoryRequest r;
  r.mode = in.be32();
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void RemoveRequest::encode(MessageWriter& out) const {
  out.be32(flags);
  out.path(path);
}

std::optional<RemoveRequest> RemoveRequest::decode(BodyReader in) {
  RemoveRequest r;
  r.flags = in.be32();
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void SymlinkRequest::encode(MessageWriter& out) const {
  out.text(target);
  out.path(path);
}

std::optional<SymlinkRequest> SymlinkRequest::decode(BodyReader in) {
  SymlinkRequest r;
  r.target = in.text();
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void RenameRequest::encode(MessageWriter& out) const {
  out.be32(flags);
  out.text(from);
  out.path(path);
}

std::optional<RenameRequest> RenameRequest::decode(BodyReader in) {
  RenameRequest r;
  r.flags = in.be32();
  r.from = in.text();
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void StatFsReply::encode(MessageWriter& out) const {
  out.usage(usage);
  out.be64(file_system.device);
  out.be64(file_system.id);
}

std::optional<StatFsReply> StatFsReply::decode(BodyReader in) {
  StatFsReply r;
  r.usage = in.usage();
  if (!in.good()) return std::nullopt;
  r.file_system.device = in.be64();
  r.file_system.id = in.be64();
  if (!in.good()) r.file_system = {};
  return r;
}

void StatFsRequest::encode(MessageWriter& out) const { out.path(path); }

std::optional<StatFsRequest> StatFsRequest::decode(BodyReader in) {
  StatFsRequest r;
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

}  // namespace weft::files
