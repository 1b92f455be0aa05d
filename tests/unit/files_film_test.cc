// What a film is, by its header or its name, and the test film.
#include "files/video/film.h"

#include <gtest/gtest.h>

#include <string>

#include "files/video/pattern.h"

namespace weft::video {
namespace {

files::Outcome<Film> y4m(std::string_view text) {
  return parse_y4m({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

TEST(Film, HeaderComesBackAsItWas) {
  const auto made = make_film(PixelFormat::kI420, 641, 479, 30000, 1001);
  ASSERT_TRUE(made);
  const std::string header = y4m_header(*made);
  const auto read = y4m(header + "FRAME\n");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->first_offset, header.size());
  Film expected = *made;
  expected.first_offset = header.size();
  EXPECT_EQ(*read, expected);
  // Chroma is rounded up.
  EXPECT_EQ(read->frame_bytes, 641U * 479 + 2 * 321 * 240);
}

TEST(Film, RefusesAHeaderCutAtEveryOctet) {
  const std::string whole = "YUV4MPEG2 W64 H48 F25:1 Ip A1:1 C420jpeg\n";
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    EXPECT_FALSE(y4m(whole.substr(0, cut))) << cut;
  }
  EXPECT_TRUE(y4m(whole));
}

TEST(Film, RefusesWhatIsOutOfRange) {
  EXPECT_TRUE(y4m("YUV4MPEG2 W8192 H2048 F1000:1\n"));
  for (const char* header :
       {"YUV4MPEG2 W8193 H2048 F25:1\n", "YUV4MPEG2 W0 H2048 F25:1\n", "YUV4MPEG2 W64 H48\n",
        "YUV4MPEG2 W64 H48 F0:1\n", "YUV4MPEG2 W64 H48 F25:0\n", "YUV4MPEG2 W64 H48 F1001:1\n",
        "YUV4MPEG2 W-1 H48 F25:1\n", "YUV4MPEG2 W64x H48 F25:1\n", "YUV4MPEG2  W64 H48 F25:1\n",
        "YUV4MPEG2 W64 H48 F25:1 C444\n", "YUV4MPEG2W64 H48 F25:1\n",
        "YUV4MPEG2 W99999999999 H48 F25:1\n"}) {
    EXPECT_FALSE(y4m(header)) << header;
  }
}

TEST(Film, NamesOfRawFramesSayTheirSize) {
  const auto film = parse_raw_name("folder.d/clip.1280x720@30000:1001.bgra");
  ASSERT_TRUE(film && *film);
  EXPECT_EQ((*film)->width, 1280U);
  EXPECT_EQ((*film)->height, 720U);
  EXPECT_EQ((*film)->rate_num, 30000U);
  EXPECT_EQ((*film)->rate_den, 1001U);
  EXPECT_EQ((*film)->record_bytes(), 1280U * 720 * 4);
  for (const char* name : {"clip.bgra", "1280x720.bgra", "clip.1280x720@35", "clip.x720@35.bgra",
                           "clip.1280x720@.bgra", "clip.1280@35x720.bgra"}) {
    EXPECT_FALSE(parse_raw_name(name)) << name;
  }
  // These say it, but there is no such film.
  for (const char* name : {"clip.0x720@35.bgra", "clip.8193x1@35.bgra", "clip.8192x2049@35.bgra",
                           "clip.64x64@0.bgra", "clip.64x64@25:0.bgra"}) {
    const auto none = parse_raw_name(name);
    ASSERT_TRUE(none) << name;
    EXPECT_FALSE(*none) << name;
    EXPECT_FALSE(identify(name, {})) << name;
  }
}

TEST(Film, CountsWholeRecordsOnly) {
  auto film = make_film(PixelFormat::kI420, 16, 16, 25, 1);
  ASSERT_TRUE(film);
  film->first_offset = 100;
  EXPECT_EQ(film->records_in(0), 0U);
  EXPECT_EQ(film->records_in(100), 0U);
  EXPECT_EQ(film->records_in(100 + film->record_bytes() - 1), 0U);
  EXPECT_EQ(film->records_in(100 + film->record_bytes()), 1U);
  // The rest is a part of one.
  for (const std::uint64_t records : {0U, 1U, 1000U}) {
    const std::uint64_t size = 100 + records * film->record_bytes();
    EXPECT_EQ(film->rest_in(size), 0U);
    EXPECT_EQ(film->rest_in(size + 1), 1U);
    EXPECT_EQ(film->rest_in(size + film->record_bytes() - 1), film->record_bytes() - 1);
  }
  EXPECT_EQ(film->rest_in(99), 0U);
}

TEST(Film, FramesAreDueWithoutDrift) {
  const auto film = make_film(PixelFormat::kBgra, 16, 16, 30000, 1001);
  ASSERT_TRUE(film);
  EXPECT_EQ(film->due_ns(30000), 1001000000000);
  EXPECT_EQ(film->due_ns(1), 33366666);
  // A loop that has run for years.
  const auto fast = make_film(PixelFormat::kBgra, 16, 16, 1000, 1);
  ASSERT_TRUE(fast);
  EXPECT_EQ(fast->due_ns(200'000'000'000), 200'000'000'000'000'000);
}

TEST(TestFilm, FramesDifferAndAreTheSameEveryTime) {
  for (const PixelFormat format : {PixelFormat::kBgra, PixelFormat::kI420}) {
    const auto film = make_film(format, 161, 91, 25, 1);
    ASSERT_TRUE(film);
    TestPattern one(*film);
    TestPattern two(*film);
    const auto first = one.frame(0);
    const std::vector<std::uint8_t> kept(first.begin(), first.end());
    const auto second = one.frame(1);
    EXPECT_NE(kept, std::vector(second.begin(), second.end()));
    const auto again = two.frame(0);
    EXPECT_EQ(kept, std::vector(again.begin(), again.end()));
  }
}

TEST(TestFilm, TheSmallestFrameHasRoomForWhatIsDrawn) {
  for (const PixelFormat format : {PixelFormat::kBgra, PixelFormat::kI420}) {
    const auto film = make_film(format, 1, 1, 1000, 1);
    ASSERT_TRUE(film);
    TestPattern pattern(*film);
    for (std::uint64_t n = 0; n < 5000; ++n) EXPECT_EQ(pattern.frame(n).size(), film->frame_bytes);
  }
}

}  // namespace
}  // namespace weft::video
