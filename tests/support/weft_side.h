// The side of a test that uses Weft: devices, registered memory, queue pairs and connected pairs
// behind few words, so that a test body can say what arrives and what is expected.
//
// Every wait has a limit. What fails that a test takes for granted throws test::Failure, which
// GoogleTest reports as a failure of the running test.
#pragma once

#include <weft/weft.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weft::test {

using std::chrono::milliseconds;
inline constexpr milliseconds kPatience{15000};  // for what must happen
inline constexpr milliseconds kGlance{60};       // for what must not

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void give_up(std::string_view what, Error error, int line);

template <class T>
T must(Result<T> result, std::string_view what, int line = __builtin_LINE()) {
  if (!result) give_up(what, result.error(), line);
  return std::move(*result);
}
inline void must(const Status& status, std::string_view what, int line = __builtin_LINE()) {
  if (!status) give_up(what, status.error(), line);
}

inline constexpr Access kAllAccess =
    Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic;

// Defaults that do not depend on the machine's files or environment, with a short drain.
[[nodiscard]] Config plain_config();
// The same with CRC on and off, with and without markers.
[[nodiscard]] std::vector<Config> framings();

// One device and one protection domain.
struct Host {
  explicit Host(const Config& config = plain_config());
  std::shared_ptr<Device> device;
  std::shared_ptr<ProtectionDomain> pd;

  // The next asynchronous event, or nullopt if none comes in time.
  [[nodiscard]] std::optional<AsyncEvent> async_event(milliseconds patience = kPatience) const;
};

// Registered memory between two guards. Starts filled with `fill`.
class Memory {
 public:
  Memory(Host& host, std::size_t size, Access access = kAllAccess, std::uint8_t fill = 0xee);
  Memory(ProtectionDomain& pd, std::size_t size, Access access, std::uint8_t fill = 0xee);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::uint8_t* data() { return storage_.data() + kGuard; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::uint8_t> bytes() { return {data(), size_}; }
  [[nodiscard]] std::vector<std::uint8_t> copy(std::size_t at, std::size_t count);
  void put(std::size_t at, std::span<const std::uint8_t> bytes);
  void fill_pattern(unsigned seed);
  [[nodiscard]] std::uint64_t load64(std::size_t at);  // host order
  void store64(std::size_t at, std::uint64_t value);

  [[nodiscard]] bool guards_intact() const;
  [[nodiscard]] bool untouched() const;  // the guards and every octet between them

  [[nodiscard]] Sge sge(std::size_t at, std::size_t count);
  [[nodiscard]] Sge sge() { return sge(0, size_); }
  [[nodiscard]] std::uint32_t rkey() const { return region->rkey(); }
  [[nodiscard]] std::uint64_t to(std::size_t at = 0) const { return region->iova() + at; }

  std::shared_ptr<MemoryRegion> region;

 private:
  static constexpr std::size_t kGuard = 64;
  std::size_t size_;
  std::uint8_t fill_;
  std::vector<std::uint8_t> storage_;
};

// The R_Key that a window may get by its next bind: only the key octet counts up, it returns to
// zero after 255, and the STag index stays (ibv_inc_rkey).
[[nodiscard]] inline std::uint32_t next_rkey(const MemoryWindow& window) {
  return (window.rkey() & ~0xffU) | ((window.rkey() + 1U) & 0xffU);
}

// Work requests with kSignaled unless told otherwise.
[[nodiscard]] SendWr wr_send(std::uint64_t id, SendFlags flags = SendFlags::kSignaled);
[[nodiscard]] SendWr wr_send_invalidate(std::uint64_t id, std::uint32_t rkey);
[[nodiscard]] SendWr wr_write(std::uint64_t id, std::uint32_t rkey, std::uint64_t to,
                              SendFlags flags = SendFlags::kSignaled);
[[nodiscard]] SendWr wr_write_imm(std::uint64_t id, std::uint32_t rkey, std::uint64_t to,
                                  std::uint64_t imm);
[[nodiscard]] SendWr wr_read(std::uint64_t id, std::uint32_t rkey, std::uint64_t to,
                             SendFlags flags = SendFlags::kSignaled);
[[nodiscard]] SendWr wr_fetch_add(std::uint64_t id, std::uint32_t rkey, std::uint64_t to,
                                  std::uint64_t add, std::uint64_t mask = 0);
[[nodiscard]] SendWr wr_cmp_swap(std::uint64_t id, std::uint32_t rkey, std::uint64_t to,
                                 std::uint64_t compare, std::uint64_t swap);
[[nodiscard]] SendWr wr_immediate(std::uint64_t id, std::uint64_t data,
                                  SendFlags flags = SendFlags::kSignaled);
[[nodiscard]] SendWr wr_local_invalidate(std::uint64_t id, std::uint32_t rkey);
[[nodiscard]] SendWr wr_bind(std::uint64_t id, MemoryWindow& window, MemoryRegion& region,
                             std::uint64_t to, std::uint64_t length, Access access,
                             std::uint32_t rkey);

// Post or throw.
void post(QueuePair& qp, SendWr wr, std::initializer_list<Sge> sges = {},
          int line = __builtin_LINE());
void post_recv(QueuePair& qp, std::uint64_t id, std::initializer_list<Sge> sges = {},
               int line = __builtin_LINE());
// Posts `count` receives without memory, ids from `first_id`.
void post_empty_recvs(QueuePair& qp, std::uint64_t first_id, std::size_t count);

struct EndpointOptions {
  std::uint32_t max_send_wr = 256;
  std::uint32_t max_recv_wr = 256;
  std::uint32_t max_sge = 8;
  std::uint32_t max_inline_bytes = 64;
  std::uint32_t cq_depth = 1024;
  bool with_channel = false;  // one completion channel for both CQs
  bool signal_all = false;
  std::shared_ptr<SharedReceiveQueue> srq = nullptr;
  std::shared_ptr<CompletionQueue> send_cq = nullptr;  // made if null
};

inline EndpointOptions with_channel() {
  EndpointOptions options;
  options.with_channel = true;
  return options;
}

// A QP with its CQs and its own channel for connection events.
struct Endpoint {
  explicit Endpoint(Host& host, const EndpointOptions& options = {});
  Endpoint(ProtectionDomain& pd, const EndpointOptions& options);

  std::shared_ptr<EventChannel> events;
  std::shared_ptr<CompletionChannel> channel;
  std::shared_ptr<CompletionQueue> send_cq, recv_cq;
  std::shared_ptr<QueuePair> qp;
  std::shared_ptr<Connection> connection;
};

// Completions. take() throws if they do not come.
[[nodiscard]] std::optional<WorkCompletion> next(CompletionQueue& cq,
                                                 milliseconds patience = kPatience);
[[nodiscard]] WorkCompletion take(CompletionQueue& cq, int line = __builtin_LINE());
[[nodiscard]] std::vector<WorkCompletion> take_n(CompletionQueue& cq, std::size_t count,
                                                 int line = __builtin_LINE());
// Takes one and requires this id and success.
WorkCompletion take_success(CompletionQueue& cq, std::uint64_t id, int line = __builtin_LINE());
[[nodiscard]] bool quiet(CompletionQueue& cq, milliseconds span = kGlance);
[[nodiscard]] std::string to_string(const WorkCompletion& wc);

// Connection events. take_event() throws if none, or another, comes.
[[nodiscard]] std::optional<ConnectionEvent> next_event(EventChannel& events,
                                                        milliseconds patience = kPatience);
ConnectionEvent take_event(EventChannel& events, ConnectionEvent::Type type,
                           int line = __builtin_LINE());

// A listener on 127.0.0.1, or on `where`, whose events go to `events`.
[[nodiscard]] std::shared_ptr<Listener> listen(Host& host, std::shared_ptr<EventChannel> events,
                                               std::string_view where = "127.0.0.1:0",
                                               int line = __builtin_LINE());

struct ConnectOptions {
  ConnectionParams active, passive;
  std::string where = "127.0.0.1:0";
};
// Joins two endpoints over kernel TCP and waits until both are established.
void connect(Host& active_host, Endpoint& active, Host& passive_host, Endpoint& passive,
             const ConnectOptions& options = {}, int line = __builtin_LINE());

// Two endpoints of one device, connected.
struct Pair {
  explicit Pair(const Config& config = plain_config(), const EndpointOptions& a_options = {},
                const EndpointOptions& b_options = {}, const ConnectOptions& how = {});
  Host host;
  Endpoint a;  // active
  Endpoint b;  // passive
};

// Polls `done` until it holds; false if it does not in time.
template <class Predicate>
bool eventually(Predicate done, milliseconds patience = kPatience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    struct timespec pause {
      0, 200000
    };
    nanosleep(&pause, nullptr);
  }
  return true;
}

}  // namespace weft::test
