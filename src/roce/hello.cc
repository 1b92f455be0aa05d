#include "roce/hello.h"

#include <algorithm>
#include <cassert>

#include "roce/qp_number.h"

namespace weft::roce {

namespace {

constexpr std::array<std::uint8_t, 8> kHelloMagic = {'W', 'E', 'F', 'T', 'R', 'O', 'C', 'E'};
constexpr std::uint8_t kHelloVersion = 1;
constexpr std::uint8_t kCrcFlag = 0x01;
constexpr std::uint8_t kSealedFlag = 0x02;
constexpr std::uint8_t kRnrTimerMax = 31;
constexpr std::uint32_t kPsnMask = 0xff'ffff;

Gid read_gid(ByteReader& in) noexcept {
  Gid gid;
  std::ranges::copy(in.bytes(gid.size()), gid.begin());
  return gid;
}

bool in_range(const Hello& h) noexcept {
  return is_number(h.from.number) && is_number(h.to.number) && h.psn <= kPsnMask &&
         h.min_rnr_timer <= kRnrTimerMax && (h.type == QpType::kRc || h.type == QpType::kUc) &&
         h.verdict <= Verdict::kOtherSecret &&
         (h.kind == HelloKind::kAnswer || h.verdict == Verdict::kAccept);
}

}  // namespace

std::string_view describe(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kAccept: return "accepted";
    case Verdict::kNotYet: return "its queue pair is not wired to this one yet";
    case Verdict::kNoSuchQp: return "it has no queue pair of this number";
    case Verdict::kBusy: return "its queue pair is connected already";
    case Verdict::kOtherType: return "its queue pair is of another type";
    case Verdict::kOtherSecret: return "its roce_secret is another, or only one end has one";
  }
  return "unknown verdict";
}

Result<Hello> decode_hello(ByteReader& in) noexcept {
  if (in.remaining() < Hello::kSize) return fail(Error::kTruncated);
  ByteReader r = in;  // commit only on success
  if (!std::ranges::equal(r.bytes(kHelloMagic.size()), kHelloMagic)) return fail(Error::kBadKey);
  if (r.u8() != kHelloVersion) return fail(Error::kBadRevision);
  Hello h;
  const std::uint8_t kind = r.u8();
  if (kind > static_cast<std::uint8_t>(HelloKind::kProof)) return fail(Error::kProtocol);
  h.kind = static_cast<HelloKind>(kind);
  h.verdict = static_cast<Verdict>(r.u8());
  const std::uint8_t flags = r.u8();
  if ((flags & ~(kCrcFlag | kSealedFlag)) != 0) return fail(Error::kReservedBits);
  h.crc = (flags & kCrcFlag) != 0;
  h.sealed = (flags & kSealedFlag) != 0;
  h.from.gid = read_gid(r);
  h.to.gid = read_gid(r);
  h.from.number = r.be32();
  h.to.number = r.be32();
  h.psn = r.be32();
  h.type = static_cast<QpType>(r.u8());
  h.reads_served = r.u8();
  h.min_rnr_timer = r.u8();
  if (r.u8() != 0) return fail(Error::kReservedBits);
  h.generation = r.be32();
  if (!in_range(h)) return fail(Error::kProtocol);
  in = r;
  return h;
}

void encode(const Hello& h, ByteWriter& out) noexcept {
  assert(in_range(h));
  out.bytes(kHelloMagic);
  out.u8(kHelloVersion);
  out.u8(static_cast<std::uint8_t>(h.kind));
  out.u8(static_cast<std::uint8_t>(h.verdict));
  out.u8(static_cast<std::uint8_t>((h.crc ? kCrcFlag : 0) | (h.sealed ? kSealedFlag : 0)));
  out.bytes(h.from.gid);
  out.bytes(h.to.gid);
  out.be32(h.from.number);
  out.be32(h.to.number);
  out.be32(h.psn);
  out.u8(static_cast<std::uint8_t>(h.type));
  out.u8(h.reads_served);
  out.u8(h.min_rnr_timer);
  out.u8(0);
  out.be32(h.generation);
}

}  // namespace weft::roce
