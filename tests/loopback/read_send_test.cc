// ReadSender: ranges of files to a connected peer, by one request each.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/read_send.h>
#include <weft/system_error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>

#include "support/weft_side.h"

namespace weft::test {
namespace {

constexpr std::size_t kFileBytes = 3U << 20U;

std::vector<std::uint8_t> octets_from(std::uint64_t offset, std::size_t count) {
  std::vector<std::uint8_t> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::uint8_t>((offset + i) * 7 + (offset + i) / 251);
  }
  return out;
}

// A file with those octets.
class File {
 public:
  explicit File(std::size_t bytes = kFileBytes) {
    std::string name = testing::TempDir() + "read_send_XXXXXX";
    fd = mkostemp(name.data(), O_CLOEXEC);
    const auto octets = octets_from(0, bytes);
    if (fd < 0 || write(fd, octets.data(), bytes) != static_cast<ssize_t>(bytes)) {
      throw Failure("cannot write a file");
    }
    write_only = open(name.c_str(), O_WRONLY | O_CLOEXEC);
    direct = open(name.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);  // not every file system has it
    unlink(name.c_str());
  }
  ~File() {
    for (const int one : {fd, write_only, direct}) {
      if (one >= 0) close(one);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd = -1, write_only = -1, direct = -1;
};

constexpr std::size_t kTargetBytes = 4U << 20U;

// `a` sends to `b`.
struct World {
  explicit World(const ReadSenderOptions& options = {}, std::uint32_t max_send_wr = 64)
      : a(host), b(host), to(host, kTargetBytes) {
    auto made = ReadSender::create(host.pd, options);
    if (!made && (made.error() == Error::kUnsupported || system_errno(made.error()) == ENOSYS ||
                  system_errno(made.error()) == EPERM)) {
      return;
    }
    sender = must(std::move(made), "create a sender");
    QpOptions q;
    q.send_cq = q.recv_cq = sender->completion_queue();
    q.max_send_wr = max_send_wr;
    a.qp = must(host.pd->create_qp(q), "create a QP");
    connect(host, a, host, b);
  }
  [[nodiscard]] ReadSend write(int fd, std::uint64_t offset, std::uint64_t bytes,
                               std::size_t at = 0) {
    ReadSend out;
    out.wr_id = ++last_id;
    out.fd = fd;
    out.offset = offset;
    out.bytes = bytes;
    out.remote_addr = to.to(at);
    out.rkey = to.rkey();
    return out;
  }
  ReadSendCompletion run(const ReadSend& request) {
    const auto handle = must(sender->post(a.qp, request), "post");
    const auto done = must(sender->wait(handle, kPatience), "wait");
    EXPECT_EQ(done.handle, handle);
    EXPECT_EQ(done.work.wr_id, request.wr_id);
    return done;
  }
  // What was written is there once a Read behind it is answered.
  void settle() {
    Memory probe(host, 8);
    post(*a.qp, wr_read(0, to.rkey(), to.to()), {probe.sge()});
    ReadSendCompletion one;
    if (!eventually([&] { return sender->poll({&one, 1}) == 1; })) throw Failure("no Read");
    EXPECT_EQ(one.handle, 0U);
    EXPECT_EQ(one.work.op, WcOp::kRead);
    EXPECT_EQ(one.work.status, WcStatus::kSuccess);
  }
  Host host;
  Endpoint a, b;
  Memory to;
  std::unique_ptr<ReadSender> sender;
  std::uint64_t last_id = 0;
};

#define SKIP_WITHOUT_URING(world) \
  if ((world).sender == nullptr) GTEST_SKIP() << "no io_uring here"

TEST(ReadSender, AWriteBringsTheRange) {
  World w;
  SKIP_WITHOUT_URING(w);
  const File file;
  for (const int fd : {file.fd, file.direct}) {
    if (fd < 0) continue;
    for (const std::size_t count : {1UL, 4095UL, 4096UL, 262'144UL, 1'000'003UL, 3'000'000UL}) {
      const auto done = w.run(w.write(fd, 145'001, count, 3));
      ASSERT_EQ(done.work.status, WcStatus::kSuccess) << count;
      EXPECT_EQ(done.work.op, WcOp::kWrite);
      EXPECT_EQ(done.work.qp_num, w.a.qp->number());
      w.settle();
      ASSERT_EQ(w.to.copy(3, count), octets_from(145'001, count)) << count;
    }
  }
  EXPECT_TRUE(w.to.guards_intact());
}

TEST(ReadSender, ManyAreUnderWayAndEachCompletesOnce) {
  // More work requests than the send queue has room for.
  World w({.segments = 12, .segments_per_qp = 12}, 4);
  SKIP_WITHOUT_URING(w);
  const File file;
  constexpr std::size_t kRequests = 60;
  constexpr std::size_t kEach = 61'111;
  std::map<ReadSendHandle, std::uint64_t> posted;
  for (std::size_t i = 0; i < kRequests; ++i) {
    const auto request = w.write(file.fd, i * 13, kEach, i * kEach);
    posted[must(w.sender->post(w.a.qp, request), "post")] = request.wr_id;
  }
  EXPECT_EQ(posted.size(), kRequests);
  std::array<ReadSendCompletion, 8> done;
  ASSERT_TRUE(eventually([&] {
    const std::size_t count = w.sender->poll(done);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(done[i].work.status, WcStatus::kSuccess);
      EXPECT_EQ(posted[done[i].handle], done[i].work.wr_id);
      EXPECT_EQ(posted.erase(done[i].handle), 1U);
    }
    return posted.empty();
  }));
  w.settle();
  for (std::size_t i = 0; i < kRequests; ++i) {
    ASSERT_EQ(w.to.copy(i * kEach, kEach), octets_from(i * 13, kEach)) << i;
  }
}

TEST(ReadSender, ImmediateDataComesBehindTheRangeAndInOrder) {
  World w;
  SKIP_WITHOUT_URING(w);
  const File file;
  constexpr std::uint64_t kImmediates = 5;
  constexpr std::size_t kEach = 700'001;
  post_empty_recvs(*w.b.qp, 100, kImmediates);
  for (std::uint64_t i = 0; i < kImmediates; ++i) {
    ReadSend request = w.write(file.fd, i, kEach, i * kEach);
    request.op = SendOp::kWriteImm;
    request.imm_data = i << 32U;
    request.solicited = i == 2;
    static_cast<void>(must(w.sender->post(w.a.qp, request), "post"));
  }
  std::array<ReadSendCompletion, 8> done;
  std::size_t completed = 0;
  for (std::uint64_t i = 0; i < kImmediates; ++i) {
    WorkCompletion wc;
    ASSERT_TRUE(eventually([&] {
      completed += w.sender->poll(done);
      return w.b.recv_cq->poll({&wc, 1}) == 1;
    }));
    EXPECT_EQ(wc.op, WcOp::kRecvWithImm);
    EXPECT_EQ(wc.imm_data, i << 32U);
    // All of it is there when its number comes.
    ASSERT_EQ(w.to.copy(i * kEach, kEach), octets_from(i, kEach)) << i;
  }
  ASSERT_TRUE(eventually([&] { return (completed += w.sender->poll(done)) == kImmediates; }));
}

TEST(ReadSender, ASendIsOneMessage) {
  World w;
  SKIP_WITHOUT_URING(w);
  const File file;
  post_recv(*w.b.qp, 1, {w.to.sge()});
  ReadSend request = w.write(file.fd, 5, 262'144);
  request.op = SendOp::kSend;
  request.solicited = true;
  EXPECT_EQ(w.run(request).work.op, WcOp::kSend);
  const auto wc = take(*w.b.recv_cq);
  EXPECT_EQ(wc.op, WcOp::kRecv);
  EXPECT_EQ(wc.byte_len, 262'144U);
  EXPECT_TRUE(has(wc.flags, WcFlags::kSolicited));
  EXPECT_EQ(w.to.copy(0, 262'144), octets_from(5, 262'144));
  request.bytes = 262'145;  // a segment and one octet
  EXPECT_EQ(w.sender->post(w.a.qp, request).error(), Error::kInvalidArgument);
}

TEST(ReadSender, ADiskErrorComesWithItsErrnoAndTheConnectionGoesOn) {
  World w;
  SKIP_WITHOUT_URING(w);
  const File file;
  const auto failed = w.run(w.write(file.write_only, 0, 1'000'000));
  EXPECT_EQ(failed.work.status, WcStatus::kLocalAccess);
  EXPECT_EQ(failed.disk_error, EBADF);
  EXPECT_EQ(w.run(w.write(file.fd, 0, 1000)).work.status, WcStatus::kSuccess);
}

TEST(ReadSender, AFileThatIsShorterIsAnErrorAndNobodyIsTold) {
  World w;
  SKIP_WITHOUT_URING(w);
  const File file;
  post_empty_recvs(*w.b.qp, 100, 1);
  ASSERT_EQ(ftruncate(file.fd, 1'000'000), 0);
  for (const SendOp op : {SendOp::kWrite, SendOp::kWriteImm, SendOp::kSend}) {
    ReadSend request = w.write(file.fd, 900'000, 200'000);
    request.op = op;
    const auto done = w.run(request);
    EXPECT_EQ(done.work.status, WcStatus::kLocalAccess);
    EXPECT_EQ(done.disk_error, ENODATA);
  }
  w.settle();
  EXPECT_TRUE(quiet(*w.b.recv_cq));
  EXPECT_EQ(w.b.qp->state(), QpState::kRts);
}

TEST(ReadSender, WhatCannotWorkIsRefused) {
  World w({.max_requests = 1});
  SKIP_WITHOUT_URING(w);
  const File file;
  const auto refused = [&](const ReadSend& request) {
    const auto posted = w.sender->post(w.a.qp, request);
    return posted ? Error{} : posted.error();
  };
  EXPECT_EQ(refused(w.write(-1, 0, 10)), Error::kInvalidArgument);
  EXPECT_EQ(refused(w.write(file.fd, 0, 0)), Error::kInvalidArgument);
  EXPECT_EQ(refused(w.write(file.fd, ~std::uint64_t{0} - 5, 10)), Error::kInvalidArgument);
  ReadSend request = w.write(file.fd, 0, 10);
  request.op = SendOp::kRead;
  EXPECT_EQ(refused(request), Error::kInvalidArgument);
  request.op = SendOp::kWrite;
  request.remote_addr = ~std::uint64_t{0} - 8;
  EXPECT_EQ(refused(request), Error::kInvalidArgument);  // beyond the last TO by one
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(refused(w.write(ends[0], 0, 10)), Error::kInvalidArgument);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(w.sender->post(nullptr, w.write(file.fd, 0, 10)).error(), Error::kInvalidArgument);
  const auto handle = must(w.sender->post(w.a.qp, w.write(file.fd, 0, kFileBytes)), "post");
  EXPECT_EQ(refused(w.write(file.fd, 0, 10)), Error::kNoSpace);
  EXPECT_EQ(must(w.sender->wait(handle), "wait").work.status, WcStatus::kSuccess);
  EXPECT_EQ(w.sender->wait(handle).error(), Error::kNotFound);  // handed out
  EXPECT_EQ(w.sender->wait(0).error(), Error::kNotFound);

  const auto options = [&](ReadSenderOptions o) {
    return ReadSender::create(w.host.pd, o).error();
  };
  EXPECT_EQ(options({.segment_bytes = 5000}), Error::kInvalidArgument);
  EXPECT_EQ(options({.segments = 1}), Error::kInvalidArgument);
  EXPECT_EQ(ReadSender::create(nullptr).error(), Error::kInvalidArgument);
}

TEST(ReadSender, AskingDoesNotWait) {
  World w;
  SKIP_WITHOUT_URING(w);
  const File file;
  const auto handle = must(w.sender->post(w.a.qp, w.write(file.fd, 0, 1'000'000)), "post");
  std::optional<ReadSendCompletion> done;
  ASSERT_TRUE(eventually([&] {
    const auto asked = w.sender->wait(handle, std::chrono::nanoseconds(0));
    if (asked) {
      done = *asked;
    } else {
      EXPECT_EQ(asked.error(), Error::kTimedOut);
    }
    return done.has_value();
  }));
  EXPECT_EQ(done->work.status, WcStatus::kSuccess);
}

TEST(ReadSender, TheDescriptorWakesASleeper) {
  World w;
  SKIP_WITHOUT_URING(w);
  const File file;
  for (int round = 0; round < 20; ++round) {
    static_cast<void>(must(w.sender->post(w.a.qp, w.write(file.fd, 0, 1'000'000)), "post"));
    ReadSendCompletion done;
    for (;;) {
      if (w.sender->poll({&done, 1}) == 1) break;
      w.sender->arm();
      if (w.sender->poll({&done, 1}) == 1) break;
      pollfd one{.fd = w.sender->fd(), .events = POLLIN, .revents = 0};
      const int ready = poll(&one, 1, static_cast<int>(kPatience.count()));
      ASSERT_TRUE(ready == 1 || (ready < 0 && errno == EINTR));
    }
    EXPECT_EQ(done.work.status, WcStatus::kSuccess);
  }
}

TEST(ReadSender, WhatThePeerCannotTakeFailsEachRequestOnce) {
  World w;
  SKIP_WITHOUT_URING(w);
  const File file;
  std::map<ReadSendHandle, int> seen;
  for (int i = 0; i < 10; ++i) {
    ReadSend request = w.write(file.fd, 0, 1'000'000);
    if (i == 3) request.rkey ^= 0x5a00;
    seen[must(w.sender->post(w.a.qp, request), "post")] = 0;
  }
  std::array<ReadSendCompletion, 8> done;
  std::size_t failures = 0;
  std::size_t all = 0;
  ASSERT_TRUE(eventually([&] {
    const std::size_t count = w.sender->poll(done);
    for (std::size_t i = 0; i < count; ++i) {
      ++seen[done[i].handle];
      EXPECT_EQ(done[i].disk_error, 0);
      if (done[i].work.status != WcStatus::kSuccess) ++failures;
    }
    return (all += count) == 10;
  }));
  EXPECT_TRUE(eventually([&] { return w.a.qp->state() == QpState::kError; }));
  for (const auto& [handle, times] : seen) EXPECT_EQ(times, 1);
  EXPECT_LE(failures, 10U);
  // On a queue pair in the error state too.
  const auto late = w.run(w.write(file.fd, 0, 1000));
  EXPECT_NE(late.work.status, WcStatus::kSuccess);
  EXPECT_EQ(late.disk_error, 0);
}

TEST(ReadSender, EndsWithRequestsUnderWay) {
  for (int round = 0; round < 10; ++round) {
    World w;
    SKIP_WITHOUT_URING(w);
    const File file;
    for (int i = 0; i < 10; ++i) {
      static_cast<void>(must(w.sender->post(w.a.qp, w.write(file.fd, 0, kFileBytes)), "post"));
    }
    ReadSendCompletion done;
    for (int i = 0; i < round; ++i) w.sender->poll({&done, 1});
    w.sender.reset();
    // The segments are gone, so the peer sees no octet of later use; the target stays within
    // bounds.
    EXPECT_TRUE(w.to.guards_intact());
  }
}

TEST(ReadSender, TwoConnectionsShareASender) {
  World w({.segments = 4, .segments_per_qp = 2});
  SKIP_WITHOUT_URING(w);
  const File file;
  Endpoint c(w.host);
  Endpoint d(w.host);
  QpOptions q;
  q.send_cq = q.recv_cq = w.sender->completion_queue();
  c.qp = must(w.host.pd->create_qp(q), "create a QP");
  connect(w.host, c, w.host, d);
  std::map<std::uint32_t, int> of_qp;
  for (int i = 0; i < 6; ++i) {
    for (const auto& qp : {w.a.qp, c.qp}) {
      static_cast<void>(must(w.sender->post(qp, w.write(file.fd, 0, 1'000'000)), "post"));
    }
  }
  std::array<ReadSendCompletion, 8> done;
  std::size_t all = 0;
  ASSERT_TRUE(eventually([&] {
    const std::size_t count = w.sender->poll(done);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(done[i].work.status, WcStatus::kSuccess);
      ++of_qp[done[i].work.qp_num];
    }
    return (all += count) == 12;
  }));
  EXPECT_EQ(of_qp[w.a.qp->number()], 6);
  EXPECT_EQ(of_qp[c.qp->number()], 6);
}

TEST(ReadSender, SegmentsComeFromAHeapThatIsGiven) {
  DeviceMemoryOptions options;
  options.bytes = 1U << 20U;
  const auto heap = must(DeviceMemoryHeap::create(options), "create a heap");
  World w({.segments = 4, .heap = heap});
  SKIP_WITHOUT_URING(w);
  EXPECT_EQ(heap->stats().segments, 4U);
  const File file;
  EXPECT_EQ(w.run(w.write(file.fd, 0, kFileBytes)).work.status, WcStatus::kSuccess);
  EXPECT_EQ(ReadSender::create(w.host.pd, {.heap = heap}).error(), Error::kNoMemory);
  w.sender.reset();
  EXPECT_EQ(heap->stats().segments, 0U);
}

}  // namespace
}  // namespace weft::test
