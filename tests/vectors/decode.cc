#include "decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::testing {

namespace {

class HeapCarry final : public proto::CarryPool {
 public:
  std::uint8_t* acquire_carry(std::size_t size) override { return new std::uint8_t[size]; }
  void release_carry(std::uint8_t* carry, std::size_t) override { delete[] carry; }
};

std::string hex_of(std::span<const std::uint8_t> bytes) {
  std::string out;
  char two[3];
  for (const std::uint8_t b : bytes) {
    std::snprintf(two, sizeof two, "%02x", b);
    out += two;
  }
  return out;
}

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char line[400];
  std::snprintf(line, sizeof line, pattern, args...);
  return line;
}

void cut(std::span<const std::uint8_t> bytes, bool crc, std::size_t chunk, Direction& out) {
  HeapCarry pool;
  proto::FpduReader reader(crc, false, true, pool);
  std::vector<std::uint8_t> scratch(proto::kScratchBytesMin);
  std::size_t taken = 0;
  std::size_t wire_at = 0;
  while (taken < bytes.size()) {
    const Slice slice = reader.want(scratch);
    const std::size_t n = std::min({slice.size, chunk, bytes.size() - taken});
    std::memcpy(slice.data, bytes.data() + taken, n);
    taken += n;
    (void)reader.filled(n);
    for (;;) {
      const proto::Inbound in = reader.next();
      if (in.kind == proto::Inbound::Kind::kNone) break;
      if (in.kind == proto::Inbound::Kind::kDirect) {
        reader.keep();
        continue;
      }
      ASSERT_EQ(in.kind, proto::Inbound::Kind::kUlpdu);
      const std::size_t size = fpdu_size(in.ulpdu_len);
      std::vector<std::uint8_t> ulpdu(in.ulpdu.size());
      proto::MarkedOctets(in.ulpdu).move_to(ulpdu.data(), ulpdu.size());
      out.fpdus.push_back({std::move(ulpdu),
                           {bytes.begin() + static_cast<std::ptrdiff_t>(wire_at),
                            bytes.begin() + static_cast<std::ptrdiff_t>(wire_at + size)}});
      wire_at += size;
    }
    ASSERT_TRUE(reader.park());
  }
  out.at_border = reader.at_border();
  reader.drop_all();
}

const char* name_of(Opcode op) {
  switch (op) {
    case Opcode::kWrite: return "Write";
    case Opcode::kReadRequest: return "ReadReq";
    case Opcode::kReadResponse: return "ReadResp";
    case Opcode::kSend: return "Send";
    case Opcode::kSendInvalidate: return "SendInv";
    case Opcode::kSendSolicited: return "SendSE";
    case Opcode::kSendSolicitedInvalidate: return "SendSEInv";
    case Opcode::kTerminate: return "Terminate";
    default: return "?";
  }
}

std::string describe_frame(std::span<const std::uint8_t> bytes, bool reply) {
  ByteReader in(bytes);
  const auto frame = decode_mpa_frame(in, reply ? MpaKind::kReply : MpaKind::kRequest);
  if (!frame) return "MPA frame unreadable";
  std::string out =
      format("MPA %s rev=%d M=%d C=%d R=%d S=%d", reply ? "reply" : "request", frame->revision,
             frame->markers, frame->crc, frame->reject, frame->enhanced);
  if ((bytes[16] & 0x0fU) != 0) out += format(" res=%x", bytes[16] & 0x0fU);
  ByteReader data(frame->private_data);
  if (frame->enhanced) {
    const auto w = decode_enhanced_words(data);
    if (!w) return "enhanced words unreadable";
    out += format(" A=%d B=%d ird=%d write-rtr=%d read-rtr=%d ord=%d", w->peer_to_peer, w->rtr_send,
                  w->ird, w->rtr_write, w->rtr_read, w->ord);
  }
  return out + " pd=" + (data.empty() ? "-" : hex_of(data.rest()));
}

std::string describe_terminate(std::span<const std::uint8_t> body) {
  // The decodes read by the RFC's bit order; siw's differs.
  return format(" layer=%d etype=%d code=%02x hdrct=%x control=", body[0] >> 4U, body[0] & 15U,
                body[1], body[2] >> 5U) +
         hex_of(body.first(4)) + " rest=" + hex_of(body.subspan(4));
}

std::string describe_fpdu(const Fpdu& fpdu, bool crc) {
  ByteReader in(fpdu.ulpdu);
  const auto op = check_segment_control(fpdu.ulpdu[0], fpdu.ulpdu[1]);
  if (!op) return "header unreadable";
  const char* crc_text = crc                                               ? "ok"
                         : load_crc(&fpdu.wire[fpdu.wire.size() - 4]) == 0 ? "zero"
                                                                           : "?";
  std::string out;
  if (info(*op).tagged) {
    const auto h = *decode_ddp_tagged(in);
    out = format("%s L=%d len=%zu stag=%08x to=%016llx", name_of(*op), h.last, in.remaining(),
                 h.stag.value, static_cast<unsigned long long>(h.to));
    return out + " crc=" + crc_text;
  }
  const auto h = *decode_ddp_untagged(in);
  out = format("%s L=%d len=%zu qn=%u msn=%u mo=%u", name_of(*op), h.last, in.remaining(), h.queue,
               h.msn.value, h.mo);
  if (info(*op).carries_invalidate) out += format(" inv=%08x", h.rsvd_ulp);
  if (*op == Opcode::kReadRequest) {
    const auto r = *decode_read_request(in);
    out += format(" sink=%08x:%016llx size=%u src=%08x:%016llx", r.sink_stag.value,
                  static_cast<unsigned long long>(r.sink_to), r.size, r.src_stag.value,
                  static_cast<unsigned long long>(r.src_to));
  }
  if (*op == Opcode::kTerminate) out += describe_terminate(in.rest());
  return out + " crc=" + crc_text;
}

}  // namespace

Decoded decode(const CapturedConnection& connection, std::size_t chunk) {
  Decoded out;
  std::size_t frame_size[2] = {};
  for (int side = 0; side < 2; ++side) {
    const auto& bytes = connection.from[side].bytes;
    ByteReader in(bytes);
    const auto frame = decode_mpa_frame(in, side == 0 ? MpaKind::kRequest : MpaKind::kReply);
    EXPECT_TRUE(frame.has_value());
    if (!frame) return out;
    out.crc = out.crc || frame->crc;
    frame_size[side] = bytes.size() - in.remaining();
    out.from[side].frame.assign(bytes.begin(),
                                bytes.begin() + static_cast<std::ptrdiff_t>(frame_size[side]));
  }
  for (int side = 0; side < 2; ++side) {
    cut(std::span(connection.from[side].bytes).subspan(frame_size[side]), out.crc, chunk,
        out.from[side]);
  }
  return out;
}

std::vector<std::string> describe_direction(const CapturedConnection& connection,
                                            const Decoded& decoded, int side) {
  const std::string arrow = side == 0 ? "> " : "< ";
  std::vector<std::string> out;
  out.push_back(arrow + describe_frame(decoded.from[side].frame, side == 1));
  for (const Fpdu& fpdu : decoded.from[side].fpdus) {
    out.push_back(arrow + describe_fpdu(fpdu, decoded.crc));
  }
  if (connection.from[side].fin) out.push_back(arrow + "FIN");
  if (connection.from[side].rst) out.push_back(arrow + "RST");
  return out;
}

}  // namespace weft::testing
