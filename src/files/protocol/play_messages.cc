#include "files/protocol/play_messages.h"

namespace weft::files {
namespace {

bool is_legal(const PlayRequest& r) {
  return r.memory.bytes != 0 && r.memory.bytes <= kMaxRecordBytes && r.slots != 0 &&
         r.slots <= kMaxSlots && r.pitch >= r.memory.bytes && r.record < r.records;
}

}  // namespace

void PlayReply::encode(MessageWriter& out) const {
  out.be64(records);
  out.be64(cpu_us);
}

std::optional<PlayReply> PlayReply::decode(BodyReader in) {
  PlayReply r;
  r.records = in.be64();
  r.cpu_us = in.be64();
  return in.good() ? std::optional(r) : std::nullopt;
}

void PlayRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be64(offset);
  out.memory(memory);
  out.be32(pitch);
  out.be32(slots);
  out.be32(records);
  out.be32(record);
  out.be32(flags);
  out.be64(limit);
}

std::optional<PlayRequest> PlayRequest::decode(BodyReader in) {
  PlayRequest r;
  r.handle = in.be64();
  r.offset = in.be64();
  r.memory = in.memory();
  r.pitch = in.be32();
  r.slots = in.be32();
  r.records = in.be32();
  r.record = in.be32();
  r.flags = in.be32();
  r.limit = in.be64();
  return in.whole() && offset_is_legal(r.offset) && is_legal(r) ? std::optional(r) : std::nullopt;
}

void GrantReply::encode(MessageWriter& out) const { out.be64(records); }

std::optional<GrantReply> GrantReply::decode(BodyReader in) {
  GrantReply r;
  r.records = in.be64();
  return in.good() ? std::optional(r) : std::nullopt;
}

void GrantRequest::encode(MessageWriter& out) const {
  out.be64(handle);
  out.be64(limit);
  out.be32(record);
  out.be32(flags);
}

std::optional<GrantRequest> GrantRequest::decode(BodyReader in) {
  GrantRequest r;
  r.handle = in.be64();
  r.limit = in.be64();
  r.record = in.be32();
  r.flags = in.be32();
  return in.whole() ? std::optional(r) : std::nullopt;
}

}  // namespace weft::files
