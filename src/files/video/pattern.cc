#include "files/video/pattern.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace weft::video {
namespace {

struct Shade {
  std::array<std::uint8_t, 3> bgr;
  std::array<std::uint8_t, 3> yuv;  // BT.601
};
// The bars of the usual test picture, then black.
constexpr std::array<Shade, 8> kShades = {{{{191, 191, 191}, {180, 128, 128}},
                                           {{0, 191, 191}, {162, 44, 142}},
                                           {{191, 191, 0}, {131, 156, 44}},
                                           {{0, 191, 0}, {112, 72, 58}},
                                           {{191, 0, 191}, {84, 184, 198}},
                                           {{0, 0, 191}, {65, 100, 212}},
                                           {{191, 0, 0}, {35, 212, 114}},
                                           {{0, 0, 0}, {16, 128, 128}}}};
constexpr unsigned kBars = 7;
constexpr unsigned kWhite = 0;
constexpr unsigned kBlack = 7;

// Five columns and seven rows a character, the highest bit left.
constexpr std::uint32_t kGlyphWidth = 5;
constexpr std::uint32_t kGlyphHeight = 7;
struct Glyph {
  char character;
  std::array<std::uint8_t, kGlyphHeight> rows;
};
constexpr std::array<Glyph, 13> kGlyphs = {{
    {'0', {0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e}},
    {'1', {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e}},
    {'2', {0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f}},
    {'3', {0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e}},
    {'4', {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02}},
    {'5', {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e}},
    {'6', {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e}},
    {'7', {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08}},
    {'8', {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e}},
    {'9', {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c}},
    {':', {0x00, 0x04, 0x04, 0x00, 0x04, 0x04, 0x00}},
    {'.', {0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x0c}},
    {'#', {0x0a, 0x0a, 0x1f, 0x0a, 0x1f, 0x0a, 0x0a}},
}};

}  // namespace

TestPattern::TestPattern(const Film& film) : film_(film), background_(film.frame_bytes, 0) {
  for (unsigned bar = 0; bar < kBars; ++bar) {
    const std::uint32_t from = film.width * bar / kBars;
    fill(background_, from, 0, film.width * (bar + 1) / kBars - from, film.height, bar);
  }
  frame_ = background_;
}

std::span<const std::uint8_t> TestPattern::frame(std::uint64_t n) {
  std::memcpy(frame_.data(), background_.data(), frame_.size());
  // The line goes once over the picture in 2 s, whatever the rate.
  const std::uint64_t around = std::max<std::uint64_t>(1, 2ULL * film_.rate_num / film_.rate_den);
  fill(frame_, static_cast<std::uint32_t>(n % around * film_.width / around), 0,
       std::max(1U, film_.width / 100), film_.height, kBlack);
  const auto ms = static_cast<std::uint64_t>(film_.due_ns(n) / 1000000);
  char number[32];
  char time[32];
  std::snprintf(number, sizeof number, "#%06llu", static_cast<unsigned long long>(n));
  std::snprintf(time, sizeof time, "%02llu:%02llu:%02llu.%03llu",
                static_cast<unsigned long long>(ms / 3600000),
                static_cast<unsigned long long>(ms / 60000 % 60),
                static_cast<unsigned long long>(ms / 1000 % 60),
                static_cast<unsigned long long>(ms % 1000));
  const std::uint32_t scale = std::max(1U, film_.width / 160);
  const std::uint32_t margin = 4 * scale;
  fill(frame_, margin, margin, (12 * (kGlyphWidth + 1) + 3) * scale,
       (2 * (kGlyphHeight + 2) + 2) * scale, kBlack);
  draw_text(number, margin + 2 * scale, margin + 2 * scale, scale);
  draw_text(time, margin + 2 * scale, margin + (kGlyphHeight + 4) * scale, scale);
  return frame_;
}

// A rectangle, cut at the borders.
void TestPattern::fill(std::vector<std::uint8_t>& to, std::uint32_t x, std::uint32_t y,
                       std::uint32_t width, std::uint32_t height, unsigned color) {
  if (x >= film_.width || y >= film_.height) return;
  width = std::min(width, film_.width - x);
  height = std::min(height, film_.height - y);
  std::uint8_t* data = to.data();
  const Shade& shade = kShades[color];
  if (film_.format == PixelFormat::kBgra) {
    for (std::uint32_t row = y; row < y + height; ++row) {
      std::uint8_t* at = data + (std::size_t{row} * film_.width + x) * 4;
      for (std::uint32_t i = 0; i < width; ++i, at += 4) {
        std::copy(shade.bgr.begin(), shade.bgr.end(), at);
        at[3] = 255;
      }
    }
    return;
  }
  for (std::uint32_t row = y; row < y + height; ++row) {
    std::memset(data + std::size_t{row} * film_.width + x, shade.yuv[0], width);
  }
  const Planes p = planes_of(film_);
  for (std::uint32_t row = y / 2; row < (y + height + 1) / 2; ++row) {
    const std::size_t at = std::size_t{row} * p.chroma_width + x / 2;
    const std::size_t count = (x + width + 1) / 2 - x / 2;
    std::memset(data + p.u + at, shade.yuv[1], count);
    std::memset(data + p.v + at, shade.yuv[2], count);
  }
}

void TestPattern::draw_text(const char* text, std::uint32_t x, std::uint32_t y,
                            std::uint32_t scale) {
  for (; *text != '\0'; ++text, x += (kGlyphWidth + 1) * scale) {
    const auto* glyph = std::find_if(kGlyphs.begin(), kGlyphs.end(),
                                     [text](const Glyph& g) { return g.character == *text; });
    if (glyph == kGlyphs.end()) continue;
    for (std::uint32_t row = 0; row < kGlyphHeight; ++row) {
      for (std::uint32_t column = 0; column < kGlyphWidth; ++column) {
        if ((glyph->rows[row] >> (kGlyphWidth - 1 - column) & 1U) == 0) continue;
        fill(frame_, x + column * scale, y + row * scale, scale, scale, kWhite);
      }
    }
  }
}

}  // namespace weft::video
