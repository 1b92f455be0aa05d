#include <sys/syscall.h>
#include <unistd.h>
#include <weft/weft.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include "costs.h"

namespace weft::bench {
namespace {

constexpr std::size_t kBytes = 64;
constexpr std::uint32_t kQueue = 256;
constexpr std::uint32_t kPosts = kQueue / 2;
constexpr auto kPatience = std::chrono::seconds(10);

template <class T>
T must(Result<T> result, const char* what) {
  if (!result)
    throw std::runtime_error(std::string(what) + ": " + std::string(describe(result.error())));
  return std::move(*result);
}
void must(const Status& status, const char* what) {
  if (!status)
    throw std::runtime_error(std::string(what) + ": " + std::string(describe(status.error())));
}

// One end of the connection.
struct End {
  std::shared_ptr<ProtectionDomain> pd;
  std::shared_ptr<CompletionQueue> cq;
  std::shared_ptr<QueuePair> qp;
  std::array<std::uint8_t, kBytes> bytes{};
  std::shared_ptr<MemoryRegion> region;
  std::shared_ptr<Connection> connection;

  explicit End(Device& device) {
    pd = must(device.create_pd(), "create a protection domain");
    CqOptions cq_options;
    cq_options.depth = kQueue;
    cq = must(device.create_cq(cq_options), "create a completion queue");
    QpOptions options;
    options.send_cq = cq;
    options.recv_cq = cq;
    options.max_send_wr = kQueue;
    qp = must(pd->create_qp(options), "create a queue pair");
    region =
        must(pd->register_memory(bytes.data(), bytes.size(),
                                 Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead),
             "register memory");
  }
};

ConnectionEvent next_of(EventChannel& channel, ConnectionEvent::Type wanted) {
  ConnectionEvent event = must(channel.next(kPatience), "set up the connection");
  if (event.type != wanted) throw std::runtime_error("the connection was not set up");
  return event;
}

void connect(Device& device, End& source, End& target) {
  const auto passive = must(EventChannel::create(), "create an event channel");
  const auto active = must(EventChannel::create(), "create an event channel");
  const auto listener = must(device.create_listener(passive), "create a listener");
  must(listener->bind(must(SocketAddress::parse("127.0.0.1", 0), "read an address")), "bind");
  must(listener->listen(1), "listen");
  source.connection = must(device.create_connection(active), "create a connection");
  must(source.connection->connect(source.qp, listener->local_address(), {}), "connect");
  target.connection = next_of(*passive, ConnectionEvent::Type::kConnectRequest).connection;
  must(target.connection->accept(target.qp, {}), "accept");
  next_of(*active, ConnectionEvent::Type::kEstablished);
  next_of(*passive, ConnectionEvent::Type::kEstablished);
}

// Polls until `left` requests have completed and a poll finds nothing more, as programs do.
void reap(CompletionQueue& cq, std::uint32_t left) {
  std::array<WorkCompletion, 64> out;
  const std::int64_t limit = now_ns() + 10'000'000'000;
  while (true) {
    const std::size_t found = cq.poll(out);
    for (std::size_t i = 0; i < found; ++i) {
      if (out[i].status != WcStatus::kSuccess)
        throw std::runtime_error("a request has failed: " + std::string(describe(out[i].status)));
    }
    left -= static_cast<std::uint32_t>(found);
    if (found == 0 && left == 0) return;
    if (found == 0 && now_ns() > limit) throw std::runtime_error("a Write did not complete");
  }
}

Nanoseconds summary(std::vector<double>& samples, double clock) {
  Nanoseconds out;
  out.mean = std::max(mean_of(samples) - clock, 0.0);
  out.median = std::max(median_of(samples) - clock, 0.0);
  return out;
}

template <class Call>
std::vector<double> time_each(std::uint32_t times, Call call) {
  std::vector<double> samples;
  samples.reserve(times);
  for (std::uint32_t i = 0; i < times; ++i) {
    const std::int64_t start = now_ns();
    call();
    samples.push_back(static_cast<double>(now_ns() - start));
  }
  return samples;
}

SendWr write_to(End& source, const End& target, Sge& sge) {
  sge = {.addr = source.region->iova(), .length = kBytes, .lkey = source.region->lkey()};
  SendWr wr;
  wr.op = SendOp::kWrite;
  wr.flags = SendFlags::kSignaled;
  wr.sges = std::span(&sge, 1);
  wr.remote_addr = target.region->iova();
  wr.rkey = target.region->rkey();
  return wr;
}

// A Read of what lies there comes back after all Writes before it were placed.
void check_placed(End& source, const End& target) {
  const auto sent = source.bytes;
  source.bytes.fill(0);
  Sge sge;
  SendWr wr = write_to(source, target, sge);
  wr.op = SendOp::kRead;
  must(source.qp->post_send(wr), "post the Read");
  reap(*source.cq, 1);
  if (source.bytes != sent) throw std::runtime_error("the target has wrong bytes");
}

}  // namespace

PostCost measure_post(std::uint32_t trials) {
  const auto device = must(Device::open(Config{}), "open the device");
  End source(*device);
  End target(*device);
  connect(*device, source, target);
  for (std::size_t i = 0; i < kBytes; ++i) source.bytes[i] = static_cast<std::uint8_t>(i * 7 + 1);

  Sge sge;
  const SendWr wr = write_to(source, target, sge);
  PostCost cost;
  std::vector<double> clock = time_each(100'000, [] {});
  cost.clock_ns = median_of(clock);
  std::vector<double> nulls = time_each(100'000, [] { syscall(SYS_getppid); });
  cost.null_call = summary(nulls, cost.clock_ns);

  std::vector<double> posts;
  for (std::uint32_t i = 0; i < trials; ++i) {
    const auto part = time_each(kPosts, [&] { must(source.qp->post_send(wr), "post a Write"); });
    posts.insert(posts.end(), part.begin(), part.end());
    reap(*source.cq, kPosts);
  }
  cost.posts = posts.size();
  cost.bytes_placed = cost.posts * kBytes;
  cost.post = summary(posts, cost.clock_ns);
  check_placed(source, target);
  return cost;
}

}  // namespace weft::bench
