// The pipeline of ReadSend between real files and a link that only notes what it is given.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "readsend/pipeline.h"

namespace weft::readsend {
namespace {

constexpr std::uint32_t kPieceBytes = 8192;

std::uint8_t octet_at(std::uint64_t offset) {
  return static_cast<std::uint8_t>(offset * 7 + offset / 251);
}

// A file whose octets are those of octet_at().
class File {
 public:
  explicit File(std::uint64_t bytes) : fd(memfd_create("readsend", MFD_CLOEXEC)) {
    std::vector<std::uint8_t> all(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) all[i] = octet_at(i);
    EXPECT_EQ(write(fd, all.data(), all.size()), static_cast<ssize_t>(bytes));
  }
  ~File() { close(fd); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int fd;
};

// A "disk" that answers when the test says so: an empty pipe.
class SlowFile {
 public:
  SlowFile() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~SlowFile() {
    close(ends_[0]);
    close(ends_[1]);
  }
  SlowFile(const SlowFile&) = delete;
  SlowFile& operator=(const SlowFile&) = delete;
  [[nodiscard]] int fd() const { return ends_[0]; }
  void answer(std::size_t bytes) const {
    const std::vector<std::uint8_t> octets(bytes, 1);
    EXPECT_EQ(write(ends_[1], octets.data(), bytes), static_cast<ssize_t>(bytes));
  }

 private:
  int ends_[2] = {-1, -1};
};

struct Sent {
  Request* request;
  Piece* piece;
  bool tail;
  std::uint64_t at;
  std::vector<std::uint8_t> octets;
};

class TestLink final : public Link {
 public:
  explicit TestLink(Pipeline& pipeline, unsigned max_pieces = 16)
      : Link(max_pieces), pipeline_(pipeline) {}

  // The network has taken what was posted first.
  void complete_one(bool good = true) {
    Piece* const piece = on_the_way.front();
    on_the_way.erase(on_the_way.begin());
    pipeline_.network_done(*piece, good);
  }
  void complete_all() {
    while (!on_the_way.empty()) complete_one();
  }

  std::size_t no_room = 0;  // post() says so, so many times
  int refusal = 0;          // ... or this
  std::vector<Sent> posted;
  std::vector<Piece*> on_the_way;
  std::vector<Request*> all_sent, all_finished;
  std::size_t segments = 0;  // taken and not given back

 private:
  std::optional<Segment> take_segment(std::uint32_t bytes) override {
    ++segments;
    void* const data = std::aligned_alloc(4096, (bytes + 4095U) / 4096U * 4096U);
    return Segment{static_cast<std::uint8_t*>(data), 0};
  }
  void give_back(const Segment& segment) override {
    --segments;
    std::free(segment.data);
  }
  int post(Request& request, Piece& piece) override {
    if (refusal != 0) return refusal;
    if (no_room != 0) {
      --no_room;
      return EAGAIN;
    }
    Sent one{&request, &piece, piece.is_tail(), piece.at, {}};
    if (!one.tail) one.octets.assign(piece.octets(), piece.octets() + piece.got);
    posted.push_back(std::move(one));
    on_the_way.push_back(&piece);
    return 0;
  }
  void sent(Request& request) override { all_sent.push_back(&request); }
  void finished(Request& request) override { all_finished.push_back(&request); }

  Pipeline& pipeline_;
};

class ReadSendPipeline : public testing::TestWithParam<Disk::Engine> {
 protected:
  void SetUp() override { use_depth(64); }
  void use_depth(unsigned depth) {
    auto made = Disk::create(depth, GetParam());
    if (!made) GTEST_SKIP() << "no io_uring here: errno " << made.error();
    ASSERT_EQ((*made)->engine(), GetParam());
    pipeline.reset();
    disk = std::move(*made);
    pipeline = std::make_unique<Pipeline>(*disk, kPieceBytes);
  }
  // Whether it comes to hold.
  bool run_until(const std::function<bool()>& holds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      pipeline->pump();
      disk->progress();
      if (holds()) return true;
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
  }
  static Request range(int fd, std::uint64_t offset, std::uint64_t bytes) {
    Request out;
    out.fd = fd;
    out.offset = offset;
    out.bytes = bytes;
    return out;
  }
  static Request with_tail(Request request) {
    request.has_tail = true;
    request.order = 1;
    return request;
  }
  std::unique_ptr<Disk> disk;
  std::unique_ptr<Pipeline> pipeline;
};

TEST_P(ReadSendPipeline, EachOctetOfARangeIsPostedOnce) {
  const File file(100'000);
  TestLink link(*pipeline, 4);
  Request request = range(file.fd, 77, 90'001);
  pipeline->submit(link, request);
  ASSERT_TRUE(run_until([&] {
    link.complete_all();
    return !link.all_finished.empty();
  }));
  std::vector<std::uint8_t> got(90'001);
  std::size_t octets = 0;
  for (const Sent& one : link.posted) {
    std::copy(one.octets.begin(), one.octets.end(), got.begin() + static_cast<long>(one.at));
    octets += one.octets.size();
  }
  EXPECT_EQ(octets, got.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], octet_at(77 + i)) << i;
  EXPECT_TRUE(request.complete());
  EXPECT_EQ(link.all_sent.size(), 1U);
  EXPECT_EQ(link.all_finished.size(), 1U);
  EXPECT_EQ(link.segments, 0U);
}

TEST_P(ReadSendPipeline, NoMoreSegmentsAreTakenThanTheLinkMayHave) {
  const File file(40 * kPieceBytes);
  TestLink link(*pipeline, 3);
  Request request = range(file.fd, 0, 40 * kPieceBytes);
  pipeline->submit(link, request);
  std::size_t most = 0;
  ASSERT_TRUE(run_until([&] {
    most = std::max(most, link.segments);
    if (!link.on_the_way.empty()) link.complete_one();
    return !link.all_finished.empty();
  }));
  EXPECT_EQ(most, 3U);
}

TEST_P(ReadSendPipeline, LinksTakeTurnsAtTheDisk) {
  use_depth(4);
  const SlowFile slow;
  const File file(kPieceBytes);
  TestLink busy(*pipeline, 100);
  TestLink other(*pipeline, 100);
  std::vector<Request> many(50, range(slow.fd(), 0, kPieceBytes));
  for (Request& one : many) pipeline->submit(busy, one);
  Request few = range(file.fd, 0, kPieceBytes);
  pipeline->submit(other, few);
  // The disk never has more than four of them, and none of the busy link's is answered.
  EXPECT_TRUE(run_until([&] { return other.posted.size() == 1; }));
  EXPECT_EQ(busy.segments, 3U);
  pipeline->close(busy);
  pipeline->close(other);
  slow.answer(3 * kPieceBytes);
  EXPECT_TRUE(run_until([&] { return disk->pending() == 0; }));
}

TEST_P(ReadSendPipeline, AFileThatEndsEarlierSaysWhere) {
  const File file(3 * kPieceBytes);
  TestLink link(*pipeline, 1);
  Request request = with_tail(range(file.fd, 0, 3 * kPieceBytes));
  pipeline->submit(link, request);
  ASSERT_TRUE(run_until([&] { return link.posted.size() == 1; }));
  ASSERT_EQ(ftruncate(file.fd, kPieceBytes + 10), 0);  // while it is read
  ASSERT_TRUE(run_until([&] {
    link.complete_all();
    return !link.all_finished.empty();
  }));
  EXPECT_EQ(request.error, 0);
  EXPECT_EQ(request.end, kPieceBytes + 10U);
  EXPECT_FALSE(request.complete());
  EXPECT_FALSE(link.posted.back().tail);  // nobody is told that it has come
}

TEST_P(ReadSendPipeline, ADiskErrorIsThatOfItsRequest) {
  const File file(kPieceBytes);
  const int write_only = open("/dev/null", O_WRONLY | O_CLOEXEC);
  TestLink link(*pipeline);
  Request bad = with_tail(range(write_only, 0, 3 * kPieceBytes));
  Request good = with_tail(range(file.fd, 0, kPieceBytes));
  pipeline->submit(link, bad);
  pipeline->submit(link, good);
  ASSERT_TRUE(run_until([&] {
    link.complete_all();
    return link.all_finished.size() == 2;
  }));
  EXPECT_EQ(bad.error, EBADF);
  EXPECT_TRUE(good.complete());
  EXPECT_EQ(link.posted.size(), 2U);  // what the good one has
  EXPECT_EQ(link.segments, 0U);
  close(write_only);
}

TEST_P(ReadSendPipeline, TailsAndMessagesLeaveInTheOrderOfTheirRequests) {
  const SlowFile slow;
  const File file(kPieceBytes);
  TestLink link(*pipeline);
  Request first = with_tail(range(slow.fd(), 0, 100));
  Request second = with_tail(range(file.fd, 0, kPieceBytes));
  Request third = range(file.fd, 0, kPieceBytes);
  third.whole = true;
  third.order = 1;
  Request free = range(file.fd, 0, kPieceBytes);
  for (Request* one : {&first, &second, &third, &free}) pipeline->submit(link, *one);
  // The disk is done with all but the first. Writes do not wait for it.
  ASSERT_TRUE(run_until([&] { return link.posted.size() == 2 && disk->pending() == 1; }));
  EXPECT_EQ(link.all_sent, std::vector<Request*>{&free});
  slow.answer(100);
  ASSERT_TRUE(run_until([&] { return link.all_sent.size() == 4; }));
  EXPECT_EQ(link.all_sent, (std::vector<Request*>{&free, &first, &second, &third}));
  std::vector<Request*> ordered;
  for (const Sent& one : link.posted) {
    if (one.tail || one.request == &third) ordered.push_back(one.request);
  }
  EXPECT_EQ(ordered, (std::vector<Request*>{&first, &second, &third}));
  link.complete_all();
  EXPECT_EQ(link.all_finished.size(), 4U);
}

TEST_P(ReadSendPipeline, WhatTheNetworkHasNoRoomForIsPostedLater) {
  const File file(4 * kPieceBytes);
  TestLink link(*pipeline);
  link.no_room = 7;
  Request request = with_tail(range(file.fd, 0, 4 * kPieceBytes));
  pipeline->submit(link, request);
  ASSERT_TRUE(run_until([&] {
    link.complete_all();
    return !link.all_finished.empty();
  }));
  EXPECT_EQ(link.no_room, 0U);
  EXPECT_TRUE(request.complete());
  EXPECT_EQ(link.posted.size(), 5U);
}

TEST_P(ReadSendPipeline, WhatTheNetworkRefusesFailsOnce) {
  const File file(4 * kPieceBytes);
  TestLink link(*pipeline);
  link.refusal = ENOTCONN;
  Request request = with_tail(range(file.fd, 0, 4 * kPieceBytes));
  pipeline->submit(link, request);
  ASSERT_TRUE(run_until([&] { return !link.all_finished.empty() && disk->pending() == 0; }));
  EXPECT_EQ(request.error, ENOTCONN);
  EXPECT_EQ(link.all_finished.size(), 1U);
  EXPECT_EQ(link.segments, 0U);
}

TEST_P(ReadSendPipeline, AMessageThatDoesNotCompleteEndsItsRequest) {
  const File file(40 * kPieceBytes);
  TestLink link(*pipeline, 2);
  Request request = with_tail(range(file.fd, 0, 40 * kPieceBytes));
  pipeline->submit(link, request);
  ASSERT_TRUE(run_until([&] { return link.posted.size() == 2; }));
  link.complete_one(false);
  ASSERT_TRUE(run_until([&] {
    link.complete_all();
    return !link.all_finished.empty();
  }));
  EXPECT_TRUE(request.net_failed);
  EXPECT_EQ(link.posted.size(), 2U);
  EXPECT_EQ(link.all_finished.size(), 1U);
  EXPECT_EQ(link.segments, 0U);
}

TEST_P(ReadSendPipeline, AClosedLinkKeepsOnlyWhatTheDiskHas) {
  const SlowFile slow;
  const File file(kPieceBytes);
  TestLink link(*pipeline);
  Request read = range(file.fd, 0, kPieceBytes);
  Request waits = range(slow.fd(), 0, kPieceBytes);
  pipeline->submit(link, read);
  pipeline->submit(link, waits);
  ASSERT_TRUE(run_until([&] { return link.posted.size() == 1; }));
  pipeline->close(link);
  EXPECT_EQ(link.segments, 1U);
  EXPECT_TRUE(link.on_disk());
  slow.answer(kPieceBytes);
  ASSERT_TRUE(run_until([&] { return !link.on_disk(); }));
  EXPECT_EQ(link.segments, 0U);
  EXPECT_TRUE(link.all_finished.empty());
}

INSTANTIATE_TEST_SUITE_P(Engines, ReadSendPipeline,
                         testing::Values(Disk::Engine::kUring, Disk::Engine::kThreads),
                         [](const auto& one) {
                           return one.param == Disk::Engine::kUring ? "Uring" : "Threads";
                         });

}  // namespace
}  // namespace weft::readsend
