// A Weft program on the workstation and the agent on a board, joined by a tap device: whatever
// board_test.py starts. WEFT_BOARD_TAP=1 says that it is there.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "agent_protocol.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "support/weft_side.h"

namespace weft::boards {
namespace {

using test::must;
using Type = ConnectionEvent::Type;

constexpr test::milliseconds kBoardPatience{20000};

struct Report {
  AgentOp op{};
  std::uint32_t number = 0, status = 0;
  std::uint64_t value = 0;
};

struct Wish {
  bool crc = true;
  bool markers = false;  // in what the workstation receives
  bool listen = true;    // the board connects; otherwise it is connected to
};

// A connection to the agent, commands to it, and memory that it may write and read.
class Board {
 public:
  explicit Board(const Wish& wish)
      : host_(config(wish)), side_(host_), memory_(host_, 256U << 10U), reports_(host_, 4 * 64) {
    ConnectionParams params;
    params.private_data = {'h', 'i'};
    if (wish.listen) {
      accept(params);
    } else {
      connect(params);
    }
    for (std::uint64_t i = 0; i < 4; ++i) post_report_buffer(i);
  }
  ~Board() {
    if (side_.connection != nullptr) side_.connection->abort();
  }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  test::Memory& memory() { return memory_; }
  [[nodiscard]] std::uint32_t stag() const { return stag_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] ConnectionInfo info() const { return side_.connection->info(); }
  test::Endpoint& side() { return side_; }

  void command(AgentOp op, std::uint32_t local, std::uint32_t length, std::uint64_t arg = 0,
               std::uint32_t stag = 0, std::uint64_t to = 0) {
    std::uint8_t bytes[kCommandSize];
    store_be32(bytes, static_cast<std::uint32_t>(op));
    store_be32(bytes + 4, stag);
    store_be64(bytes + 8, to);
    store_be32(bytes + 16, length);
    store_be32(bytes + 20, local);
    store_be64(bytes + 24, arg);
    store_be32(bytes + 32, ++number_);
    SendWr wr = test::wr_send(1000, SendFlags::kSignaled | SendFlags::kInline);
    const Sge sge{reinterpret_cast<std::uintptr_t>(bytes), sizeof bytes, 0};
    wr.sges = {&sge, 1};
    must(side_.qp->post_send(wr), "send a command");
    test::take_success(*side_.send_cq, 1000);
  }

  Report report() {
    const WorkCompletion wc = take_receive();
    if (wc.byte_len != kReportSize)
      throw test::Failure("expected a report: " + test::to_string(wc));
    const std::uint8_t* at = reports_.data() + wc.wr_id * 64;
    Report out;
    out.op = static_cast<AgentOp>(load_be32(at));
    out.number = load_be32(at + 4);
    out.status = load_be32(at + 8);
    out.value = load_be64(at + 12);
    post_report_buffer(wc.wr_id);
    if (out.number != number_) throw test::Failure("a report of another command");
    return out;
  }

  Report run(AgentOp op, std::uint32_t local, std::uint32_t length, std::uint64_t arg = 0,
             std::uint32_t stag = 0, std::uint64_t to = 0) {
    command(op, local, length, arg, stag, to);
    return report();
  }

  WorkCompletion take_receive() {
    const auto wc = test::next(*side_.recv_cq, kBoardPatience);
    if (!wc) throw test::Failure("nothing came from the board");
    return *wc;
  }
  // The octets of a Send; its buffer is posted again.
  [[nodiscard]] std::vector<std::uint8_t> received(const WorkCompletion& wc) {
    std::vector<std::uint8_t> octets = reports_.copy(wc.wr_id * 64, wc.byte_len);
    post_report_buffer(wc.wr_id);
    return octets;
  }

  void post_report_buffer(std::uint64_t i) {
    test::post_recv(*side_.qp, i, {reports_.sge(i * 64, 64)});
  }

 private:
  static Config config(const Wish& wish) {
    Config config = test::plain_config();
    config.crc = wish.crc;
    config.markers = wish.markers;
    config.nudge_wait = std::chrono::milliseconds(50);
    return config;
  }

  void accept(const ConnectionParams& params) {
    listener_ = must(host_.device->create_listener(side_.events), "create a listener");
    // The port is fixed, and connections of the case before may still be fading away.
    const auto where = must(SocketAddress::parse("10.77.0.1:" + std::to_string(kPort)), "address");
    must(listener_->bind(where, true), "bind");
    must(listener_->listen(0), "listen");
    const auto request = test::next_event(*side_.events, kBoardPatience);
    if (!request || request->type != Type::kConnectRequest) {
      throw test::Failure("the board did not connect");
    }
    read_agent_data(request->private_data);
    side_.connection = request->connection;
    must(side_.connection->accept(side_.qp, params), "accept");
    test::take_event(*side_.events, Type::kEstablished);
    listener_->close();
  }

  void connect(const ConnectionParams& params) {
    side_.connection = must(host_.device->create_connection(side_.events), "create a connection");
    const auto to = must(SocketAddress::parse("10.77.0.2:" + std::to_string(kPort)), "address");
    must(side_.connection->connect(side_.qp, to, params), "connect");
    const auto event = test::next_event(*side_.events, kBoardPatience);
    if (!event || event->type != Type::kEstablished) {
      throw test::Failure(event ? "the board did not accept: event " +
                                      std::to_string(static_cast<int>(event->type))
                                : "the board is silent");
    }
    read_agent_data(event->private_data);
  }

  void read_agent_data(const std::vector<std::uint8_t>& data) {
    if (data.size() != kAgentDataSize || load_be32(data.data()) != kMagic) {
      throw test::Failure("these are not the agent's private data");
    }
    stag_ = load_be32(data.data() + 4);
    size_ = load_be32(data.data() + 8);
  }

  test::Host host_;
  test::Endpoint side_;
  test::Memory memory_;
  test::Memory reports_;
  std::shared_ptr<Listener> listener_;
  std::uint32_t stag_ = 0, size_ = 0, number_ = 0;
};

class BoardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("WEFT_BOARD_TAP") == nullptr) {
      GTEST_SKIP() << "needs a board on a tap device: run tests/boards/board_test.py";
    }
  }
};

std::vector<std::uint8_t> pattern_of(std::uint64_t seed, std::uint32_t length) {
  std::vector<std::uint8_t> out(length);
  for (std::uint32_t i = 0; i < length; ++i) out[i] = pattern(seed, i);
  return out;
}

// The board writes, is written to, reads, is read from, sends and rings; every octet is compared.
void exchange_everything(Board& board, std::uint64_t seed) {
  const std::uint32_t n = board.size();
  test::Memory& mine = board.memory();
  ASSERT_EQ(board.run(AgentOp::kFill, 0, n, seed).status, 0U);
  ASSERT_EQ(board.run(AgentOp::kWrite, 0, n, 0, mine.rkey(), mine.to()).status, 0U);
  // The report came behind the Write, so the Write has been placed.
  EXPECT_EQ(mine.copy(0, n), pattern_of(seed, n));

  mine.put(n, pattern_of(seed + 1, n));
  SendWr write = test::wr_write(7, board.stag(), 0);
  test::post(*board.side().qp, write, {mine.sge(n, n)});
  test::take_success(*board.side().send_cq, 7);
  const Report sum = board.run(AgentOp::kChecksum, 0, n);
  EXPECT_EQ(sum.value, crc32c(pattern_of(seed + 1, n)));

  mine.put(2 * n, pattern_of(seed + 2, n));
  ASSERT_EQ(board.run(AgentOp::kRead, 0, n, 0, mine.rkey(), mine.to(2 * n)).status, 0U);
  EXPECT_EQ(board.run(AgentOp::kChecksum, 0, n).value, crc32c(pattern_of(seed + 2, n)));

  test::post(*board.side().qp, test::wr_read(8, board.stag(), 0), {mine.sge(3 * n, n)});
  test::take_success(*board.side().send_cq, 8);
  EXPECT_EQ(mine.copy(3 * n, n), pattern_of(seed + 2, n));

  board.command(AgentOp::kSend, 0, 60);
  const WorkCompletion sent = board.take_receive();
  ASSERT_EQ(sent.byte_len, 60U);
  EXPECT_EQ(board.received(sent), pattern_of(seed + 2, 60));
  ASSERT_EQ(board.report().status, 0U);

  board.command(AgentOp::kWriteImm, 0, 1000, 0x1122334455667788, mine.rkey(), mine.to(5 * n));
  const WorkCompletion rung = board.take_receive();
  EXPECT_EQ(rung.op, WcOp::kRecvWithImm);
  EXPECT_EQ(rung.imm_data, 0x1122334455667788U);
  board.post_report_buffer(rung.wr_id);
  EXPECT_EQ(mine.copy(5 * n, 1000), pattern_of(seed + 2, 1000));
  EXPECT_EQ(board.report().status, 0U);
}

struct Setting {
  std::string name;
  Wish wish;
};
class BoardSettings : public BoardTest, public ::testing::WithParamInterface<Setting> {};

TEST_P(BoardSettings, EveryOperationMovesEveryOctet) {
  Board board(GetParam().wish);
  EXPECT_EQ(board.info().crc, GetParam().wish.crc);
  EXPECT_EQ(board.info().markers_received, GetParam().wish.markers);
  exchange_everything(board, 17);
}

INSTANTIATE_TEST_SUITE_P(All, BoardSettings,
                         ::testing::Values(Setting{"BoardConnects", {true, false, true}},
                                           Setting{"BoardConnectsNoCrc", {false, false, true}},
                                           Setting{"BoardConnectsMarkers", {true, true, true}},
                                           Setting{"BoardListens", {true, false, false}},
                                           Setting{"BoardListensNoCrc", {false, false, false}}),
                         [](const auto& setting) { return setting.param.name; });

TEST_F(BoardTest, MarkersBothWays) {
  {
    Board board({});
    ASSERT_EQ(board.run(AgentOp::kMarkers, 0, 0, 1).status, 0U);
  }
  {
    Board board({.crc = true, .markers = true, .listen = true});
    EXPECT_TRUE(board.info().markers_sent);
    EXPECT_TRUE(board.info().markers_received);
    exchange_everything(board, 23);
    ASSERT_EQ(board.run(AgentOp::kMarkers, 0, 0, 0).status, 0U);
  }
}

// What the board's peer must not do ends with a Terminate; the board goes on with the next one.
TEST_F(BoardTest, WrongStagIsAnsweredWithATerminate) {
  {
    Board board({});
    test::post(*board.side().qp, test::wr_write(9, board.stag() ^ 0x100U, 0),
               {board.memory().sge(0, 64)});
    const auto event = test::next_event(*board.side().events, kBoardPatience);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->type, Type::kDisconnected);
  }
  {
    Board board({});
    test::post(*board.side().qp, test::wr_write(9, board.stag(), board.size() - 1),
               {board.memory().sge(0, 2)});
    const auto event = test::next_event(*board.side().events, kBoardPatience);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->type, Type::kDisconnected);
  }
  Board board({});
  exchange_everything(board, 3);
}

TEST_F(BoardTest, TheBoardsOwnWrongStagIsAnsweredAndItComesBack) {
  {
    Board board({});
    board.command(AgentOp::kWrite, 0, 64, 0, board.memory().rkey() ^ 0x100U, board.memory().to());
    const auto event = test::next_event(*board.side().events, kBoardPatience);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->type, Type::kDisconnected);
    EXPECT_TRUE(board.memory().untouched());
  }
  Board board({});
  exchange_everything(board, 5);
}

TEST_F(BoardTest, ClosesInGoodOrder) {
  Board board({});
  board.command(AgentOp::kClose, 0, 0);
  const auto event = test::next_event(*board.side().events, kBoardPatience);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, Type::kDisconnected);
  EXPECT_FALSE(event->error.has_value());
}

TEST_F(BoardTest, TwoConnectionsAtOnce) {
  Board called({});
  Board calling({.crc = true, .markers = false, .listen = false});
  exchange_everything(called, 31);
  exchange_everything(calling, 37);
  exchange_everything(called, 41);
}

TEST_F(BoardTest, CommandOutsideItsMemoryIsRefused) {
  Board board({});
  const Report report = board.run(AgentOp::kFill, board.size() - 4, 8);
  EXPECT_EQ(report.status, kRefused);
  exchange_everything(board, 43);
}

// Nothing stops a stack from growing into what lies below it, so some of it has to be left.
TEST_F(BoardTest, TheStackIsLargeEnough) {
  Board called({});
  Board calling({.crc = true, .markers = true, .listen = false});
  exchange_everything(called, 47);
  exchange_everything(calling, 53);
  const std::uint64_t unused = called.run(AgentOp::kStack, 0, 0).value;
  std::printf("board: %llu octets of the stack were never used\n",
              static_cast<unsigned long long>(unused));
  EXPECT_GE(unused, 256U);
}

// Many Writes, one after the other: what board_test.py measures, and what it breaks off.
TEST_F(BoardTest, Streams) {
  Board board({});
  const std::uint32_t n = board.size();
  ASSERT_EQ(board.run(AgentOp::kFill, 0, n, 71).status, 0U);
  const char* count = std::getenv("WEFT_BOARD_MESSAGES");
  const std::uint64_t messages = count == nullptr ? 20 : std::strtoull(count, nullptr, 10);
  const std::uint64_t before = board.run(AgentOp::kTime, 0, 0).value;
  std::printf("streaming\n");
  std::fflush(stdout);
  ASSERT_EQ(board.run(AgentOp::kStream, 0, n, messages, board.memory().rkey(), board.memory().to())
                .status,
            0U);
  const std::uint64_t after = board.run(AgentOp::kTime, 0, 0).value;
  EXPECT_EQ(board.memory().copy(0, n), pattern_of(71, n));
  std::printf("board: %llu Writes of %u octets in %llu us of its clock\n",
              static_cast<unsigned long long>(messages), n,
              static_cast<unsigned long long>((after - before) / 1000));
}

}  // namespace
}  // namespace weft::boards
