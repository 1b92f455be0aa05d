// The ports behind which wired queue pairs are found: Config::roce_port_min to _max.
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "os/log.h"
#include "roce/qp_number.h"
#include "verbs_wired.h"

namespace weft::verbs::test {
namespace {

constexpr std::size_t kPerPort = roce::kIndexMax - roce::kIndexMin + 1U;

// A device with one port, which nobody else has.
class WiringPorts : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eventually([&] {  // somebody else may take it between our two looks
      const std::uint16_t port = RawListener().address().port();
      if (port < roce::kPortMin) return false;
      config_.roce_port_min = config_.roce_port_max = port;
      host_.emplace(config_);
      first_ = make(*host_).value_or(nullptr);
      return first_ != nullptr;
    }));
  }
  static Result<std::shared_ptr<QueuePair>> make(Host& host, QpType type = QpType::kRc) {
    QpOptions options;
    options.type = type;
    options.max_send_wr = options.max_recv_wr = 1;
    options.send_cq = options.recv_cq = std::move(*host.device->create_cq({}));
    return host.pd->create_qp(options);
  }
  // One that was destroyed may still be with the engine's thread for a moment.
  std::shared_ptr<QueuePair> make_eventually(QpType type = QpType::kRc) {
    std::shared_ptr<QueuePair> out;
    EXPECT_TRUE(eventually([&] {
      out = make(*host_, type).value_or(nullptr);
      return out != nullptr;
    }));
    return out;
  }
  [[nodiscard]] std::uint16_t port() const { return config_.roce_port_min; }

  Config config_ = roce_config();
  std::optional<Host> host_;
  std::shared_ptr<QueuePair> first_;
};

// What is logged until the end of its life.
class Logged {
 public:
  Logged() { EXPECT_TRUE(os::configure_log(LogLevel::kError, path_)); }
  ~Logged() {
    EXPECT_TRUE(os::configure_log(LogLevel::kWarning, ""));
    unlink(path_.c_str());
  }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // For devices that are made meanwhile.
  void take_log_of(Config& config) const {
    config.log = LogLevel::kError;
    config.log_file = path_;
  }

 private:
  const std::string path_ = ::testing::TempDir() + "weft-ports-test." + std::to_string(getpid());
};

TEST_F(WiringPorts, NumbersNamePortsOfTheRange) {
  EXPECT_EQ(roce::split_number(first_->number()).port, port());
  const auto datagrams = make(*host_, QpType::kUd);
  ASSERT_TRUE(datagrams);
  EXPECT_EQ(roce::split_number((*datagrams)->number()).port, port());
}

TEST_F(WiringPorts, APortOfAnotherProcessIsNotShared) {
  Host other(config_);
  const Logged log;
  EXPECT_EQ(make(other).error(), Error::kAddressInUse);
  EXPECT_NE(log.text().find("roce_ports " + std::to_string(port())), std::string::npos);
}

TEST_F(WiringPorts, ARangeThatIsFullIsNamedAndHasRoomAgainLater) {
  std::vector<std::shared_ptr<QueuePair>> qps;
  while (qps.size() + 1 < kPerPort) {
    auto qp = make(*host_);
    ASSERT_TRUE(qp) << qps.size();
    qps.push_back(std::move(*qp));
  }
  const Logged log;
  EXPECT_EQ(make(*host_).error(), Error::kLimitExceeded);
  EXPECT_NE(log.text().find("510 queue pairs behind each"), std::string::npos) << log.text();
  const std::uint32_t number = qps.front()->number();
  qps.erase(qps.begin());
  const auto again = make_eventually();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->number(), number);
}

TEST_F(WiringPorts, EachHasOneQueuePairOfDatagrams) {
  auto datagrams = make(*host_, QpType::kUd);
  ASSERT_TRUE(datagrams);
  const Logged log;
  EXPECT_EQ(make(*host_, QpType::kUd).error(), Error::kLimitExceeded);
  EXPECT_NE(log.text().find("one of them UD"), std::string::npos) << log.text();
  datagrams->reset();
  EXPECT_NE(make_eventually(QpType::kUd), nullptr);
}

// With one descriptor more each time, until there are enough.
TEST(WiringPlace, WithoutDescriptorsTheConfigurationIsNotBlamed) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const Logged log;
  Config config = roce_config();
  log.take_log_of(config);
  const int first_free = dup(STDERR_FILENO);
  ASSERT_GE(first_free, 0);
  close(first_free);
  bool made = false;
  for (rlim_t more = 0; more < 64 && !made; ++more) {
    const rlimit few{static_cast<rlim_t>(first_free) + more, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    made = Device::open(config).has_value();
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(made);
  EXPECT_EQ(log.text().find("no such address"), std::string::npos) << log.text();
}

TEST(WiringPortRange, OneThatCannotBeIsRefusedWithTheDevice) {
  const std::pair<std::uint16_t, std::uint16_t> bad[] = {{40001, 40000}, {32767, 40000}, {0, 0}};
  for (const auto& [first, last] : bad) {
    Config config = roce_config();
    config.roce_port_min = first;
    config.roce_port_max = last;
    EXPECT_EQ(Device::open(config).error(), Error::kInvalidArgument) << first;
  }
}

}  // namespace
}  // namespace weft::verbs::test
