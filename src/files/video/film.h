// The format of a video: the size and rate of its frames, and where they lie in the file.
//
// Two kinds of files are films. YUV4MPEG2 (.y4m) with 4:2:0 chroma has a header that says all. Raw
// frames of 32 bits (octets B, G, R, X) say it by their name: clip.1280x720@35.bgra.
//
// Pure functions over bytes, any thread. Headers come from other machines: what parse_*() returns
// is within the limits below.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "files/protocol/outcome.h"

namespace weft::video {

inline constexpr std::uint32_t kMaxSide = 8192;    // pixels
inline constexpr std::size_t kHeaderBytes = 4096;  // of a Y4M file, at most

enum class PixelFormat : std::uint8_t { kBgra, kI420 };

struct Film {
  PixelFormat format = PixelFormat::kBgra;
  std::uint32_t width = 0, height = 0;       // pixels
  std::uint32_t rate_num = 0, rate_den = 1;  // frames a second
  std::uint64_t first_offset = 0;            // of record 0 in the file
  std::uint32_t mark_bytes = 0;              // in front of each frame: "FRAME\n"
  std::uint32_t frame_bytes = 0;             // the pixels of one

  [[nodiscard]] std::uint32_t record_bytes() const { return mark_bytes + frame_bytes; }
  // When frame `n` is due after frame 0; right for 292 years.
  [[nodiscard]] std::int64_t due_ns(std::uint64_t n) const {
    constexpr std::uint64_t kSecond = 1000000000;
    const std::uint64_t part = n % rate_num * rate_den;  // of a second, times rate_num
    return static_cast<std::int64_t>((n / rate_num * rate_den + part / rate_num) * kSecond +
                                     part % rate_num * kSecond / rate_num);
  }
  // Whole records in a file of this size.
  [[nodiscard]] std::uint64_t records_in(std::uint64_t file_bytes) const {
    return file_bytes <= first_offset ? 0 : (file_bytes - first_offset) / record_bytes();
  }
  // Octets behind them: of a frame that was cut.
  [[nodiscard]] std::uint64_t rest_in(std::uint64_t file_bytes) const {
    return file_bytes <= first_offset ? 0 : (file_bytes - first_offset) % record_bytes();
  }
  bool operator==(const Film&) const = default;
};

inline constexpr std::string_view kFrameMark = "FRAME\n";

// Y and the two chroma planes of an I420 frame.
struct Planes {
  std::uint32_t chroma_width, chroma_height;
  std::size_t u, v;  // octets from the start
};
[[nodiscard]] Planes planes_of(const Film& film);

// EINVAL with a reason: sizes or rates out of range, another chroma, cut short.
[[nodiscard]] files::Outcome<Film> make_film(PixelFormat format, std::uint32_t width,
                                             std::uint32_t height, std::uint32_t rate_num,
                                             std::uint32_t rate_den);
// `head`: the first octets of the file, kHeaderBytes of them or all.
[[nodiscard]] files::Outcome<Film> parse_y4m(std::span<const std::uint8_t> head);
[[nodiscard]] std::string y4m_header(const Film& film);
// As a text says them. They may be out of range.
struct SizeAndRate {
  std::uint32_t width = 0, height = 0;
  std::uint32_t rate_num = 0, rate_den = 1;
};
// WIDTHxHEIGHT@RATE; RATE may be a fraction, 30000:1001.
[[nodiscard]] std::optional<SizeAndRate> parse_size_and_rate(std::string_view text);
// By a name that ends in .WIDTHxHEIGHT@RATE.bgra. No value: by another name.
[[nodiscard]] std::optional<files::Outcome<Film>> parse_raw_name(std::string_view name);
// The one or the other.
[[nodiscard]] files::Outcome<Film> identify(std::string_view name,
                                            std::span<const std::uint8_t> head);

}  // namespace weft::video
