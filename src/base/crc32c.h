// CRC32C (Castagnoli), the checksum of MPA: RFC 5044 section 4.4, RFC 3720 appendix B.4.
//
// Polynomial 0x1edc6f41, reflected in and out, start all ones, final complement. The result is a
// number; on the wire it goes least significant octet first (store_le32, load_le32).
// Stateless or value types, no allocation, any thread. The fastest method of the CPU and of the
// build is chosen once, before main(); before that the table method gives the same answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

namespace detail {

// Feeds bytes into the running register (not complemented). `data` may be null if size is 0.
[[nodiscard]] std::uint32_t crc32c_extend(std::uint32_t state, const void* data,
                                          std::size_t size) noexcept;

// The portable method alone, whatever the CPU has: the oracle of the tests.
[[nodiscard]] std::uint32_t crc32c_extend_portable(std::uint32_t state, const void* data,
                                                   std::size_t size) noexcept;

}  // namespace detail

// The checksum of one contiguous run.
[[nodiscard]] inline std::uint32_t crc32c(std::span<const std::uint8_t> bytes) noexcept {
  return detail::crc32c_extend(0xffffffffU, bytes.data(), bytes.size()) ^ 0xffffffffU;
}

// The checksum of bytes that lie in several places. value() may be asked at any time and does not
// disturb the sum.
class Crc32c {
 public:
  void update(const void* data, std::size_t size) noexcept {
    state_ = detail::crc32c_extend(state_, data, size);
  }
  void update(std::span<const std::uint8_t> bytes) noexcept { update(bytes.data(), bytes.size()); }
  [[nodiscard]] std::uint32_t value() const noexcept { return state_ ^ 0xffffffffU; }
  void reset() noexcept { state_ = 0xffffffffU; }

 private:
  std::uint32_t state_ = 0xffffffffU;
};

// Which method large runs use: "isa-l", "sse4.2", "armv8" or "table". For `weft info` and reports.
[[nodiscard]] const char* crc32c_method() noexcept;

}  // namespace weft
