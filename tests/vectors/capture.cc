#include "capture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>

#include "base/bytes.h"

namespace weft::testing {

namespace {

constexpr std::size_t kFileHeader = 24;
constexpr std::size_t kPacketHeader = 16;
constexpr std::size_t kEthernet = 14;
constexpr std::uint32_t kMagic = 0xa1b2c3d4;
constexpr std::uint8_t kFin = 1, kSyn = 2, kRst = 4, kAck = 16;

struct Segment {
  std::uint64_t from = 0, to = 0;  // address and port
  std::uint32_t sequence = 0;
  std::uint8_t flags = 0;
  std::span<const std::uint8_t> payload;
};

std::optional<Segment> parse_packet(std::span<const std::uint8_t> packet) {
  if (packet.size() < kEthernet + 40 || load_be16(packet.data() + 12) != 0x0800) return {};
  const auto ip = packet.subspan(kEthernet);
  if (ip[9] != 6) return {};
  const std::size_t ip_header = (ip[0] & 15U) * 4U;
  const std::size_t total = load_be16(ip.data() + 2);
  // Length 0: larger than the field can say, before segmentation offload.
  const auto tcp = ip.subspan(ip_header, (total == 0 ? ip.size() : total) - ip_header);
  Segment s;
  s.from = std::uint64_t{load_be32(ip.data() + 12)} << 16U | load_be16(tcp.data());
  s.to = std::uint64_t{load_be32(ip.data() + 16)} << 16U | load_be16(tcp.data() + 2);
  s.sequence = load_be32(tcp.data() + 4);
  s.flags = tcp[13];
  s.payload = tcp.subspan((tcp[12] >> 4U) * 4U);
  return s;
}

struct Assembly {
  CapturedConnection connection;
  std::uint32_t first[2] = {};  // sequence number of octet 0 of each direction
};

void add(Assembly& a, int side, const Segment& s) {
  CapturedStream& stream = a.connection.from[side];
  if ((s.flags & kSyn) != 0) a.first[side] = s.sequence + 1;
  if ((s.flags & kFin) != 0) stream.fin = true;
  if ((s.flags & kRst) != 0) stream.rst = true;
  if (s.payload.empty()) return;
  const std::size_t at = s.sequence - a.first[side];
  ASSERT_LE(at, stream.bytes.size()) << "a segment is missing";
  const std::size_t known = std::min(stream.bytes.size() - at, s.payload.size());
  stream.bytes.insert(stream.bytes.end(), s.payload.begin() + static_cast<std::ptrdiff_t>(known),
                      s.payload.end());
}

}  // namespace

std::vector<CapturedConnection> read_pcap(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> raw((std::istreambuf_iterator<char>(in)), {});
  const std::span<const std::uint8_t> all(reinterpret_cast<const std::uint8_t*>(raw.data()),
                                          raw.size());
  std::vector<Assembly> found;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> by_pair;  // client, server
  EXPECT_GE(all.size(), kFileHeader) << file;
  if (all.size() < kFileHeader) return {};
  EXPECT_EQ(load_le32(all.data()), kMagic) << file;
  for (std::size_t at = kFileHeader; at + kPacketHeader <= all.size();) {
    const std::size_t size = load_le32(all.data() + at + 8);
    const auto segment = parse_packet(all.subspan(at + kPacketHeader, size));
    at += kPacketHeader + size;
    if (!segment) continue;
    if ((segment->flags & (kSyn | kAck)) == kSyn) {
      by_pair[{segment->from, segment->to}] = found.size();
      found.emplace_back();
    }
    const auto forth = by_pair.find({segment->from, segment->to});
    const auto back = by_pair.find({segment->to, segment->from});
    if (forth != by_pair.end()) add(found[forth->second], 0, *segment);
    if (back != by_pair.end()) add(found[back->second], 1, *segment);
  }
  std::vector<CapturedConnection> out;
  for (Assembly& a : found) out.push_back(std::move(a.connection));
  return out;
}

std::vector<std::vector<std::string>> read_decode(const std::filesystem::path& file) {
  static const std::regex left_out("#[0-9]+ | segs=[0-9]+| unaligned");
  std::ifstream in(file);
  std::vector<std::vector<std::string>> out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("connection ")) {
      out.emplace_back();
    } else if (!out.empty() && !line.empty()) {
      out.back().push_back(std::regex_replace(line, left_out, ""));
    }
  }
  return out;
}

std::vector<std::string> capture_names() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_VECTORS)) {
    if (entry.path().extension() == ".pcap") out.push_back(entry.path().stem());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::filesystem::path capture_file(const std::string& name, const char* extension) {
  return std::filesystem::path(WEFT_VECTORS) / (name + extension);
}

}  // namespace weft::testing
