#include "files/protocol/session_messages.h"

namespace weft::files {

void HelloRequest::encode(MessageWriter& out) const {
  out.be32(version);
  out.octets(nonce);
}

std::optional<HelloRequest> HelloRequest::decode(BodyReader in) {
  HelloRequest r;
  r.version = in.be32();
  if (!in.good()) return std::nullopt;
  if (r.version != kVersion) return r;
  in.octets(r.nonce);
  return in.whole() ? std::optional(r) : std::nullopt;
}

void HelloReply::encode(MessageWriter& out) const {
  out.be32(version);
  out.be32(flags);
  out.be32(credits);
  out.be32(max_io);
  out.be64(verifier);
  out.octets(nonce);
}

std::optional<HelloReply> HelloReply::decode(BodyReader in) {
  HelloReply r;
  r.version = in.be32();
  if (!in.good()) return std::nullopt;
  if (r.version != kVersion) return r;
  r.flags = in.be32();
  r.credits = in.be32();
  r.max_io = in.be32();
  r.verifier = in.be64();
  in.octets(r.nonce);
  return in.good() ? std::optional(r) : std::nullopt;
}

void ProveRequest::encode(MessageWriter& out) const { out.octets(proof); }

std::optional<ProveRequest> ProveRequest::decode(BodyReader in) {
  ProveRequest r;
  in.octets(r.proof);
  return in.whole() ? std::optional(r) : std::nullopt;
}

void ProveReply::encode(MessageWriter& out) const { out.octets(proof); }

std::optional<ProveReply> ProveReply::decode(BodyReader in) {
  ProveReply r;
  in.octets(r.proof);
  return in.good() ? std::optional(r) : std::nullopt;
}

}  // namespace weft::files
