// Helpers of the wire tests: bytes from hexadecimal text, and FPDUs built the slow, obvious way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "wire/fpdu.h"

namespace weft::testing {

using Bytes = std::vector<std::uint8_t>;

// Anything but hexadecimal digits is ignored, so that examples can keep their spacing.
inline Bytes hex(std::string_view text) {
  Bytes out;
  int high = -1;
  for (const char c : text) {
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (digit < 0) continue;
    if (high < 0) {
      high = digit;
    } else {
      out.push_back(static_cast<std::uint8_t>(high * 16 + digit));
      high = -1;
    }
  }
  return out;
}

inline std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t b : bytes) {
    out.push_back(kDigits[b >> 4]);
    out.push_back(kDigits[b & 0xfU]);
  }
  return out;
}

inline Bytes zeros(std::size_t count) { return Bytes(count, 0); }

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What encode(value) writes, and a check on the size it claims: a writer with no byte to spare.
template <class T>
Bytes encoded(const T& value, std::size_t size) {
  Bytes out(size, 0xee);
  ByteWriter writer(out);
  encode(value, writer);
  out.resize(writer.written().size());
  return out;
}

// One FPDU that begins at `offset` of its stream, built octet by octet.
inline Bytes build_fpdu(const Bytes& ulpdu, bool markers = false, std::uint64_t offset = 0) {
  Bytes plain(2);
  store_ulpdu_length(plain.data(), static_cast<std::uint16_t>(ulpdu.size()));
  plain = plain + ulpdu;
  while (plain.size() % 4 != 0) plain.push_back(0);

  Bytes out;
  std::size_t length_field_at = 0;
  const auto add_marker_if_due = [&] {
    if (!markers || (offset + out.size()) % kMarkerInterval != 0) return;
    std::uint8_t marker[kMarkerSize];
    store_marker(marker,
                 out.empty() ? 0 : static_cast<std::uint32_t>(out.size() - length_field_at));
    out.insert(out.end(), marker, marker + kMarkerSize);
    if (out.size() == kMarkerSize) length_field_at = kMarkerSize;
  };
  for (const std::uint8_t octet : plain) {
    add_marker_if_due();
    out.push_back(octet);
  }
  add_marker_if_due();
  std::uint8_t crc[kCrcSize];
  store_crc(crc, crc32c(out));
  out.insert(out.end(), crc, crc + kCrcSize);
  return out;
}

}  // namespace weft::testing
