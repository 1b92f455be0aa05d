// Files of `weft run --timeline` put together: both ends of a message, clocks, pictures.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "timeline/phases.h"
#include "timeline/picture.h"
#include "timeline_testing.h"

namespace weft::timeline {
namespace {

TEST(TimelineStory, FindsBothEndsOfAMessage) {
  Scene scene;
  const std::size_t a = scene.process("a");
  const std::size_t b = scene.process("b");
  scene.connect(a, b);
  scene.send(a, b, 64, {.posted = 100, .placed = 200});
  scene.send(b, a, 128, {.posted = 300, .placed = 400});
  const Story story = scene.story();
  ASSERT_EQ(story.connections.size(), 2U);
  EXPECT_EQ(story.connections[0].peer, 1U);
  EXPECT_EQ(story.connections[1].peer, 0U);
  std::size_t matched = 0;
  for (std::size_t i = 0; i < story.items.size(); ++i) {
    const Item& item = story.items[i];
    if (item.record.kind != Kind::kRequest) continue;
    ASSERT_NE(item.mate, kNobody);
    EXPECT_EQ(story.items[item.mate].mate, i);
    EXPECT_EQ(story.items[item.mate].record.end_offset, item.record.end_offset);
    EXPECT_NE(story.items[item.mate].process, item.process);
    ++matched;
  }
  EXPECT_EQ(matched, 2U);
}

TEST(TimelineStory, PortsAreUsedAgain) {
  Scene scene;
  const std::size_t a = scene.process("a");
  const std::size_t b = scene.process("b");
  for (std::uint64_t i = 0; i < 3; ++i) {
    scene.connect(a, b, 1000 * i);
    scene.send(a, b, 64, {.posted = 1000 * i + 10, .placed = 1000 * i + 20});
  }
  for (const Item& item : scene.story().items) ASSERT_NE(item.mate, kNobody);
  const Story story = scene.story();
  for (const ConnectionItem& one : story.connections)
    EXPECT_EQ(one.connection.start, story.connections[one.peer].connection.start);
}

TEST(TimelineStory, RefusesWhatIsNoFileOfIt) {
  Story story;
  EXPECT_EQ(add_file(story, std::vector<std::uint8_t>(10)),
            "it is not a file of weft run --timeline");
  EXPECT_EQ(add_file(story, std::vector<std::uint8_t>(kHeaderBytes)),
            "it is not a file of weft run --timeline");
  // A wrong number of records in the header reaches nothing behind the file.
  FileHeader header;
  header.written = header.capacity = ~std::uint64_t{0};
  EXPECT_FALSE(add_file(story, file_of(header, {}, false)));
}

// The records at its end are missing, not the first ones.
TEST(TimelineStory, AFileThatIsCutShortCountsAsFarAsItGoes) {
  const auto cut_to = [](std::size_t octets) {
    std::vector<std::uint8_t> file = file_of({}, std::vector<Octets64>(3));
    file.resize(octets);
    return file;
  };
  struct Case {
    std::size_t octets, cut;
  };
  for (const auto& [octets, cut] :
       {Case{kHeaderBytes + 3 * sizeof(Octets64), 0},
        Case{kHeaderBytes + 3 * sizeof(Octets64) - 1, 1},
        Case{kHeaderBytes + 2 * sizeof(Octets64) - 1, 2}, Case{kHeaderBytes, 3},
        Case{kHeaderBytes - 1, 3}, Case{sizeof(FileHeader), 3}}) {
    Story story;
    EXPECT_FALSE(is_unfinished(cut_to(octets)));
    EXPECT_FALSE(add_file(story, cut_to(octets)));
    ASSERT_EQ(story.processes.size(), 1U);
    EXPECT_EQ(story.processes.front().cut, cut) << octets;
    EXPECT_EQ(story.processes.front().dropped, 0U) << octets;
  }
  for (const std::size_t octets : {sizeof(FileHeader) - 1, std::size_t{8}, std::size_t{3}}) {
    Story story;
    EXPECT_FALSE(is_unfinished(cut_to(octets)));
    EXPECT_EQ(add_file(story, cut_to(octets)), "it is cut short, and says not whose it is");
  }
}

TEST(TimelineStory, CountsRecordsThatHadNoRoom) {
  FileHeader header;
  header.written = 1003;
  header.capacity = 3;
  Story story;
  EXPECT_FALSE(add_file(story, file_of(header, std::vector<Octets64>(3), false)));
  EXPECT_EQ(story.processes.front().dropped, 1000U);
  EXPECT_EQ(story.processes.front().capacity, 3U);
  // Another thread lost none.
  EXPECT_FALSE(add_file(story, file_of({}, std::vector<Octets64>(2))));
  EXPECT_EQ(story.processes.front().capacity, 3U);
  EXPECT_EQ(story.processes.front().cut, 0U);
}

TEST(TimelineStory, AFileWithoutHeaderWasBegunOnly) {
  EXPECT_TRUE(is_unfinished({}));
  EXPECT_TRUE(is_unfinished(std::vector<std::uint8_t>(100)));
  EXPECT_TRUE(is_unfinished(std::vector<std::uint8_t>(2 * kHeaderBytes)));
  EXPECT_FALSE(is_unfinished(std::vector<std::uint8_t>(2 * kHeaderBytes, 'x')));
  EXPECT_FALSE(is_unfinished(std::vector<std::uint8_t>(100, 'x')));
  EXPECT_FALSE(is_unfinished(file_of({}, {})));
}

TEST(TimelineStory, ProcessesOfTwoContainersMayHaveOneNumber) {
  FileHeader header;
  header.process = 1;
  header.process_began = 1000;
  Story story;
  EXPECT_FALSE(add_file(story, file_of(header, {})));
  EXPECT_FALSE(add_file(story, file_of(header, {})));
  EXPECT_EQ(story.processes.size(), 1U);
  header.process_began = 1001;
  EXPECT_FALSE(add_file(story, file_of(header, {})));
  EXPECT_EQ(story.processes.size(), 2U);
}

Record message_of(Op op, std::uint32_t length, std::uint64_t end) {
  Record out{
      .kind = Kind::kMessage, .op = op, .connection = 1, .end_offset = end, .length = length};
  out.set_times(kNever, {kNever, 100, kNever, 110, kNever, kNever});
  return out;
}

// There is no file of the other end.
TEST(TimelineStory, ReadsOfThePeerCountWithoutTheirRequests) {
  Connection connection;
  connection.number = 1;
  Story story;
  EXPECT_FALSE(
      add_file(story, file_of({}, {std::bit_cast<Octets64>(connection),
                                   std::bit_cast<Octets64>(message_of(Op::kWrite, 0, 20)),
                                   std::bit_cast<Octets64>(message_of(Op::kRead, 0, 70)),
                                   std::bit_cast<Octets64>(message_of(Op::kFetchAdd, 0, 140))})));
  match(story);
  ASSERT_EQ(story.items.size(), 3U);
  EXPECT_EQ(story.items[0].record.kind, Kind::kNone);
  EXPECT_EQ(story.items[1].record.kind, Kind::kMessage);
  EXPECT_EQ(story.items[2].record.kind, Kind::kMessage);
}

// A file of connections keeps the last ones.
TEST(TimelineStory, TheLastConnectionsAreMatchedWhereTheFirstHadNoRoom) {
  std::vector<Octets64> here, there;
  for (std::uint32_t i = 1; i <= 3; ++i) {
    Connection end;
    end.number = i;
    end.start = i;
    end.local_port = 10;
    end.peer_port = 20;
    if (i != 1) here.push_back(std::bit_cast<Octets64>(end));
    std::swap(end.local_port, end.peer_port);
    there.push_back(std::bit_cast<Octets64>(end));
  }
  FileHeader header;
  header.process = 1;
  header.written = 3;
  header.capacity = 2;
  Story story;
  EXPECT_FALSE(add_file(story, file_of(header, here, false)));
  header = {};
  header.process = 2;
  EXPECT_FALSE(add_file(story, file_of(header, there)));
  match(story);
  for (const ConnectionItem& one : story.connections) {
    if (one.process == 1 && one.connection.number == 1) {
      EXPECT_EQ(one.peer, kNobody);
    } else {
      ASSERT_NE(one.peer, kNobody);
      EXPECT_EQ(story.connections[one.peer].connection.number, one.connection.number);
    }
  }
}

TEST(TimelineStory, OctetsOfAnyKindAreNoCrash) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Octets64> records(20);
    for (Octets64& one : records) {
      for (std::uint8_t& octet : one) octet = static_cast<std::uint8_t>(random());
      one[0] = static_cast<std::uint8_t>(random() % 7);
    }
    Story story;
    EXPECT_FALSE(add_file(story, file_of({}, records)));
    match(story);
    const Clocks clocks(story);
    static_cast<void>(as_perfetto(picture_of(story, clocks)));
    static_cast<void>(phases_of(story, clocks));
  }
}

// --- clocks ---

TEST(TimelineClocks, TheDifferenceIsWithinItsBound) {
  std::mt19937 random(3);
  for (const double drift : {0.0, 40e-6, -80e-6}) {
    for (const double offset : {0.0, 5e12, -3e9}) {
      std::vector<Delay> there, back;
      for (std::uint64_t i = 0; i < 5000; ++i) {
        const std::uint64_t t = 1'000'000'000'000 + i * 2'000'000;
        const auto other = [&](std::uint64_t at) {
          return at + static_cast<std::uint64_t>(std::llround(
                          offset + drift * static_cast<double>(at - 1'000'000'000'000)));
        };
        there.push_back({t, other(t + 20'000 + random() % 300'000)});
        back.push_back({other(t), t + 20'000 + random() % 300'000});
      }
      const Difference found = compare_clocks(there, back);
      EXPECT_NEAR(found.offset_ns, offset, found.bound_ns + 1000);
      EXPECT_LT(found.bound_ns, 40'000);
      EXPECT_NEAR(found.drift, drift, 5e-6);
      EXPECT_EQ(found.messages, 10'000U);
    }
  }
}

TEST(TimelineClocks, AShortTimeHasNoDrift) {
  const std::vector<Delay> there = {{1000, 6100}, {2000, 7010}};
  const std::vector<Delay> back = {{6500, 1510}, {7500, 2900}};
  const Difference found = compare_clocks(there, back);
  EXPECT_EQ(found.drift, 0);
  EXPECT_NEAR(found.offset_ns, 5000, 10.5);
  EXPECT_NEAR(found.bound_ns, 10, 0.5);
}

TEST(TimelineClocks, OtherMachinesAreBroughtToTheClockOfTheFirst) {
  Scene scene;
  const std::size_t a = scene.process("a", "one");
  const std::size_t b = scene.process("b", "two");
  constexpr std::uint64_t kMore = 7'000'000;
  scene.connect(a, b);
  scene.send(a, b, 64, {.posted = 100, .placed = 200 + kMore});
  scene.send(b, a, 64, {.posted = 300 + kMore, .placed = 400});
  const Story story = scene.story();
  const Clocks clocks(story);
  ASSERT_EQ(clocks.machines().size(), 2U);
  EXPECT_TRUE(clocks.machines()[1].known);
  EXPECT_NEAR(static_cast<double>(clocks.common(b, 200 + kMore)), 200, 100);
  EXPECT_EQ(clocks.common(a, 200), 200U);
  EXPECT_EQ(clocks.common(b, kNever), kNever);
}

// Ten days lie between their times, and one clock is fast: what counts for the drift is the time by
// the clock of the first one.
TEST(TimelineClocks, TheOffsetIsNotTakenForTimeInWhichTheClocksDrifted) {
  constexpr std::uint64_t kDays = 10ULL * 86'400 * 1'000'000'000;
  constexpr std::uint64_t kDelay = 20'000;
  for (const bool first_is_later : {false, true}) {
    const auto first = [&](std::uint64_t at) { return at + (first_is_later ? kDays : 0); };
    const auto other = [&](std::uint64_t at) {
      return at + at / 25'000 + (first_is_later ? 0 : kDays);
    };
    Scene scene;
    const std::size_t a = scene.process("a", "one");
    const std::size_t b = scene.process("b", "two");
    scene.connect(a, b);
    std::uint64_t last = 1'000'000'000;
    for (int i = 0; i < 300; ++i, last += 10'000'000) {
      scene.send(a, b, 64, {.posted = first(last), .placed = other(last + kDelay)});
      scene.send(b, a, 64, {.posted = other(last), .placed = first(last + kDelay)});
    }
    const Story story = scene.story();
    const Clocks clocks(story);
    for (std::uint64_t at = 1'000'000'000; at <= last; at += 500'000'000) {
      const auto off = static_cast<std::int64_t>(clocks.common(b, other(at)) - first(at));
      EXPECT_LE(std::abs(off), 2 * static_cast<std::int64_t>(kDelay))
          << first_is_later << " " << at;
    }
  }
}

// The sender was interrupted before it noted that its octets were out.
TEST(TimelineClocks, OctetsMayArriveBeforeTheyAreNotedAsOut) {
  Scene scene;
  const std::size_t a = scene.process("a", "one");
  const std::size_t b = scene.process("b", "two");
  scene.connect(a, b);
  scene.send(a, b, 64, {.posted = 100, .out = 5000, .completed = 6000, .placed = 200});
  scene.send(b, a, 64, {.posted = 300, .placed = 400});
  const Story story = scene.story();
  const Difference found = Clocks(story).machines().at(1).difference;
  EXPECT_LE(std::abs(found.offset_ns), found.bound_ns);
  EXPECT_LE(found.bound_ns, 100);
}

// --- pictures ---

TEST(TimelinePicture, RequestsThatOverlapHaveRowsOfTheirOwn) {
  Scene scene;
  const std::size_t a = scene.process("a");
  const std::size_t b = scene.process("b");
  scene.connect(a, b);
  for (std::uint64_t i = 0; i < 3; ++i)
    scene.send(a, b, 64, {.posted = 100 + i, .polled = 300 + i, .placed = 200 + i});
  const Story story = scene.story();
  const Picture picture = picture_of(story, Clocks(story));
  std::size_t rows = 0;
  for (const Track& track : picture.tracks)
    if (track.name.find("requests") != std::string::npos) ++rows;
  EXPECT_EQ(rows, 3U);
  // Each slice lies in those that are open on its track, or behind them.
  std::vector<std::vector<const Slice*>> open(picture.tracks.size());
  for (const Slice& slice : picture.slices) {
    auto& stack = open[slice.track];
    while (!stack.empty() && stack.back()->end <= slice.begin) stack.pop_back();
    if (!stack.empty()) {
      EXPECT_LE(slice.end, stack.back()->end) << slice.name;
    }
    stack.push_back(&slice);
  }
}

// One that ends leaves its file to another.
TEST(TimelinePicture, CallsOfAFileAreInTheRowsOfTheirThreads) {
  FileHeader header;
  header.thread = 7;
  std::vector<Octets64> records;
  for (const std::uint32_t thread : {0U, 7U, 8U, 9U, 8U}) {
    Call call;
    call.thread = thread;
    call.start = 100 * records.size();
    records.push_back(std::bit_cast<Octets64>(call));
  }
  Story story;
  EXPECT_FALSE(add_file(story, file_of(header, records)));
  header.thread = 8;
  EXPECT_FALSE(add_file(story, file_of(header, {records.front()})));
  const Picture picture = picture_of(story, Clocks(story));
  std::vector<std::uint32_t> rows;
  for (const Track& one : picture.tracks) rows.push_back(one.thread);
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{7, 8, 9}));
  ASSERT_EQ(picture.slices.size(), 6U);
  for (const Slice& one : picture.slices) {
    if (one.begin == 0) continue;  // of either file
    EXPECT_EQ(one.track, one.begin == 100 ? 0U : one.begin == 300 ? 2U : 1U) << one.begin;
  }
}

TEST(TimelinePicture, JsonIsQuoted) {
  Scene scene;
  scene.connect(scene.process("a \"b\\\n\xff"), scene.process("c"));
  const Story story = scene.story();
  const std::string json = as_json(picture_of(story, Clocks(story)));
  EXPECT_NE(json.find(R"(a \"b\\??)"), std::string::npos) << json;
}

}  // namespace
}  // namespace weft::timeline
