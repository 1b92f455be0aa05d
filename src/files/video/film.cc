#include "files/video/film.h"

#include <charconv>
#include <cstring>

#include "files/protocol/data_protocol.h"

namespace weft::video {
namespace {

constexpr std::string_view kMagic = "YUV4MPEG2";

bool number(std::string_view text, std::uint32_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

// "30000:1001"; without a colon the second is 1.
bool fraction(std::string_view text, std::uint32_t& num, std::uint32_t& den) {
  const std::size_t colon = text.find(':');
  den = 1;
  if (colon != std::string_view::npos && !number(text.substr(colon + 1), den)) return false;
  return number(text.substr(0, colon), num);
}

files::Outcome<Film> refuse(std::string why) { return files::failed(EINVAL, {}, std::move(why)); }

// The fields of a Y4M header, before they are checked.
struct Y4m {
  std::uint32_t width = 0, height = 0, num = 0, den = 1;
  std::string_view chroma = "420";
};

bool take_field(std::string_view word, Y4m& out) {
  const std::string_view value = word.substr(1);
  switch (word.front()) {
    case 'W': return number(value, out.width);
    case 'H': return number(value, out.height);
    case 'F': return fraction(value, out.num, out.den);
    case 'C': out.chroma = value; return true;
    default: return true;  // interlacing, pixel aspect and comments change nothing here
  }
}

}  // namespace

Planes planes_of(const Film& film) {
  Planes p{(film.width + 1) / 2, (film.height + 1) / 2, 0, 0};
  p.u = std::size_t{film.width} * film.height;
  p.v = p.u + std::size_t{p.chroma_width} * p.chroma_height;
  return p;
}

files::Outcome<Film> make_film(PixelFormat format, std::uint32_t width, std::uint32_t height,
                               std::uint32_t rate_num, std::uint32_t rate_den) {
  if (width == 0 || height == 0 || width > kMaxSide || height > kMaxSide) {
    return refuse("frames have " + std::to_string(width) + " x " + std::to_string(height) +
                  " pixels; 1 to 8192 a side are possible");
  }
  // From one frame in 1000 s to 1000 a second; the numbers fit Film::due_ns().
  const bool rate_is_legal = rate_num != 0 && rate_den != 0 && rate_num <= 1000000 &&
                             rate_den <= 1000000 && rate_num / rate_den <= 1000 &&
                             rate_den / rate_num <= 1000;
  if (!rate_is_legal) {
    return refuse("the rate is " + std::to_string(rate_num) + "/" + std::to_string(rate_den) +
                  " frames/s; 0.001 to 1000 are possible");
  }
  Film film;
  film.format = format;
  film.width = width;
  film.height = height;
  film.rate_num = rate_num;
  film.rate_den = rate_den;
  std::uint64_t bytes = std::uint64_t{width} * height * 4;
  if (format == PixelFormat::kI420) {
    const Planes p = planes_of(film);
    bytes = p.v + (p.v - p.u);
    film.mark_bytes = static_cast<std::uint32_t>(kFrameMark.size());
  }
  if (bytes + film.mark_bytes > files::kMaxRecordBytes) {
    return refuse("a frame has " + std::to_string(bytes) + " octets; at most 64 MiB are possible");
  }
  film.frame_bytes = static_cast<std::uint32_t>(bytes);
  return film;
}

files::Outcome<Film> parse_y4m(std::span<const std::uint8_t> head) {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  const std::size_t end = text.find('\n');
  if (!text.starts_with(kMagic) || end == std::string_view::npos) {
    return refuse("this is no YUV4MPEG2 file");
  }
  std::string_view rest = text.substr(0, end);
  rest.remove_prefix(kMagic.size());
  Y4m fields;
  while (!rest.empty()) {
    if (rest.front() != ' ') return refuse("the YUV4MPEG2 header is damaged");
    rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (word.empty() || !take_field(word, fields)) {
      return refuse("the YUV4MPEG2 header is damaged at '" + std::string(word) + "'");
    }
    rest.remove_prefix(word.size());
  }
  // 420jpeg, 420mpeg2 and 420paldv differ in where the chroma is sampled only; 420p10 has wider
  // samples.
  const bool eight_bits = fields.chroma == "420" || fields.chroma == "420jpeg" ||
                          fields.chroma == "420mpeg2" || fields.chroma == "420paldv";
  if (!eight_bits) {
    return refuse("its pixels are '" + std::string(fields.chroma) +
                  "'; only 420 can be shown (ffmpeg -pix_fmt yuv420p converts)");
  }
  auto film = make_film(PixelFormat::kI420, fields.width, fields.height, fields.num, fields.den);
  if (film) film->first_offset = end + 1;
  return film;
}

std::string y4m_header(const Film& film) {
  return std::string(kMagic) + " W" + std::to_string(film.width) + " H" +
         std::to_string(film.height) + " F" + std::to_string(film.rate_num) + ":" +
         std::to_string(film.rate_den) + " Ip A1:1 C420jpeg\n";
}

std::optional<SizeAndRate> parse_size_and_rate(std::string_view text) {
  const std::size_t x = text.find('x');
  const std::size_t at = text.find('@');
  if (x == std::string_view::npos || at == std::string_view::npos || at < x) return std::nullopt;
  SizeAndRate out;
  const bool legal = number(text.substr(0, x), out.width) &&
                     number(text.substr(x + 1, at - x - 1), out.height) &&
                     fraction(text.substr(at + 1), out.rate_num, out.rate_den);
  return legal ? std::optional(out) : std::nullopt;
}

std::optional<files::Outcome<Film>> parse_raw_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".bgra";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const auto said = parse_size_and_rate(name.substr(name.find_last_of("./") + 1));
  if (!said) return std::nullopt;
  return make_film(PixelFormat::kBgra, said->width, said->height, said->rate_num, said->rate_den);
}

files::Outcome<Film> identify(std::string_view name, std::span<const std::uint8_t> head) {
  if (const auto raw = parse_raw_name(name)) return *raw;
  const bool y4m =
      head.size() >= kMagic.size() && std::memcmp(head.data(), kMagic.data(), kMagic.size()) == 0;
  if (y4m) return parse_y4m(head);
  return refuse(
      "it is no YUV4MPEG2 file, nor raw frames by its name (NAME.WIDTHxHEIGHT@RATE.bgra); `weft "
      "video serve` converts others by ffmpeg");
}

}  // namespace weft::video
