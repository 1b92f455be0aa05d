// A key-value store without server code: clients read and change the server's memory themselves, by
// RDMA Read, RDMA Write and atomics. The server only lends the memory.
//
// Build:  g++ -std=c++20 kvstore.cc -o kvstore $(pkg-config --cflags --libs weft)
// Try:    ./kvstore serve 7482                                in one terminal
//         ./kvstore put 127.0.0.1 7482 color green            in another
//         ./kvstore get 127.0.0.1 7482 color
//         ./kvstore add 127.0.0.1 7482 visits 1               adds to a counter, prints its new
//         value
//
// How it stays consistent: each slot has a version. An odd version means that a writer is busy.
//   writer  CmpSwap version v -> v + 1; Write the slot; FetchAdd version + 1
//   reader  Read version; Read the slot; Read version again: both the same and even, or once more
//   counter one FetchAdd; it needs no version
// A writer that dies between its two atomics leaves its slot locked. A store for real use would put
// the time and the owner into the version. Both machines need the same byte order.
#include <weft/weft.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using EventType = weft::ConnectionEvent::Type;

constexpr auto kPatience = 10s;
constexpr std::size_t kSlots = 1024;
constexpr std::size_t kMaxSlots = 1U << 24U;  // a server that offers more is not believed
constexpr int kAttempts = 1000;               // to meet a slot that no writer holds

struct Slot {
  std::uint64_t version;  // 0: never used; odd: being written
  std::int64_t counter;
  std::array<char, 48> key;    // ends with a zero byte
  std::array<char, 64> value;  // likewise
};
static_assert(sizeof(Slot) == 128 && offsetof(Slot, key) == 16);

// The server tells each client this when it accepts: where the table is, and the key to it.
struct Offer {
  std::uint64_t addr;
  std::uint64_t slots;
  std::uint32_t rkey;
};

[[noreturn]] void give_up(std::string_view what, std::string_view why) {
  std::fprintf(stderr, "kvstore: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(why.size()), why.data());
  std::exit(1);
}

template <class T>
T must(weft::Result<T> result, std::string_view what) {
  if (!result) give_up(what, weft::describe(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// The configuration comes from the defaults, then /etc/weft.conf, then WEFT_* variables.
std::shared_ptr<weft::Device> open_device() {
  std::string why;
  const auto config = weft::Config::load(&why);
  if (!config) give_up("configuration", why);
  return must(weft::Device::open(*config), "device");
}

// FNV-1a. All clients must agree on it, so it is not std::hash.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

std::shared_ptr<weft::QueuePair> create_qp(weft::ProtectionDomain& pd,
                                           const std::shared_ptr<weft::CompletionQueue>& cq) {
  weft::QpOptions options;
  options.send_cq = cq;
  options.recv_cq = cq;
  return must(pd.create_qp(options), "queue pair");
}

// --- the server ---

volatile std::sig_atomic_t stop_requested = 0;

void serve(const char* port) {
  std::signal(SIGTERM, [](int) { stop_requested = 1; });
  std::signal(SIGINT, [](int) { stop_requested = 1; });
  const auto device = open_device();
  const auto pd = must(device->create_pd(), "protection domain");
  const auto cq = must(device->create_cq({.depth = 16, .channel = nullptr}), "completion queue");
  const auto events = must(weft::EventChannel::create(), "event channel");
  std::vector<Slot> table(kSlots);
  using weft::Access;
  const auto mr = must(pd->register_memory(table.data(), table.size() * sizeof(Slot),
                                           Access::kLocalWrite | Access::kRemoteRead |
                                               Access::kRemoteWrite | Access::kRemoteAtomic),
                       "memory");
  const Offer offer{reinterpret_cast<std::uint64_t>(table.data()), kSlots, mr->rkey()};
  weft::ConnectionParams params;
  params.private_data.resize(sizeof offer);
  std::memcpy(params.private_data.data(), &offer, sizeof offer);

  const auto listener = must(device->create_listener(events), "listener");
  must(listener->bind(must(weft::SocketAddress::parse(std::string(":") + port), port)), port);
  must(listener->listen(64), "listen");
  std::printf("listening on port %u\n", listener->local_address().port());
  std::fflush(stdout);

  // A queue pair and its connection live as long as somebody holds them. From here on the server
  // does nothing else; Weft's own thread answers Reads, Writes and atomics.
  struct Peer {
    std::shared_ptr<weft::Connection> connection;
    std::shared_ptr<weft::QueuePair> qp;
  };
  std::map<weft::Connection*, Peer> peers;
  while (stop_requested == 0) {
    const auto event = events->next(200ms);
    if (!event) continue;
    if (event->type == EventType::kConnectRequest) {
      const auto qp = create_qp(*pd, cq);
      // A client that has gone meanwhile is no reason to end.
      if (event->connection->accept(qp, params)) {
        peers[event->connection.get()] = {event->connection, qp};
      }
    } else if (event->type != EventType::kEstablished) {
      peers.erase(event->connection.get());
    }
  }
}

// --- the client ---

class Client {
 public:
  Client(const char* host, const char* port);
  ~Client() { (void)connection_->disconnect(); }

  void put(const std::string& key, const std::string& value);
  bool get(const std::string& key, std::string& value);
  std::int64_t add(const std::string& key, std::int64_t amount);

 private:
  enum class Find { kKey, kKeyOrEmpty };
  // Reads slots from the hash of `key` on. Leaves a consistent copy in `slot_`; its index, or -1.
  int find(const std::string& key, Find what);
  void read_consistent(std::size_t index);
  bool lock(std::size_t index, std::uint64_t version);
  void write_and_unlock(std::size_t index);

  std::uint64_t remote(std::size_t index, std::size_t offset) const {
    return offer_.addr + index * sizeof(Slot) + offset;
  }
  // One operation between `bytes` bytes at `local` (in slot_ or old_) and the server's memory.
  void run(weft::SendOp op, void* local, std::uint32_t bytes, std::uint64_t remote_addr,
           std::uint64_t compare_add = 0, std::uint64_t swap = 0);

  std::shared_ptr<weft::Device> device_;
  std::shared_ptr<weft::ProtectionDomain> pd_;
  std::shared_ptr<weft::CompletionQueue> cq_;
  std::shared_ptr<weft::EventChannel> events_;
  Slot slot_{};
  std::uint64_t old_ = 0;  // what the slot had before an atomic, or a version
  std::shared_ptr<weft::MemoryRegion> mr_;
  std::shared_ptr<weft::QueuePair> qp_;
  std::shared_ptr<weft::Connection> connection_;
  Offer offer_{};
};

Client::Client(const char* host, const char* port) {
  device_ = open_device();
  pd_ = must(device_->create_pd(), "protection domain");
  cq_ = must(device_->create_cq({.depth = 16, .channel = nullptr}), "completion queue");
  events_ = must(weft::EventChannel::create(), "event channel");
  mr_ = must(pd_->register_memory(this, sizeof *this, weft::Access::kLocalWrite), "memory");
  qp_ = create_qp(*pd_, cq_);
  connection_ = must(device_->create_connection(events_), "connection");
  const auto peer = must(weft::SocketAddress::parse(std::string(host) + ":" + port), host);
  must(connection_->connect(qp_, peer, {}), "connect");
  const auto event = must(events_->next(kPatience), "waiting for the server");
  if (event.type != EventType::kEstablished) {
    give_up(peer.text(), event.error ? weft::describe(*event.error) : "not connected");
  }
  if (event.private_data.size() < sizeof offer_) give_up(peer.text(), "this is no kvstore server");
  std::memcpy(&offer_, event.private_data.data(), sizeof offer_);
  if (offer_.slots == 0 || offer_.slots > kMaxSlots) {
    give_up(peer.text(), "its table is empty or too long");
  }
}

void Client::run(weft::SendOp op, void* local, std::uint32_t bytes, std::uint64_t remote_addr,
                 std::uint64_t compare_add, std::uint64_t swap) {
  const weft::Sge sge{reinterpret_cast<std::uint64_t>(local), bytes, mr_->lkey()};
  weft::SendWr wr;
  wr.op = op;
  wr.flags = weft::SendFlags::kSignaled;
  wr.sges = {&sge, 1};
  wr.remote_addr = remote_addr;
  wr.rkey = offer_.rkey;
  wr.compare_add = compare_add;
  wr.swap = swap;
  must(qp_->post_send(wr), "post");
  const auto deadline = Clock::now() + kPatience;
  weft::WorkCompletion done;
  while (cq_->poll({&done, 1}) == 0) {
    if (Clock::now() > deadline) give_up("waiting", "the server is silent");
  }
  if (done.status != weft::WcStatus::kSuccess) {
    give_up(weft::describe(done.op), weft::describe(done.status));
  }
}

void Client::read_consistent(std::size_t index) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    run(weft::SendOp::kRead, &old_, sizeof old_, remote(index, 0));
    const std::uint64_t before = old_;
    run(weft::SendOp::kRead, &slot_, sizeof slot_, remote(index, 0));
    run(weft::SendOp::kRead, &old_, sizeof old_, remote(index, 0));
    if (before != old_ || before % 2 != 0) continue;
    slot_.key.back() = slot_.value.back() = '\0';
    slot_.version = before;
    return;
  }
  give_up("slot " + std::to_string(index), "another writer holds it, or died while it did");
}

int Client::find(const std::string& key, Find what) {
  const std::size_t start = hash(key) % offer_.slots;
  for (std::size_t i = 0; i < offer_.slots; ++i) {
    const std::size_t index = (start + i) % offer_.slots;
    read_consistent(index);
    if (slot_.version == 0) return what == Find::kKeyOrEmpty ? static_cast<int>(index) : -1;
    if (key == slot_.key.data()) return static_cast<int>(index);
  }
  return -1;
}

bool Client::lock(std::size_t index, std::uint64_t version) {
  run(weft::SendOp::kCmpSwap, &old_, sizeof old_, remote(index, 0), version, version + 1);
  return old_ == version;
}

// Behind the version and the counter: those only change by atomics. The FetchAdd follows the Write
// on the same connection, so the server performs it after the Write.
void Client::write_and_unlock(std::size_t index) {
  run(weft::SendOp::kWrite, &slot_.key, sizeof(Slot) - offsetof(Slot, key),
      remote(index, offsetof(Slot, key)));
  run(weft::SendOp::kFetchAdd, &old_, sizeof old_, remote(index, 0), 1);
}

void Client::put(const std::string& key, const std::string& value) {
  if (key.empty() || key.size() >= slot_.key.size()) give_up("key", "1 to 47 characters");
  if (value.size() >= slot_.value.size()) give_up("value", "at most 63 characters");
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int index = find(key, Find::kKeyOrEmpty);
    if (index < 0) give_up(key, "the table is full");
    if (!lock(static_cast<std::size_t>(index), slot_.version)) continue;  // somebody was quicker
    slot_.key = {};
    slot_.value = {};
    key.copy(slot_.key.data(), key.size());
    value.copy(slot_.value.data(), value.size());
    write_and_unlock(static_cast<std::size_t>(index));
    return;
  }
  give_up(key, "other writers were quicker each time");
}

bool Client::get(const std::string& key, std::string& value) {
  if (find(key, Find::kKey) < 0) return false;
  value = slot_.value.data();
  return true;
}

std::int64_t Client::add(const std::string& key, std::int64_t amount) {
  if (find(key, Find::kKey) < 0) put(key, "");
  const int index = find(key, Find::kKey);
  if (index < 0) give_up(key, "it has gone from the store");
  run(weft::SendOp::kFetchAdd, &old_, sizeof old_,
      remote(static_cast<std::size_t>(index), offsetof(Slot, counter)),
      static_cast<std::uint64_t>(amount));
  return static_cast<std::int64_t>(old_) + amount;
}

int run_command(const std::vector<std::string>& words) {
  Client client(words[1].c_str(), words[2].c_str());
  const std::string& key = words[3];
  if (words[0] == "put") {
    client.put(key, words[4]);
  } else if (words[0] == "add") {
    std::printf("%lld\n", static_cast<long long>(client.add(key, std::atoll(words[4].c_str()))));
  } else {
    std::string value;
    if (!client.get(key, value)) {
      std::fprintf(stderr, "kvstore: %s: not in the store\n", key.c_str());
      return 1;
    }
    std::printf("%s\n", value.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "serve") {
    serve(words[1].c_str());
    return 0;
  }
  if ((words.size() == 5 && (words[0] == "put" || words[0] == "add")) ||
      (words.size() == 4 && words[0] == "get")) {
    return run_command(words);
  }
  std::fprintf(stderr,
               "usage: kvstore serve PORT\n"
               "       kvstore put HOST PORT KEY VALUE\n"
               "       kvstore get HOST PORT KEY\n"
               "       kvstore add HOST PORT KEY AMOUNT\n");
  return 2;
}
