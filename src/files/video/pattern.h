// The test film: color bars, a line that moves, and on each frame its number and time, drawn so
// that people can read them and every bit can be checked.
//
// One thread per object.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "files/video/film.h"

namespace weft::video {

class TestPattern {
 public:
  explicit TestPattern(const Film& film);
  // Frame `n`: film.frame_bytes octets, valid until the next call.
  [[nodiscard]] std::span<const std::uint8_t> frame(std::uint64_t n);

 private:
  void fill(std::vector<std::uint8_t>& to, std::uint32_t x, std::uint32_t y, std::uint32_t width,
            std::uint32_t height, unsigned color);
  void draw_text(const char* text, std::uint32_t x, std::uint32_t y, std::uint32_t scale);

  Film film_;
  std::vector<std::uint8_t> background_, frame_;
};

}  // namespace weft::video
