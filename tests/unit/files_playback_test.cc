// Frames of a film on their way to the screen, without a server and without a clock.
#include "files/video/playback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <vector>

namespace weft::video {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kStarted = 1000;  // of the clock, in milliseconds

// A film of 35 frames a second.
class Watched {
 public:
  Watched(std::uint32_t records, const PlayOptions& options)
      : film_(*make_film(PixelFormat::kBgra, 16, 16, 35, 1)),
        record_(film_.record_bytes()),
        playback("film", film_, records, options, now) {}

  [[nodiscard]] files::Outcome<void> arrives(std::uint32_t number) {
    return playback.record_arrived(number, record_.data(), now);
  }
  // The frame that is due is shown, and its slot is granted again. Its index, or -1.
  std::int64_t show() {
    const auto frame = playback.due(now);
    if (!frame) return -1;
    playback.taken(*frame, now);
    playback.shown(*frame, now);
    return static_cast<std::int64_t>(frame->index);
  }

 private:
  Film film_;
  std::vector<std::uint8_t> record_;

 public:
  Clock::time_point now{milliseconds(kStarted)};
  Playback playback;
};

PlayOptions fast() {
  PlayOptions options;
  options.paced = false;
  return options;
}

PlayOptions round_and_round(std::uint64_t frames) {
  PlayOptions options = fast();
  options.loop = true;
  options.frames = frames;
  return options;
}

TEST(Playback, GoesRoundAFilmOfAnyLength) {
  for (const std::uint32_t records : {1U, 2U, 7U}) {
    Watched film(records, round_and_round(10));
    for (std::uint32_t i = 0; i < 10; ++i) {
      ASSERT_FALSE(film.playback.finished()) << records;
      ASSERT_TRUE(film.arrives(i % records)) << records;
      EXPECT_EQ(film.show(), i) << records;
    }
    EXPECT_TRUE(film.playback.finished()) << records;
    EXPECT_EQ(film.playback.stats().dropped, 0U);
  }
}

TEST(Playback, SeeksWithinTheRoundThatIsOnTheScreen) {
  Watched film(4, round_and_round(100));
  for (const std::uint32_t number : {0U, 1U, 2U, 3U, 0U, 1U}) {
    ASSERT_TRUE(film.arrives(number));
    ASSERT_GE(film.show(), 0);
  }
  film.playback.seek(3, film.now);
  EXPECT_EQ(film.playback.position(), 3U);
  const auto grant = film.playback.next_grant();
  ASSERT_TRUE(grant && grant->seek);
  EXPECT_EQ(*grant->seek, 3U);
  // Those on their way are of the old position.
  ASSERT_TRUE(film.arrives(2));
  ASSERT_TRUE(film.playback.granted(8));
  ASSERT_TRUE(film.arrives(3));
  EXPECT_EQ(film.show(), -1);
  ASSERT_TRUE(film.arrives(3));
  EXPECT_EQ(film.show(), 4 + 3);
}

TEST(Playback, EndsAfterAsManyFramesAsAreWanted) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t frames : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2},
                                     std::uint64_t{3}, kMost - 2, kMost - 1, kMost}) {
    PlayOptions options = fast();
    options.first = 2;
    options.frames = frames;
    Watched film(4, options);
    const std::uint64_t all = frames == 1 ? 1 : 2;
    for (std::uint32_t i = 0; i < all; ++i) {
      EXPECT_FALSE(film.playback.finished()) << frames;
      ASSERT_TRUE(film.arrives(2 + i));
      EXPECT_EQ(film.show(), 2 + i);
    }
    EXPECT_TRUE(film.playback.finished()) << frames;
    EXPECT_EQ(film.playback.stats().shown, all) << frames;
  }
}

TEST(Playback, CountsTheTimeUntilTheScreenShowsAFrame) {
  Watched film(10, PlayOptions{});
  ASSERT_TRUE(film.arrives(0));
  const auto frame = film.playback.due(film.now);
  ASSERT_TRUE(frame);
  // Its slot need not wait for the screen.
  film.playback.taken(*frame, film.now);
  EXPECT_TRUE(film.playback.next_grant());
  EXPECT_EQ(film.playback.stats().shown, 0U);
  film.now += milliseconds(40);
  film.playback.shown(*frame, film.now);
  const PlayStats& stats = film.playback.stats();
  EXPECT_EQ(stats.shown, 1U);
  EXPECT_EQ(stats.late, 1U);
  EXPECT_EQ(stats.flip_ns, 40'000'000);
  EXPECT_EQ(stats.first_shown, film.now);
}

TEST(Playback, RefusesFramesOutOfTurn) {
  for (const std::uint32_t second : {0U, 2U, 9U, 10U}) {
    Watched film(10, fast());
    ASSERT_TRUE(film.arrives(0));
    const auto ok = film.arrives(second);
    ASSERT_FALSE(ok) << second;
    EXPECT_EQ(ok.error().error, EPROTO);
  }
  for (const bool loop : {false, true}) {
    PlayOptions options = fast();
    options.loop = loop;
    options.first = 9;
    Watched film(10, options);
    ASSERT_TRUE(film.arrives(9));
    EXPECT_EQ(bool{film.arrives(0)}, loop);
  }
}

TEST(Playback, RefusesMoreFramesThanThereAreSlots) {
  Watched film(10, fast());
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(film.arrives(i));
  EXPECT_FALSE(film.arrives(3));
}

TEST(Playback, RefusesAnEndBeforeTheLastFrame) {
  PlayOptions options = fast();
  options.frames = 3;
  for (std::uint32_t there = 0; there <= 3; ++there) {
    for (const bool asked : {false, true}) {
      Watched film(10, options);
      for (std::uint32_t i = 0; i < there; ++i) ASSERT_TRUE(film.arrives(i));
      const auto ok = film.playback.ended(77, asked);
      EXPECT_EQ(bool{ok}, asked || there == 3) << there;
      if (!ok) {
        EXPECT_EQ(ok.error().error, EPROTO);
      }
      EXPECT_EQ(film.playback.stats().server_cpu_us, 77U);
      EXPECT_TRUE(film.playback.is_over());
      EXPECT_FALSE(film.arrives(there)) << "it comes behind the end";
    }
  }
  // The last frame has arrived, but the user wants another one.
  Watched film(3, fast());
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(film.arrives(i));
  film.playback.seek(2, film.now);
  EXPECT_FALSE(film.playback.ended(0, false));
}

TEST(Playback, RefusesAnswersToGrantsThatCannotBe) {
  // Two have arrived, and four are granted.
  for (const std::uint64_t started : {0U, 1U, 2U, 3U, 4U, 5U, 1000U}) {
    Watched film(10, fast());
    ASSERT_TRUE(film.arrives(0));
    ASSERT_TRUE(film.arrives(1));
    EXPECT_EQ(film.show(), 0);
    ASSERT_TRUE(film.playback.next_grant());
    EXPECT_EQ(film.show(), 1);
    const auto ok = film.playback.granted(started);
    EXPECT_EQ(bool{ok}, 2 <= started && started <= 4) << started;
    if (!ok) {
      EXPECT_EQ(ok.error().error, EPROTO);
    }
    EXPECT_FALSE(film.playback.granted(4)) << "nobody asked";
  }
}

// A server behind a link, in virtual time: so long it takes a message to the other end, and so long
// the link is busy with a frame.
class FarServer {
 public:
  FarServer(std::uint32_t records, const PlayOptions& options, milliseconds delay,
            milliseconds frame_time)
      : film(records, options),
        records_(records),
        delay_(delay),
        frame_time_(frame_time),
        limit_(options.slots) {}

  // To the end of the film, or so long.
  void run(milliseconds longest) {
    for (const auto end = film.now + longest; film.now < end && !film.playback.finished();
         film.now += milliseconds(1)) {
      send();
      receive();
      static_cast<void>(film.show());
      const auto grant = film.playback.next_grant();
      if (grant) grants_.push_back({film.now + delay_, *grant});
    }
  }

  Watched film;

 private:
  struct Asked {
    Clock::time_point at;
    Playback::Grant grant;
  };
  struct Answer {
    Clock::time_point at;
    bool is_record = false;
    std::uint64_t number = 0;
  };

  void send() {
    const auto now = film.now;
    for (; !grants_.empty() && grants_.front().at <= now; grants_.pop_front()) {
      const Playback::Grant& grant = grants_.front().grant;
      limit_ = grant.limit;
      next_ = grant.seek.value_or(next_);
      answers_.push_back({std::max(now, idle_at_) + delay_, false, started_});
    }
    for (; started_ < limit_ && next_ < records_ && idle_at_ <= now; ++started_) {
      idle_at_ = std::max(idle_at_, now) + frame_time_;
      answers_.push_back({idle_at_ + delay_, true, next_++});
    }
  }

  void receive() {
    for (; !answers_.empty() && answers_.front().at <= film.now; answers_.pop_front()) {
      const Answer& answer = answers_.front();
      const auto ok = answer.is_record ? film.arrives(static_cast<std::uint32_t>(answer.number))
                                       : film.playback.granted(answer.number);
      ASSERT_TRUE(ok) << ok.error().text();
    }
  }

  const std::uint32_t records_;
  const milliseconds delay_, frame_time_;
  std::uint64_t limit_, started_ = 0;
  std::uint32_t next_ = 0;
  Clock::time_point idle_at_{};
  std::deque<Asked> grants_;
  std::deque<Answer> answers_;
};

PlayOptions by_the_clock() { return {}; }

TEST(Playback, ShowsEveryFrameWhereTheLinkCarriesThem) {
  FarServer server(100, by_the_clock(), milliseconds(10), milliseconds(20));
  server.run(milliseconds(10000));
  const PlayStats& stats = server.film.playback.stats();
  EXPECT_EQ(stats.shown, 100U);
  EXPECT_EQ(stats.dropped + stats.late, 0U);
}

// Where it does not, frames are left out; those that are shown are most of what the link carries,
// and not all of them are late.
TEST(Playback, LeavesOutWhatWouldComeTooLate) {
  for (const int delay : {10, 30, 60, 100, 200}) {
    FarServer fastest(100000, fast(), milliseconds(delay), milliseconds(40));
    fastest.run(milliseconds(20000));
    FarServer server(100000, by_the_clock(), milliseconds(delay), milliseconds(40));
    server.run(milliseconds(20000));
    const PlayStats& stats = server.film.playback.stats();
    EXPECT_GT(stats.dropped, stats.shown / 4) << delay;
    EXPECT_GT(2 * stats.shown, fastest.film.playback.stats().shown) << delay;
    EXPECT_LT(stats.late, stats.shown * 3 / 4) << delay;
  }
}

// The frames that arrived meanwhile seem to have been on their way for long.
TEST(Playback, GoesOnAtOnceAfterTheViewerStoodStill) {
  for (const int frame_time : {1, 20}) {
    FarServer server(100000, by_the_clock(), milliseconds(5), milliseconds(frame_time));
    server.run(milliseconds(1000));
    server.film.now += milliseconds(100000);
    server.run(milliseconds(500));
    const std::uint64_t shown = server.film.playback.stats().shown;
    EXPECT_GT(server.film.playback.position(), 101U * 35);
    server.run(milliseconds(1000));
    EXPECT_GE(server.film.playback.stats().shown, shown + 34);
  }
}

}  // namespace
}  // namespace weft::video
