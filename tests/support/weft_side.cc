#include "weft_side.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace weft::test {
namespace {

constexpr std::uint8_t kGuardByte = 0x5a;

std::string at_line(int line) { return "line " + std::to_string(line) + ": "; }

std::string event_text(const ConnectionEvent& event) {
  std::string out(describe(event.type));
  if (event.error) out += " (" + std::string(describe(*event.error)) + ")";
  return out;
}

}  // namespace

void give_up(std::string_view what, Error error, int line) {
  throw Failure(at_line(line) + std::string(what) + ": " + std::string(describe(error)));
}

Config plain_config() {
  Config config;
  config.log = LogLevel::kError;
  config.close_timeout = std::chrono::seconds(3);
  config.nudge_wait = std::chrono::seconds(0);  // what Weft sends does not depend on the time
  // Suites about what any path must do run once for each.
  if (const char* path = std::getenv("WEFT_TEST_PATH")) must(config.set("path", path), "the path");
  return config;
}

std::vector<Config> framings() {
  std::vector<Config> out;
  for (const bool crc : {true, false}) {
    for (const bool markers : {false, true}) {
      Config config = plain_config();
      config.crc = crc;
      config.markers = markers;
      out.push_back(config);
    }
  }
  return out;
}

Host::Host(const Config& config)
    : device(must(Device::open(config), "open the device")),
      pd(must(device->create_pd(), "create a protection domain")) {}

std::optional<AsyncEvent> Host::async_event(milliseconds patience) const {
  auto event = device->next_async_event(patience);
  if (!event) return std::nullopt;
  return *event;
}

Memory::Memory(Host& host, std::size_t size, Access access, std::uint8_t fill)
    : Memory(*host.pd, size, access, fill) {}

Memory::Memory(ProtectionDomain& pd, std::size_t size, Access access, std::uint8_t fill)
    : size_(size), fill_(fill), storage_(size + 2 * kGuard, kGuardByte) {
  std::memset(data(), fill, size);
  region = must(pd.register_memory(data(), size, access), "register memory");
}

// The region goes first: nothing may reach the storage afterwards.
Memory::~Memory() { region.reset(); }

std::vector<std::uint8_t> Memory::copy(std::size_t at, std::size_t count) {
  return {data() + at, data() + at + count};
}
void Memory::put(std::size_t at, std::span<const std::uint8_t> bytes) {
  std::copy(bytes.begin(), bytes.end(), data() + at);
}
void Memory::fill_pattern(unsigned seed) {
  for (std::size_t i = 0; i < size_; ++i) {
    data()[i] = static_cast<std::uint8_t>((i + seed) * 2654435761U >> 11);
  }
}
std::uint64_t Memory::load64(std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, data() + at, sizeof value);
  return value;
}
void Memory::store64(std::size_t at, std::uint64_t value) {
  std::memcpy(data() + at, &value, sizeof value);
}

bool Memory::guards_intact() const {
  const auto is_guard = [](std::uint8_t b) { return b == kGuardByte; };
  return std::all_of(storage_.begin(), storage_.begin() + kGuard, is_guard) &&
         std::all_of(storage_.end() - kGuard, storage_.end(), is_guard);
}
bool Memory::untouched() const {
  return guards_intact() && std::all_of(storage_.begin() + kGuard, storage_.end() - kGuard,
                                        [this](std::uint8_t b) { return b == fill_; });
}

Sge Memory::sge(std::size_t at, std::size_t count) {
  return {.addr = region->iova() + at,
          .length = static_cast<std::uint32_t>(count),
          .lkey = region->lkey()};
}

SendWr wr_send(std::uint64_t id, SendFlags flags) {
  SendWr wr;
  wr.wr_id = id;
  wr.op = SendOp::kSend;
  wr.flags = flags;
  return wr;
}
SendWr wr_send_invalidate(std::uint64_t id, std::uint32_t rkey) {
  SendWr wr = wr_send(id);
  wr.op = SendOp::kSendInvalidate;
  wr.invalidate_rkey = rkey;
  return wr;
}
SendWr wr_write(std::uint64_t id, std::uint32_t rkey, std::uint64_t to, SendFlags flags) {
  SendWr wr = wr_send(id, flags);
  wr.op = SendOp::kWrite;
  wr.rkey = rkey;
  wr.remote_addr = to;
  return wr;
}
SendWr wr_write_imm(std::uint64_t id, std::uint32_t rkey, std::uint64_t to, std::uint64_t imm) {
  SendWr wr = wr_write(id, rkey, to);
  wr.op = SendOp::kWriteImm;
  wr.imm_data = imm;
  return wr;
}
SendWr wr_read(std::uint64_t id, std::uint32_t rkey, std::uint64_t to, SendFlags flags) {
  SendWr wr = wr_write(id, rkey, to, flags);
  wr.op = SendOp::kRead;
  return wr;
}
SendWr wr_fetch_add(std::uint64_t id, std::uint32_t rkey, std::uint64_t to, std::uint64_t add,
                    std::uint64_t mask) {
  SendWr wr = wr_write(id, rkey, to);
  wr.op = SendOp::kFetchAdd;
  wr.compare_add = add;
  wr.add_mask = mask;
  return wr;
}
SendWr wr_cmp_swap(std::uint64_t id, std::uint32_t rkey, std::uint64_t to, std::uint64_t compare,
                   std::uint64_t swap) {
  SendWr wr = wr_write(id, rkey, to);
  wr.op = SendOp::kCmpSwap;
  wr.compare_add = compare;
  wr.swap = swap;
  return wr;
}
SendWr wr_immediate(std::uint64_t id, std::uint64_t data, SendFlags flags) {
  SendWr wr = wr_send(id, flags);
  wr.op = SendOp::kImmediate;
  wr.imm_data = data;
  return wr;
}
SendWr wr_local_invalidate(std::uint64_t id, std::uint32_t rkey) {
  SendWr wr = wr_send(id);
  wr.op = SendOp::kLocalInvalidate;
  wr.invalidate_rkey = rkey;
  return wr;
}
SendWr wr_bind(std::uint64_t id, MemoryWindow& window, MemoryRegion& region, std::uint64_t to,
               std::uint64_t length, Access access, std::uint32_t rkey) {
  SendWr wr = wr_send(id);
  wr.op = SendOp::kBindWindow;
  wr.window = &window;
  wr.window_region = &region;
  wr.remote_addr = to;
  wr.window_length = length;
  wr.window_access = access;
  wr.rkey = rkey;
  return wr;
}

void post(QueuePair& qp, SendWr wr, std::initializer_list<Sge> sges, int line) {
  wr.sges = std::span<const Sge>(sges.begin(), sges.size());
  must(qp.post_send(wr), "post a send request", line);
}
void post_recv(QueuePair& qp, std::uint64_t id, std::initializer_list<Sge> sges, int line) {
  RecvWr wr;
  wr.wr_id = id;
  wr.sges = std::span<const Sge>(sges.begin(), sges.size());
  must(qp.post_recv(wr), "post a receive", line);
}
void post_empty_recvs(QueuePair& qp, std::uint64_t first_id, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) post_recv(qp, first_id + i);
}

Endpoint::Endpoint(Host& host, const EndpointOptions& options) : Endpoint(*host.pd, options) {}

Endpoint::Endpoint(ProtectionDomain& pd, const EndpointOptions& options)
    : events(must(EventChannel::create(), "create an event channel")) {
  Device& device = pd.device();
  if (options.with_channel) channel = must(device.create_channel(), "create a channel");
  CqOptions cq;
  cq.depth = options.cq_depth;
  cq.channel = channel;
  send_cq = options.send_cq ? options.send_cq : must(device.create_cq(cq), "create a CQ");
  recv_cq = must(device.create_cq(cq), "create a CQ");
  QpOptions q;
  q.send_cq = send_cq;
  q.recv_cq = recv_cq;
  q.srq = options.srq;
  q.max_send_wr = options.max_send_wr;
  q.max_recv_wr = options.max_recv_wr;
  q.max_send_sge = options.max_sge;
  q.max_recv_sge = options.max_sge;
  q.max_inline_bytes = options.max_inline_bytes;
  q.signal_all = options.signal_all;
  qp = must(pd.create_qp(q), "create a QP");
}

std::optional<WorkCompletion> next(CompletionQueue& cq, milliseconds patience) {
  WorkCompletion wc;
  const bool came = eventually([&] { return cq.poll(std::span(&wc, 1)) == 1; }, patience);
  if (!came) return std::nullopt;
  return wc;
}
WorkCompletion take(CompletionQueue& cq, int line) {
  const auto wc = next(cq);
  if (!wc) throw Failure(at_line(line) + "no completion came");
  return *wc;
}
std::vector<WorkCompletion> take_n(CompletionQueue& cq, std::size_t count, int line) {
  std::vector<WorkCompletion> out;
  while (out.size() < count) out.push_back(take(cq, line));
  return out;
}
WorkCompletion take_success(CompletionQueue& cq, std::uint64_t id, int line) {
  const WorkCompletion wc = take(cq, line);
  if (wc.wr_id != id || wc.status != WcStatus::kSuccess) {
    throw Failure(at_line(line) + "expected success of request " + std::to_string(id) + ", got " +
                  to_string(wc));
  }
  return wc;
}
bool quiet(CompletionQueue& cq, milliseconds span) { return !next(cq, span).has_value(); }

std::string to_string(const WorkCompletion& wc) {
  return "request " + std::to_string(wc.wr_id) + ", " + std::string(describe(wc.op)) + ": " +
         std::string(describe(wc.status));
}

std::optional<ConnectionEvent> next_event(EventChannel& events, milliseconds patience) {
  auto event = events.next(patience);
  if (!event) return std::nullopt;
  return std::move(*event);
}

ConnectionEvent take_event(EventChannel& events, ConnectionEvent::Type type, int line) {
  auto event = next_event(events);
  const std::string want(describe(type));
  if (!event) throw Failure(at_line(line) + "no event came, expected " + want);
  if (event->type != type) {
    throw Failure(at_line(line) + "expected event " + want + ", got " + event_text(*event));
  }
  return std::move(*event);
}

std::shared_ptr<Listener> listen(Host& host, std::shared_ptr<EventChannel> events,
                                 std::string_view where, int line) {
  auto listener = must(host.device->create_listener(std::move(events)), "create a listener", line);
  must(listener->bind(must(SocketAddress::parse(where), "parse an address", line)), "bind", line);
  must(listener->listen(0), "listen", line);
  return listener;
}

void connect(Host& active_host, Endpoint& active, Host& passive_host, Endpoint& passive,
             const ConnectOptions& options, int line) {
  using Type = ConnectionEvent::Type;
  const auto listener = listen(passive_host, passive.events, options.where, line);
  active.connection =
      must(active_host.device->create_connection(active.events), "create a connection", line);
  must(active.connection->connect(active.qp, listener->local_address(), options.active), "connect",
       line);
  passive.connection = take_event(*passive.events, Type::kConnectRequest, line).connection;
  must(passive.connection->accept(passive.qp, options.passive), "accept", line);
  take_event(*active.events, Type::kEstablished, line);
  take_event(*passive.events, Type::kEstablished, line);
}

Pair::Pair(const Config& config, const EndpointOptions& a_options, const EndpointOptions& b_options,
           const ConnectOptions& how)
    : host(config), a(host, a_options), b(host, b_options) {
  connect(host, a, host, b, how);
}

}  // namespace weft::test
