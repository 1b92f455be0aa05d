#include "files/protocol/file_messages.h"

namespace weft::files {
namespace {

bool moves(const RemoteMemory& memory) { return memory.bytes != 0 && memory.bytes <= kMaxIoBytes; }

}  // namespace

void OpenReply::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be32(bytes);
  out.state(state);
}

std::optional<OpenReply> OpenReply::decode(BodyReader in) {
  OpenReply r;
  r.handle = in.be64();
  r.bytes = in.be32();
  r.state = in.state();
  return in.good() ? std::optional(r) : std::nullopt;
}

void OpenRequest::encode(MessageWriter& out) const {
  out.memory(memory);
  out.path(path);
}

std::optional<OpenRequest> OpenRequest::decode(BodyReader in) {
  OpenRequest r;
  r.memory = in.memory();
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void ReadReply::encode(MessageWriter& out) const { out.be32(bytes); }

std::optional<ReadReply> ReadReply::decode(BodyReader in) {
  ReadReply r;
  r.bytes = in.be32();
  return in.good() ? std::optional(r) : std::nullopt;
}

void ReadRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be64(offset);
  out.memory(memory);
}

std::optional<ReadRequest> ReadRequest::decode(BodyReader in) {
  ReadRequest r;
  r.handle = in.be64();
  r.offset = in.be64();
  r.memory = in.memory();
  return in.whole() && offset_is_legal(r.offset) && moves(r.memory) ? std::optional(r)
                                                                    : std::nullopt;
}

void CloseReply::encode(MessageWriter& out) const { out.state(state); }

std::optional<CloseReply> CloseReply::decode(BodyReader in) {
  CloseReply r;
  r.state = in.state();
  return in.good() ? std::optional(r) : std::nullopt;
}

void CloseRequest::encode(MessageWriter& out) const { out.be64(handle); }

std::optional<CloseRequest> CloseRequest::decode(BodyReader in) {
  CloseRequest r;
  r.handle = in.be64();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void SumReply::encode(MessageWriter& out) const { out.be32(sum); }

std::optional<SumReply> SumReply::decode(BodyReader in) {
  SumReply r;
  r.sum = in.be32();
  return in.good() ? std::optional(r) : std::nullopt;
}

void SumRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be64(offset);
  out.be32(length);
}

std::optional<SumRequest> SumRequest::decode(BodyReader in) {
  SumRequest r;
  r.handle = in.be64();
  r.offset = in.be64();
  r.length = in.be32();
  return in.whole() && offset_is_legal(r.offset) && r.length <= kMaxIoBytes ? std::optional(r)
                                                                            : std::nullopt;
}

void ExtentsReply::encode(MessageWriter& out) const {
  out.be64(next);
  out.be32(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    out.be64(extents[i].offset);
    out.be64(extents[i].bytes);
  }
}

std::optional<ExtentsReply> ExtentsReply::decode(BodyReader in) {
  ExtentsReply r;
  r.next = in.be64();
  r.count = in.be32();
  if (!in.good() || r.count > kMost || !offset_is_legal(r.next)) return std::nullopt;
  std::uint64_t end = 0;
  for (std::uint32_t i = 0; i < r.count; ++i) {
    Extent& one = r.extents[i];
    one.offset = in.be64();
    one.bytes = in.be64();
    const bool legal = offset_is_legal(one.offset) && offset_is_legal(one.bytes);
    if (!in.good() || !legal || one.bytes == 0 || one.offset < end) return std::nullopt;
    end = one.offset + one.bytes;
  }
  return r.next == 0 || r.next >= end ? std::optional(r) : std::nullopt;
}

void ExtentsRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be64(offset);
}

std::optional<ExtentsRequest> ExtentsRequest::decode(BodyReader in) {
  ExtentsRequest r;
  r.handle = in.be64();
  r.offset = in.be64();
  return in.whole() && offset_is_legal(r.offset) ? std::optional(r) : std::nullopt;
}

void CreateReply::encode(MessageWriter& out) const { out.be64(handle); }

std::optional<CreateReply> CreateReply::decode(BodyReader in) {
  CreateReply r;
  r.handle = in.be64();
  return in.good() ? std::optional(r) : std::nullopt;
}

void CreateRequest::encode(MessageWriter& out) const {
  out.be32(mode);
  out.be64(size);
  out.path(path);
}

std::optional<CreateRequest> CreateRequest::decode(BodyReader in) {
  CreateRequest r;
  r.mode = in.be32();
  r.size = in.be64();
  r.path = in.path();
  return in.whole() && offset_is_legal(r.size) ? std::optional(r) : std::nullopt;
}

void WriteReply::encode(MessageWriter& out) const {
  out.be32(bytes);
  out.be64(verifier);
}

std::optional<WriteReply> WriteReply::decode(BodyReader in) {
  WriteReply r;
  r.bytes = in.be32();
  r.verifier = in.be64();
  return in.good() ? std::optional(r) : std::nullopt;
}

void WriteRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be64(offset);
  out.memory(memory);
}

std::optional<WriteRequest> WriteRequest::decode(BodyReader in) {
  WriteRequest r;
  r.handle = in.be64();
  r.offset = in.be64();
  r.memory = in.memory();
  return in.whole() && offset_is_legal(r.offset) && moves(r.memory) ? std::optional(r)
                                                                    : std::nullopt;
}

void CommitRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be32(mode);
  out.be32(flags);
  out.time_ns(mtime_ns);
}

std::optional<CommitRequest> CommitRequest::decode(BodyReader in) {
  CommitRequest r;
  r.handle = in.be64();
  r.mode = in.be32();
  r.flags = in.be32();
  r.mtime_ns = in.time_ns();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void DraftReply::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be64(there);
}

std::optional<DraftReply> DraftReply::decode(BodyReader in) {
  DraftReply r;
  r.handle = in.be64();
  r.there = in.be64();
  return in.good() ? std::optional(r) : std::nullopt;
}

void DraftRequest::encode(MessageWriter& out) const {
  out.be64(identity);
  out.be64(size);
  out.path(path);
}

std::optional<DraftRequest> DraftRequest::decode(BodyReader in) {
  DraftRequest r;
  r.identity = in.be64();
  r.size = in.be64();
  r.path = in.path();
  return in.whole() && offset_is_legal(r.size) ? std::optional(r) : std::nullopt;
}

void EditReply::encode(MessageWriter& out) const {
  out.be64(handle);
  out.state(state);
}

std::optional<EditReply> EditReply::decode(BodyReader in) {
  EditReply r;
  r.handle = in.be64();
  r.state = in.state();
  return in.good() ? std::optional(r) : std::nullopt;
}

void EditRequest::encode(MessageWriter& out) const {
  out.be32(mode);
  out.be32(flags);
  out.path(path);
}

std::optional<EditRequest> EditRequest::decode(BodyReader in) {
  EditRequest r;
  r.mode = in.be32();
  r.flags = in.be32();
  r.path = in.path();
  return in.whole() ? std::optional(r) : std::nullopt;
}

void SetReply::encode(MessageWriter& out) const { out.attributes(attributes); }

std::optional<SetReply> SetReply::decode(BodyReader in) {
  SetReply r;
  r.attributes = in.attributes();
  return in.good() ? std::optional(r) : std::nullopt;
}

void SetRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be32(what);
  out.be32(mode);
  out.be64(size);
  out.time_ns(mtime_ns);
  out.path(path);
}

std::optional<SetRequest> SetRequest::decode(BodyReader in) {
  SetRequest r;
  r.handle = in.be64();
  r.what = in.be32();
  r.mode = in.be32();
  r.size = in.be64();
  r.mtime_ns = in.time_ns();
  r.path = in.path();
  return in.whole() && offset_is_legal(r.size) ? std::optional(r) : std::nullopt;
}

void SyncReply::encode(MessageWriter& out) const { out.be64(verifier); }

std::optional<SyncReply> SyncReply::decode(BodyReader in) {
  SyncReply r;
  r.verifier = in.be64();
  return in.good() ? std::optional(r) : std::nullopt;
}

void SyncRequest::encode(MessageWriter& out) const { out.be64(handle); }

std::optional<SyncRequest> SyncRequest::decode(BodyReader in) {
  SyncRequest r;
  r.handle = in.be64();
  return in.whole() ? std::optional(r) : std::nullopt;
}

}  // namespace weft::files
