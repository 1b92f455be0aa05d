#include "raw_bytes.h"

#include <array>
#include <cctype>

namespace raw {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int lower = std::tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

Bytes mpa_frame(Bytes out, std::uint8_t flags, std::uint8_t revision, const Bytes& pd,
                std::optional<std::uint16_t> length) {
  out.push_back(flags);
  out.push_back(revision);
  put16(out, length.value_or(static_cast<std::uint16_t>(pd.size())));
  return out += pd;
}

std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
    table[i] = crc;
  }
  return table;
}

std::uint32_t queue_of(std::uint8_t opcode) {
  switch (opcode) {
    case kReadRequest:
    case kAtomicRequest: return 1;
    case kTerminate: return 2;
    case kAtomicResponse: return 3;
    default: return 0;
  }
}

void check(bool ok, const char* what, const Bytes& bytes) {
  if (!ok)
    throw Failure(std::string("the peer sent a segment with ") + what + ": " + to_hex(bytes));
}

}  // namespace

Bytes hex(std::string_view text) {
  Bytes out;
  int high = -1;
  for (const char c : text) {
    const int d = digit(c);
    if (d < 0) continue;
    if (high < 0) {
      high = d;
    } else {
      out.push_back(static_cast<std::uint8_t>(high << 4 | d));
      high = -1;
    }
  }
  return out;
}

std::string to_hex(View bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::size_t kMost = 160;
  std::string out;
  for (std::size_t i = 0; i < bytes.size() && i < kMost; ++i) {
    if (i != 0 && i % 4 == 0) out += ' ';
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  if (bytes.size() > kMost) out += " ... (" + std::to_string(bytes.size()) + " octets)";
  return out;
}

Bytes text(std::string_view characters) { return {characters.begin(), characters.end()}; }
Bytes zeros(std::size_t count) { return Bytes(count, 0); }

Bytes pattern(std::size_t count, unsigned seed) {
  Bytes out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::uint8_t>((i + seed) * 2654435761U >> 13);
  }
  return out;
}

Bytes operator+(const Bytes& a, const Bytes& b) {
  Bytes out = a;
  return out += b;
}
Bytes& operator+=(Bytes& a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void put16(Bytes& out, std::uint32_t v) {
  out.push_back(static_cast<std::uint8_t>(v >> 8));
  out.push_back(static_cast<std::uint8_t>(v));
}
void put32(Bytes& out, std::uint64_t v) {
  put16(out, static_cast<std::uint32_t>(v >> 16) & 0xffffU);
  put16(out, static_cast<std::uint32_t>(v) & 0xffffU);
}
void put64(Bytes& out, std::uint64_t v) {
  put32(out, v >> 32);
  put32(out, v & 0xffffffffU);
}
std::uint16_t get16(View in, std::size_t at) {
  return static_cast<std::uint16_t>(in[at] << 8 | in[at + 1]);
}
std::uint32_t get32(View in, std::size_t at) {
  return static_cast<std::uint32_t>(get16(in, at)) << 16 | get16(in, at + 2);
}
std::uint64_t get64(View in, std::size_t at) {
  return static_cast<std::uint64_t>(get32(in, at)) << 32 | get32(in, at + 4);
}

std::uint32_t crc32c(View bytes, std::uint32_t before) {
  static const auto kTable = crc_table();
  std::uint32_t crc = ~before;
  for (const std::uint8_t b : bytes) crc = crc >> 8 ^ kTable[(crc ^ b) & 0xffU];
  return ~crc;
}

Bytes request_key() { return text("MPA ID Req Frame"); }
Bytes reply_key() { return text("MPA ID Rep Frame"); }

Bytes mpa_request(std::uint8_t flags, std::uint8_t revision, const Bytes& pd,
                  std::optional<std::uint16_t> length) {
  return mpa_frame(request_key(), flags, revision, pd, length);
}
Bytes mpa_reply(std::uint8_t flags, std::uint8_t revision, const Bytes& pd,
                std::optional<std::uint16_t> length) {
  return mpa_frame(reply_key(), flags, revision, pd, length);
}

Bytes enhanced(std::uint16_t ird_word, std::uint16_t ord_word) {
  Bytes out;
  put16(out, ird_word);
  put16(out, ord_word);
  return out;
}

std::uint16_t MpaFrame::ird_word() const {
  if (!has(kS) || pd.size() < 4) throw Failure("start-up frame without the enhanced words");
  return get16(pd, 0);
}
std::uint16_t MpaFrame::ord_word() const {
  if (!has(kS) || pd.size() < 4) throw Failure("start-up frame without the enhanced words");
  return get16(pd, 2);
}
Bytes MpaFrame::user_data() const {
  const std::ptrdiff_t skip = has(kS) && pd.size() >= 4 ? 4 : 0;
  return {pd.begin() + skip, pd.end()};
}

Bytes ulpdu(const Tagged& s) {
  Bytes out;
  out.push_back(static_cast<std::uint8_t>(0x80 | (s.last ? 0x40 : 0) | s.ddp_bits));
  out.push_back(static_cast<std::uint8_t>(s.rdmap_bits | s.opcode));
  put32(out, s.stag);
  put64(out, s.to);
  return out += s.payload;
}

Bytes ulpdu(const Untagged& s) {
  Bytes out;
  out.push_back(static_cast<std::uint8_t>((s.last ? 0x40 : 0) | s.ddp_bits));
  out.push_back(static_cast<std::uint8_t>(s.rdmap_bits | s.opcode));
  put32(out, s.rsvd);
  put32(out, s.qn);
  put32(out, s.msn);
  put32(out, s.mo);
  return out += s.payload;
}

Bytes send(std::uint32_t msn, const Bytes& payload, std::uint8_t opcode) {
  return ulpdu(Untagged{.opcode = opcode, .msn = msn, .payload = payload});
}
Bytes write(std::uint32_t stag, std::uint64_t to, const Bytes& payload) {
  return ulpdu(Tagged{.stag = stag, .to = to, .payload = payload});
}
Bytes read_response(std::uint32_t stag, std::uint64_t to, const Bytes& payload, bool last) {
  return ulpdu(
      Tagged{.opcode = kReadResponse, .last = last, .stag = stag, .to = to, .payload = payload});
}

Bytes read_request(std::uint32_t msn, const ReadFields& f) {
  Untagged s{.opcode = kReadRequest, .qn = 1, .msn = msn, .payload = {}};
  put32(s.payload, f.sink_stag);
  put64(s.payload, f.sink_to);
  put32(s.payload, f.size);
  put32(s.payload, f.src_stag);
  put64(s.payload, f.src_to);
  return ulpdu(s);
}

Bytes atomic_request(std::uint32_t msn, const AtomicFields& f) {
  Untagged s{.opcode = kAtomicRequest, .qn = 1, .msn = msn, .payload = {}};
  put32(s.payload, f.op);
  put32(s.payload, f.request_id);
  put32(s.payload, f.stag);
  put64(s.payload, f.to);
  put64(s.payload, f.data);
  put64(s.payload, f.mask);
  put64(s.payload, f.compare);
  put64(s.payload, f.compare_mask);
  return ulpdu(s);
}

Bytes atomic_response(std::uint32_t msn, std::uint32_t request_id, std::uint64_t old) {
  Untagged s{.opcode = kAtomicResponse, .qn = 3, .msn = msn, .payload = {}};
  put32(s.payload, request_id);
  put64(s.payload, old);
  return ulpdu(s);
}

Bytes immediate(std::uint32_t msn, std::uint64_t data, bool solicited) {
  Untagged s{.opcode = solicited ? kImmediateSe : kImmediate, .msn = msn, .payload = {}};
  put64(s.payload, data);
  return ulpdu(s);
}

Segment parse(const Bytes& in) {
  Segment s{.whole = in, .payload = {}};
  check(in.size() >= 14, "no room for a header", in);
  s.tagged = (in[0] & 0x80) != 0;
  s.last = (in[0] & 0x40) != 0;
  s.opcode = in[1] & 0x0f;
  check((in[0] & 0x3c) == 0 && (in[1] & 0x30) == 0, "reserved bits", in);
  check((in[0] & 0x03) == 1, "a DDP version that is not 1", in);
  check((in[1] & 0xc0) == 0x40, "an RDMAP version that is not 1", in);
  const bool should_be_tagged = s.opcode == kWrite || s.opcode == kReadResponse;
  check(s.opcode <= kAtomicResponse && s.tagged == should_be_tagged, "the wrong T bit", in);
  if (s.tagged) {
    s.stag = get32(in, 2);
    s.to = get64(in, 6);
    s.payload.assign(in.begin() + 14, in.end());
    return s;
  }
  check(in.size() >= 18, "no room for a header", in);
  s.rsvd = get32(in, 2);
  s.qn = get32(in, 6);
  s.msn = get32(in, 10);
  s.mo = get32(in, 14);
  check(s.qn == queue_of(s.opcode), "the wrong queue", in);
  const bool invalidates = s.opcode == kSendInv || s.opcode == kSendSeInv;
  check(invalidates || s.rsvd == 0, "octets 2-5 in use", in);
  s.payload.assign(in.begin() + 18, in.end());
  return s;
}

ReadFields parse_read(const Segment& s) {
  check(s.opcode == kReadRequest && s.whole.size() == 46, "no Read Request in it", s.whole);
  check(s.last && s.mo == 0, "L or MO wrong", s.whole);
  return {.sink_stag = get32(s.whole, 18),
          .sink_to = get64(s.whole, 22),
          .size = get32(s.whole, 30),
          .src_stag = get32(s.whole, 34),
          .src_to = get64(s.whole, 38)};
}

AtomicFields parse_atomic(const Segment& s) {
  check(s.opcode == kAtomicRequest && s.whole.size() == 70, "no Atomic Request in it", s.whole);
  check(s.last && s.mo == 0, "L or MO wrong", s.whole);
  return {.op = get32(s.whole, 18),
          .request_id = get32(s.whole, 22),
          .stag = get32(s.whole, 26),
          .to = get64(s.whole, 30),
          .data = get64(s.whole, 38),
          .mask = get64(s.whole, 46),
          .compare = get64(s.whole, 54),
          .compare_mask = get64(s.whole, 62)};
}

std::string to_string(Code c) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out += kDigits[c.layer & 15];
  out += '/';
  out += kDigits[c.type & 15];
  out += '/';
  out += kDigits[c.code >> 4];
  out += kDigits[c.code & 15];
  return out;
}

Bytes terminate(Code c, Attach attach, const Bytes& offending, Layout layout) {
  Untagged s{.opcode = kTerminate, .qn = 2, .payload = {}};
  const bool siw = layout == Layout::kSiw;
  const int first = siw ? c.type << 4 | c.layer : c.layer << 4 | c.type;
  std::uint8_t flags = 0;
  if (attach != Attach::kNothing) flags = siw ? 0x03 : 0xc0;
  if (attach == Attach::kDdpAndRead) flags = siw ? 0x07 : 0xe0;
  s.payload = {static_cast<std::uint8_t>(first), c.code, flags, 0};
  if (attach == Attach::kNothing) return ulpdu(s);
  const std::size_t header = (offending[0] & 0x80) != 0 ? 14 : 18;
  put16(s.payload, static_cast<std::uint32_t>(siw ? offending.size() - header : offending.size()));
  const std::size_t count = header + (attach == Attach::kDdpAndRead ? 28 : 0);
  if (offending.size() < count) throw Failure("the offending segment is too short to attach");
  s.payload.insert(s.payload.end(), offending.begin(),
                   offending.begin() + static_cast<std::ptrdiff_t>(count));
  return ulpdu(s);
}

}  // namespace raw
