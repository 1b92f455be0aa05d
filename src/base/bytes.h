// Byte order and bounds in one place: loads and stores, ByteReader, ByteWriter.
//
// Everything here is inline, allocates nothing and may be used on any thread. Works on hosts of
// either byte order and at any alignment.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft {

static_assert(std::endian::native == std::endian::little ||
              std::endian::native == std::endian::big);

namespace detail {

inline std::uint16_t swap_bytes(std::uint16_t v) noexcept { return __builtin_bswap16(v); }
inline std::uint32_t swap_bytes(std::uint32_t v) noexcept { return __builtin_bswap32(v); }
inline std::uint64_t swap_bytes(std::uint64_t v) noexcept { return __builtin_bswap64(v); }

template <class T, std::endian kOrder>
inline T load(const void* p) noexcept {
  T v;
  std::memcpy(&v, p, sizeof v);
  return kOrder == std::endian::native ? v : swap_bytes(v);
}

template <class T, std::endian kOrder>
inline void store(void* p, T v) noexcept {
  if (kOrder != std::endian::native) v = swap_bytes(v);
  std::memcpy(p, &v, sizeof v);
}

}  // namespace detail

// Each reads or writes exactly the bytes its name says, at any alignment.
inline std::uint16_t load_be16(const void* p) noexcept {
  return detail::load<std::uint16_t, std::endian::big>(p);
}
inline std::uint32_t load_be32(const void* p) noexcept {
  return detail::load<std::uint32_t, std::endian::big>(p);
}
inline std::uint64_t load_be64(const void* p) noexcept {
  return detail::load<std::uint64_t, std::endian::big>(p);
}
inline std::uint32_t load_le32(const void* p) noexcept {
  return detail::load<std::uint32_t, std::endian::little>(p);
}
inline std::uint64_t load_le64(const void* p) noexcept {
  return detail::load<std::uint64_t, std::endian::little>(p);
}
inline void store_be16(void* p, std::uint16_t v) noexcept {
  detail::store<std::uint16_t, std::endian::big>(p, v);
}
inline void store_be32(void* p, std::uint32_t v) noexcept {
  detail::store<std::uint32_t, std::endian::big>(p, v);
}
inline void store_be64(void* p, std::uint64_t v) noexcept {
  detail::store<std::uint64_t, std::endian::big>(p, v);
}
inline void store_le32(void* p, std::uint32_t v) noexcept {
  detail::store<std::uint32_t, std::endian::little>(p, v);
}

// A cursor over bytes it does not own; the bytes must outlive it and every span taken from it.
// Reads past the end are bugs of the caller: check remaining() once, then read.
class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(std::span<const std::uint8_t> bytes) noexcept
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] std::size_t remaining() const noexcept {
    return static_cast<std::size_t>(end_ - at_);
  }
  [[nodiscard]] bool empty() const noexcept { return at_ == end_; }

  // REQUIRES for each: as many bytes remain as the name says.
  std::uint8_t u8() noexcept { return *take(1); }
  std::uint16_t be16() noexcept { return load_be16(take(2)); }
  std::uint32_t be32() noexcept { return load_be32(take(4)); }
  std::uint64_t be64() noexcept { return load_be64(take(8)); }
  std::span<const std::uint8_t> bytes(std::size_t count) noexcept { return {take(count), count}; }
  void skip(std::size_t count) noexcept { take(count); }

  // The rest, without moving.
  [[nodiscard]] std::span<const std::uint8_t> rest() const noexcept { return {at_, remaining()}; }

 private:
  const std::uint8_t* take(std::size_t count) noexcept {
    assert(count <= remaining());
    const std::uint8_t* p = at_;
    at_ += count;
    return p;
  }

  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
};

// A cursor that fills bytes it does not own. Writing past the end is a bug of the caller: encoders
// name the size they need, check room() against it once.
class ByteWriter {
 public:
  ByteWriter() = default;
  explicit ByteWriter(std::span<std::uint8_t> bytes) noexcept
      : begin_(bytes.data()), at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] std::size_t room() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  // Everything written so far.
  [[nodiscard]] std::span<std::uint8_t> written() const noexcept {
    return {begin_, static_cast<std::size_t>(at_ - begin_)};
  }

  // REQUIRES for each: room() for what is written.
  void u8(std::uint8_t v) noexcept { *claim(1) = v; }
  void be16(std::uint16_t v) noexcept { store_be16(claim(2), v); }
  void be32(std::uint32_t v) noexcept { store_be32(claim(4), v); }
  void be64(std::uint64_t v) noexcept { store_be64(claim(8), v); }
  void bytes(std::span<const std::uint8_t> src) noexcept {
    std::uint8_t* dst = claim(src.size());
    if (!src.empty()) std::memcpy(dst, src.data(), src.size());
  }
  void zeros(std::size_t count) noexcept {
    std::uint8_t* dst = claim(count);
    if (count != 0) std::memset(dst, 0, count);
  }

  // The next `count` octets, counted as written, for the caller to fill.
  std::uint8_t* claim(std::size_t count) noexcept {
    assert(count <= room());
    std::uint8_t* p = at_;
    at_ += count;
    return p;
  }

 private:
  std::uint8_t* begin_ = nullptr;
  std::uint8_t* at_ = nullptr;
  std::uint8_t* end_ = nullptr;
};

}  // namespace weft
