// What a WindowTarget does, octet by octet, and random views of it.
#pragma once

#include <weft/placement.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

namespace weft::test {

inline void place_naively(std::vector<std::uint8_t>& surface, const Surface& s,
                          std::size_t row_bytes, const WindowView& v, std::uint64_t offset,
                          std::span<const std::uint8_t> octets) {
  for (const std::uint8_t octet : octets) {
    const std::int64_t x = v.x + static_cast<std::int64_t>(offset % row_bytes);
    const std::int64_t y = v.y + static_cast<std::int64_t>(offset / row_bytes);
    ++offset;
    if (x < 0 || y < 0) continue;
    const auto ux = static_cast<std::size_t>(x);
    const auto uy = static_cast<std::size_t>(y);
    if (ux >= s.row_bytes || uy >= s.rows || ux < v.clip_x || uy < v.clip_y) continue;
    if (ux - v.clip_x >= v.clip_width || uy - v.clip_y >= v.clip_rows) continue;
    surface[uy * s.pitch + ux] = octet;
  }
}

inline std::uint64_t seed() {
  const char* text = std::getenv("WEFT_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : std::random_device{}();
}

class Numbers {
 public:
  explicit Numbers(std::uint64_t from) : random_(from) {}
  std::size_t upto(std::size_t most) { return random_() % (most + 1); }
  std::vector<std::uint8_t> octets(std::size_t count) {
    std::vector<std::uint8_t> out(count);
    for (auto& octet : out) octet = static_cast<std::uint8_t>(random_());
    return out;
  }
  WindowView view() {
    WindowView v;
    v.x = static_cast<std::int64_t>(upto(80)) - 40;
    v.y = static_cast<std::int64_t>(upto(40)) - 20;
    if (upto(2) == 0) return v;
    v.clip_x = upto(50);
    v.clip_y = upto(30);
    v.clip_width = upto(50);
    v.clip_rows = upto(30);
    return v;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace weft::test
