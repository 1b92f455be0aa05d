// The fuzz targets of the wire formats share this: a check that ends the program, and the round
// trip every codec must survive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace weft::fuzzing {

// Not assert(): the property must hold in every kind of build.
inline void check(bool holds) {
  if (!holds) __builtin_trap();
}

// Encodes `value` into exactly `size` octets and hands them to `use`.
template <class T, class Use>
void with_encoded(const T& value, std::size_t size, Use use) {
  std::array<std::uint8_t, 1024> buffer;
  check(size <= buffer.size());
  ByteWriter out{std::span(buffer).first(size)};
  encode(value, out);
  check(out.room() == 0);
  use(std::span<const std::uint8_t>(out.written()));
}

// decode, encode, decode: the two values are equal, the sizes agree, and a refusal leaves the
// reader where it was.
template <class Decode>
void round_trip(std::span<const std::uint8_t> input, std::size_t size, Decode decode) {
  ByteReader in(input);
  const auto first = decode(in);
  if (!first) {
    check(in.remaining() == input.size());
    return;
  }
  check(input.size() - in.remaining() == size);
  with_encoded(*first, size, [&](std::span<const std::uint8_t> bytes) {
    ByteReader again(bytes);
    const auto second = decode(again);
    check(second.has_value() && again.empty());
    check(*second == *first);
  });
}

}  // namespace weft::fuzzing
