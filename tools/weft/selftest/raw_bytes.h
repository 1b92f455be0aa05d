// The wire format written down a second time, for tests: builders and readers of MPA, DDP and RDMAP
// bytes that share no code with the library, so that one mistake cannot hide in both.
//
// Numbers follow RFC 5044, 5041, 5040, 6581 and 7306. Nothing here refuses to build nonsense: that
// is what the tests need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace raw {

using Bytes = std::vector<std::uint8_t>;
using View = std::span<const std::uint8_t>;

// What a helper throws when the other side did something a test cannot go on from. GoogleTest turns
// it into a failure of the running test.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "4d50 4120": hexadecimal digits, anything else is skipped.
[[nodiscard]] Bytes hex(std::string_view text);
[[nodiscard]] std::string to_hex(View bytes);
[[nodiscard]] Bytes text(std::string_view characters);
[[nodiscard]] Bytes zeros(std::size_t count);
// 0, 1, 2 ... mixed with the seed: neighboring octets and messages differ.
[[nodiscard]] Bytes pattern(std::size_t count, unsigned seed = 0);
[[nodiscard]] Bytes operator+(const Bytes& a, const Bytes& b);
Bytes& operator+=(Bytes& a, const Bytes& b);

void put16(Bytes& out, std::uint32_t v);
void put32(Bytes& out, std::uint64_t v);
void put64(Bytes& out, std::uint64_t v);
// REQUIRES: the octets are there.
[[nodiscard]] std::uint16_t get16(View in, std::size_t at);
[[nodiscard]] std::uint32_t get32(View in, std::size_t at);
[[nodiscard]] std::uint64_t get64(View in, std::size_t at);

// CRC32C with the polynomial of RFC 3720 section 12.1; continues from an earlier result.
[[nodiscard]] std::uint32_t crc32c(View bytes, std::uint32_t before = 0);

// MPA start-up frames.
enum : std::uint8_t { kM = 0x80, kC = 0x40, kR = 0x20, kS = 0x10 };
enum : std::uint16_t { kBitA = 0x8000, kBitB = 0x4000 };         // in the IRD word
enum : std::uint16_t { kRtrWrite = 0x8000, kRtrRead = 0x4000 };  // C and D, in the ORD word
inline constexpr std::size_t kMpaHeader = 20;

[[nodiscard]] Bytes request_key();
[[nodiscard]] Bytes reply_key();
// `length`: what PD_Length says, if not the truth.
[[nodiscard]] Bytes mpa_request(std::uint8_t flags, std::uint8_t revision, const Bytes& pd = {},
                                std::optional<std::uint16_t> length = {});
[[nodiscard]] Bytes mpa_reply(std::uint8_t flags, std::uint8_t revision, const Bytes& pd = {},
                              std::optional<std::uint16_t> length = {});
// The four octets of RFC 6581 section 9.
[[nodiscard]] Bytes enhanced(std::uint16_t ird_word, std::uint16_t ord_word);

struct MpaFrame {
  Bytes key{};
  std::uint8_t flags = 0, revision = 0;
  Bytes pd{};  // as on the wire, with the enhanced words
  [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  // REQUIRES S and four octets; throws Failure otherwise.
  [[nodiscard]] std::uint16_t ird_word() const;
  [[nodiscard]] std::uint16_t ord_word() const;
  [[nodiscard]] std::uint16_t ird() const { return ird_word() & 0x3fffU; }
  [[nodiscard]] std::uint16_t ord() const { return ord_word() & 0x3fffU; }
  [[nodiscard]] Bytes user_data() const;  // behind the enhanced words if S
};

// RDMAP opcodes.
enum Opcode : std::uint8_t {
  kWrite = 0,
  kReadRequest = 1,
  kReadResponse = 2,
  kSend = 3,
  kSendInv = 4,
  kSendSe = 5,
  kSendSeInv = 6,
  kTerminate = 7,
  kImmediate = 8,
  kImmediateSe = 9,
  kAtomicRequest = 10,
  kAtomicResponse = 11,
};

// DDP segments: one ULPDU each. Every field can be made wrong afterwards.
struct Tagged {
  std::uint8_t opcode = kWrite;
  bool last = true;
  std::uint32_t stag = 0;
  std::uint64_t to = 0;
  Bytes payload{};
  std::uint8_t ddp_bits = 0x01;    // low six bits of octet 0: reserved and DV
  std::uint8_t rdmap_bits = 0x40;  // high four bits of octet 1: RV and reserved
};
struct Untagged {
  std::uint8_t opcode = kSend;
  bool last = true;
  std::uint32_t qn = 0, msn = 1, mo = 0;
  Bytes payload{};
  std::uint32_t rsvd = 0;  // octets 2-5: the STag to invalidate
  std::uint8_t ddp_bits = 0x01;
  std::uint8_t rdmap_bits = 0x40;
};
[[nodiscard]] Bytes ulpdu(const Tagged& s);
[[nodiscard]] Bytes ulpdu(const Untagged& s);

struct ReadFields {
  std::uint32_t sink_stag = 0x11111111;
  std::uint64_t sink_to = 0x2000;
  std::uint32_t size = 0;
  std::uint32_t src_stag = 0;
  std::uint64_t src_to = 0;
};
struct AtomicFields {
  std::uint32_t op = 0;  // 0 FetchAdd, 2 CmpSwap
  std::uint32_t request_id = 0;
  std::uint32_t stag = 0;
  std::uint64_t to = 0;
  std::uint64_t data = 0, mask = 0;  // add or swap
  std::uint64_t compare = 0, compare_mask = ~std::uint64_t{0};
};
[[nodiscard]] Bytes send(std::uint32_t msn, const Bytes& payload, std::uint8_t opcode = kSend);
[[nodiscard]] Bytes write(std::uint32_t stag, std::uint64_t to, const Bytes& payload);
[[nodiscard]] Bytes read_request(std::uint32_t msn, const ReadFields& f);
[[nodiscard]] Bytes read_response(std::uint32_t stag, std::uint64_t to, const Bytes& payload,
                                  bool last = true);
[[nodiscard]] Bytes atomic_request(std::uint32_t msn, const AtomicFields& f);
[[nodiscard]] Bytes atomic_response(std::uint32_t msn, std::uint32_t request_id, std::uint64_t old);
[[nodiscard]] Bytes immediate(std::uint32_t msn, std::uint64_t data, bool solicited = false);

// A DDP segment as it came in.
struct Segment {
  Bytes whole{};  // the ULPDU
  bool tagged = false, last = false;
  std::uint8_t opcode = 0;
  std::uint32_t stag = 0, rsvd = 0, qn = 0, msn = 0, mo = 0;
  std::uint64_t to = 0;
  Bytes payload{};
};
// Throws Failure on anything a sender may not send: reserved bits, wrong version, T or queue.
[[nodiscard]] Segment parse(const Bytes& ulpdu);
[[nodiscard]] ReadFields parse_read(const Segment& s);
[[nodiscard]] AtomicFields parse_atomic(const Segment& s);

// Terminate codes, "layer/type/code" of the tables.
struct Code {
  std::uint8_t layer = 0, type = 0, code = 0;
  bool operator==(const Code&) const = default;
};
[[nodiscard]] std::string to_string(Code c);
enum class Attach { kNothing, kDdp, kDdpAndRead };
// Octet order of the Terminate control field: as the RFC says, or as Linux siw does it.
enum class Layout { kRfc, kSiw };
// The whole ULPDU of a Terminate about `offending`.
[[nodiscard]] Bytes terminate(Code c, Attach attach = Attach::kNothing, const Bytes& offending = {},
                              Layout layout = Layout::kRfc);

}  // namespace raw
