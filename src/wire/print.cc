#include "wire/print.h"

#include <array>
#include <cstdint>
#include <utility>

#include "base/bytes.h"

namespace weft {
namespace {

// Builds one line. Written by hand because streams and printf would bring the C library's locale
// and files into a core that knows no operating system.
class Line {
 public:
  Line& text(std::string_view s) {
    line_.append(s);
    return *this;
  }

  Line& dec(std::uint64_t v) {
    std::array<char, 20> digits{};
    std::size_t at = digits.size();
    do {
      digits[--at] = static_cast<char>('0' + v % 10);
      v /= 10;
    } while (v != 0);
    line_.append(digits.data() + at, digits.size() - at);
    return *this;
  }

  // The low `nibbles` hexadecimal digits.
  Line& hex(std::uint64_t v, unsigned nibbles) {
    for (unsigned i = nibbles; i-- > 0;) line_.push_back(kDigits[(v >> (4 * i)) & 0xfU]);
    return *this;
  }

  Line& flag(bool set, std::string_view name) { return set ? text(" ").text(name) : *this; }

  std::string take() { return std::move(line_); }

 private:
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string line_;
};

// The operation named by a control octet, or what is wrong with the octet.
std::string control_text(std::uint8_t octet) {
  const Result<Opcode> op = decode_rdmap_control(octet);
  if (op) return std::string(to_string(*op));
  return Line().text("control ").hex(octet, 2).take();
}

template <class T>
std::string body_text(const Result<T>& body) {
  return body ? to_string(*body) : std::string(describe(body.error()));
}

// Whatever follows the DDP header: a header of fixed length, or payload.
std::string describe_body(Opcode op, ByteReader in) {
  switch (op) {
    case Opcode::kReadRequest: return body_text(decode_read_request(in));
    case Opcode::kAtomicRequest: return body_text(decode_atomic_request(in));
    case Opcode::kAtomicResponse: return body_text(decode_atomic_response(in));
    case Opcode::kImmediate:
    case Opcode::kImmediateSolicited: return body_text(decode_immediate_data(in));
    case Opcode::kTerminate: {
      const Result<DecodedTerminate> t = decode_terminate(in, false);
      if (!t) return std::string(describe(t.error()));
      const bool siw = t->layout == TerminateLayout::kSiw;
      return to_string(t->terminate) + (siw ? " (siw layout)" : "");
    }
    default: return Line().text("payload ").dec(in.remaining()).take();
  }
}

}  // namespace

std::string to_string(const MpaFrame& frame) {
  Line line;
  line.text(frame.is_reply ? "MPA Reply" : "MPA Request").text(" rev ").dec(frame.revision);
  line.flag(frame.markers, "M").flag(frame.crc, "C").flag(frame.reject, "R");
  line.flag(frame.enhanced, "S").text(" private ").dec(frame.private_data.size());
  ByteReader in(frame.private_data);
  if (frame.enhanced) line.text(" [").text(body_text(decode_enhanced_words(in))).text("]");
  return line.take();
}

std::string to_string(const EnhancedWords& words) {
  Line line;
  line.text("IRD ").dec(words.ird).text(" ORD ").dec(words.ord);
  line.flag(words.peer_to_peer, "peer-to-peer").flag(words.rtr_send, "RTR-Send");
  line.flag(words.rtr_write, "RTR-Write").flag(words.rtr_read, "RTR-Read");
  return line.take();
}

std::string to_string(const DdpTagged& header) {
  Line line;
  line.text(control_text(header.ulp_ctrl)).text(" tagged").flag(header.last, "last");
  line.text(" STag ").hex(header.stag.value, 8).text(" TO ").hex(header.to, 16);
  return line.take();
}

std::string to_string(const DdpUntagged& header) {
  Line line;
  line.text(control_text(header.ulp_ctrl)).text(" untagged").flag(header.last, "last");
  line.text(" QN ").dec(header.queue).text(" MSN ").dec(header.msn.value);
  line.text(" MO ").dec(header.mo);
  if (header.rsvd_ulp != 0) line.text(" RsvdULP ").hex(header.rsvd_ulp, 8);
  return line.take();
}

std::string to_string(const ReadRequest& request) {
  Line line;
  line.text("sink STag ").hex(request.sink_stag.value, 8).text(" TO ").hex(request.sink_to, 16);
  line.text(" size ").dec(request.size);
  line.text(" source STag ").hex(request.src_stag.value, 8).text(" TO ").hex(request.src_to, 16);
  return line.take();
}

std::string to_string(const AtomicRequest& request) {
  Line line;
  const bool add = request.op == AtomicOp::kFetchAdd;
  line.text(add ? "FetchAdd id " : "CompareSwap id ").hex(request.request_id, 8);
  line.text(" STag ").hex(request.stag.value, 8).text(" TO ").hex(request.to, 16);
  line.text(add ? " add " : " swap ").hex(request.add_swap, 16);
  line.text(" mask ").hex(request.add_swap_mask, 16);
  if (!add) {
    line.text(" compare ").hex(request.compare, 16);
    line.text(" mask ").hex(request.compare_mask, 16);
  }
  return line.take();
}

std::string to_string(const AtomicResponse& response) {
  Line line;
  line.text("id ").hex(response.request_id, 8).text(" original ").hex(response.original, 16);
  return line.take();
}

std::string to_string(const ImmediateData& data) {
  return Line().text("data ").hex(data.value, 16).take();
}

std::string to_string(TerminateCode code) {
  return Line().dec(code.layer).text("/").dec(code.etype).text("/").hex(code.code, 2).take();
}

std::string to_string(const Terminate& terminate) {
  Line line;
  line.text(to_string(terminate.reason())).text(" ").text(describe(terminate.reason()));
  if (terminate.has_length) line.text("; length ").dec(terminate.segment_length);
  if (terminate.has_ddp) {
    const std::uint8_t* p = terminate.ddp_header.data();
    line.text("; on ");
    line.text(peek_tagged(p[0]) ? to_string(load_ddp_tagged(p)) : to_string(load_ddp_untagged(p)));
  }
  if (terminate.has_rdmap) line.text("; ").text(to_string(terminate.read_request));
  return line.take();
}

std::string_view to_string(Opcode op) { return info(op).name; }

std::string describe_ulpdu(std::span<const std::uint8_t> ulpdu) {
  Line line;
  line.text("ULPDU ").dec(ulpdu.size()).text(": ");
  if (ulpdu.size() < 2) return line.text(describe(Error::kTruncated)).take();
  const Result<Opcode> op = check_segment_control(ulpdu[0], ulpdu[1]);
  if (!op) {
    line.text(describe(op.error())).text(", first octets ").hex(load_be16(ulpdu.data()), 4);
    return line.take();
  }
  ByteReader in(ulpdu);
  if (peek_tagged(ulpdu[0])) {
    line.text(body_text(decode_ddp_tagged(in)));
  } else {
    line.text(body_text(decode_ddp_untagged(in)));
  }
  if (in.remaining() == ulpdu.size()) return line.take();  // header cut short
  return line.text("; ").text(describe_body(*op, in)).take();
}

}  // namespace weft
