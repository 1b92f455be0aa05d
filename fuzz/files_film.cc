// Headers and names of films, which come from a server. Octet 0: how many of the octets behind it
// are the name; the rest is the head of the file. Whatever is called a film is within the limits.
#include <algorithm>
#include <string_view>

#include "files/protocol/data_protocol.h"
#include "files/video/film.h"
#include "wire_fuzzing.h"

namespace weft::fuzzing {
namespace {

using video::Film;

void check_film(const Film& film, std::size_t head_bytes) {
  check(film.width != 0 && film.width <= video::kMaxSide);
  check(film.height != 0 && film.height <= video::kMaxSide);
  check(film.rate_num != 0 && film.rate_den != 0);
  check(film.frame_bytes != 0 && film.record_bytes() <= files::kMaxRecordBytes);
  check(film.first_offset <= head_bytes);
  if (film.format == video::PixelFormat::kI420) {
    const video::Planes p = video::planes_of(film);
    const std::size_t chroma = std::size_t{p.chroma_width} * p.chroma_height;
    check(p.u < p.v && p.v + chroma == film.frame_bytes);
  }
  check(film.records_in(film.first_offset + film.record_bytes()) == 1);
  // Time goes on, for as long as its type allows.
  std::int64_t before = 0;
  for (const std::uint64_t n : {1ULL, 2ULL, 1000ULL, 1ULL << 20U, 0xffffffffULL}) {
    if (n / film.rate_num * film.rate_den > 9'000'000'000) break;  // seconds
    const std::int64_t due = film.due_ns(n);
    check(due > before);
    before = due;
  }
}

void run(std::string_view name, std::span<const std::uint8_t> head) {
  const auto raw = video::parse_raw_name(name);
  if (raw && *raw) check_film(**raw, 0);
  if (const auto film = video::identify(name, head)) check_film(*film, head.size());
  const auto film = video::parse_y4m(head);
  if (!film) return;
  check_film(*film, head.size());
  const std::string text = video::y4m_header(*film);
  auto again = video::parse_y4m({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  check(again.has_value());
  again->first_offset = film->first_offset;
  check(*again == *film);
}

}  // namespace
}  // namespace weft::fuzzing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t name = std::min<std::size_t>(data[0], size - 1);
  weft::fuzzing::run({reinterpret_cast<const char*>(data) + 1, name},
                     {data + 1 + name, size - 1 - name});
  return 0;
}
