#include "trace/pcap.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "os/calls.h"
#include "os/clock.h"
#include "os/fd.h"
#include "os/lock.h"
#include "os/log.h"
#include "os/with_pid.h"
#include "wire/fpdu.h"

namespace weft::trace {

namespace {

constexpr std::uint32_t kPcapMagic = 0xa1b2c3d4;  // microseconds, byte order of the writer
constexpr std::uint32_t kSnapLength = 65535;
constexpr std::uint32_t kLinkTypeRaw = 101;  // packets begin with their IP header
constexpr std::size_t kIpv4Size = 20;
constexpr std::size_t kIpv6Size = 40;
constexpr std::size_t kTcpSize = 20;
constexpr std::size_t kPayloadMax = 65000;  // octets per made-up segment
constexpr std::uint8_t kTtl = 64;

enum TcpFlag : std::uint8_t { kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kAck = 16 };

// A scale, so that no segment seems to exceed the window.
constexpr std::uint8_t kSynOptions[] = {3, 3, 14, 1};
constexpr std::uint16_t kWindow = 65535;

using Bytes = std::vector<std::uint8_t>;

// One's complement sum over octets of a header or payload. REQUIRES: even offset in what is summed.
std::uint32_t add_sum(std::uint32_t sum, const std::uint8_t* data, std::size_t size) {
  std::uint64_t wide = sum;
  for (; size >= 2; data += 2, size -= 2) wide += load_be16(data);
  if (size != 0) wide += std::uint32_t{*data} << 8U;
  while (wide >> 16U != 0) wide = (wide & 0xffffU) + (wide >> 16U);
  return static_cast<std::uint32_t>(wide);
}

std::uint16_t finish_sum(std::uint32_t sum) { return static_cast<std::uint16_t>(~sum & 0xffffU); }

void put_address(const SocketAddress& address, std::uint8_t* to) {
  if (address.family() == AF_INET6) {
    std::memcpy(to, &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr, 16);
  } else {
    std::memcpy(to, &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
  }
}

}  // namespace

// One file; shared by all traces and devices of the process that name it.
class PcapFile {
 public:
  [[nodiscard]] static std::shared_ptr<PcapFile> open(const std::string& path) {
    static os::Mutex mutex;
    static std::map<std::string, std::weak_ptr<PcapFile>> files;
    const os::NoCancel guard;
    const os::MutexLock lock(mutex);
    if (auto open_already = files[path].lock()) return open_already;
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    os::Fd fd(::open(path.c_str(), kFlags, 0600));
    if (!fd) return nullptr;
    auto file = std::make_shared<PcapFile>(std::move(fd));
    if (!file->write_header()) return nullptr;
    files[path] = file;
    return file;
  }
  explicit PcapFile(os::Fd fd) : fd_(std::move(fd)) {}

  // False: the other end of this connection is traced by this process already.
  [[nodiscard]] bool claim(const AddressText& local, const AddressText& peer) {
    if (fork_.forked()) return false;
    const os::MutexLock lock(mutex_);
    if (claimed_.contains({peer, local})) return false;
    claimed_.insert({local, peer});
    return true;
  }
  void release(const AddressText& local, const AddressText& peer) noexcept {
    if (fork_.forked()) return;
    const os::MutexLock lock(mutex_);
    const auto found = claimed_.find({local, peer});
    if (found != claimed_.end()) claimed_.erase(found);
  }
  std::uint32_t next_isn() {
    if (fork_.forked()) return 0;
    const os::MutexLock lock(mutex_);
    constexpr std::uint32_t kStep = 0x01020304;
    return isn_ += kStep;
  }

  void write_packet(const Bytes& packet) {
    if (fork_.forked()) return;
    const timespec t = os::timespec_of(os::clock_ns(CLOCK_REALTIME));
    constexpr long kNsPerUs = 1000;
    const std::uint32_t header[4] = {
        static_cast<std::uint32_t>(t.tv_sec), static_cast<std::uint32_t>(t.tv_nsec / kNsPerUs),
        static_cast<std::uint32_t>(packet.size()), static_cast<std::uint32_t>(packet.size())};
    const os::MutexLock lock(mutex_);
    record_.resize(sizeof header);
    std::memcpy(record_.data(), header, sizeof header);
    record_.insert(record_.end(), packet.begin(), packet.end());
    // Whole records only: what was written stays readable if the process is killed.
    static_cast<void>(!os::calls::write(fd_.get(), record_.data(), record_.size()));
  }

 private:
  bool write_header() {
    const std::uint16_t version[2] = {2, 4};
    std::uint8_t header[24] = {};
    std::memcpy(header, &kPcapMagic, 4);
    std::memcpy(header + 4, version, 4);
    std::memcpy(header + 16, &kSnapLength, 4);
    std::memcpy(header + 20, &kLinkTypeRaw, 4);
    return ::write(fd_.get(), header, sizeof header) == static_cast<ssize_t>(sizeof header);
  }

  const os::ForkGuard fork_;
  os::Fd fd_;
  os::Mutex mutex_;
  std::multiset<std::pair<AddressText, AddressText>> claimed_ WEFT_GUARDED_BY(mutex_);
  std::uint32_t isn_ WEFT_GUARDED_BY(mutex_) = 0;
  Bytes record_ WEFT_GUARDED_BY(mutex_);
};

// The stream from one side, as far as it has been written.
struct Trace::Direction {
  enum class Framing : std::uint8_t { kStartup, kFpdus, kUnknown };

  SocketAddress from, to;
  std::uint32_t next_seq = 0;
  Bytes pending;
  std::size_t ready = 0;  // octets at the front of `pending` that are whole frames
  Framing framing = Framing::kStartup;
  StreamOffset offset = 0;  // behind the start-up frame
  bool wants_markers = false;
  bool bare = false;  // neither CRC nor markers
  bool closed = false;

  void parse(bool markers);
  [[nodiscard]] bool parse_startup();
  [[nodiscard]] bool parse_fpdu(bool markers);
  void packet(PcapFile& file, std::uint32_t ack, std::uint8_t flags, const std::uint8_t* data,
              std::size_t size);
};

bool Trace::Direction::parse_startup() {
  const std::size_t have = pending.size() - ready;
  if (have < kMpaFrameSize) return false;
  const std::uint8_t* frame = pending.data() + ready;
  if (std::memcmp(frame, "MPA ID Re", 9) != 0) {
    framing = Framing::kUnknown;
    return true;
  }
  const std::size_t size = kMpaFrameSize + load_be16(frame + 18);
  if (have < size) return false;
  constexpr std::uint8_t kMarkersBit = 0x80;
  wants_markers = (frame[16] & kMarkersBit) != 0;
  ready += size;
  framing = Framing::kFpdus;
  return true;
}

bool Trace::Direction::parse_fpdu(bool markers) {
  markers = markers && !bare;
  const std::size_t have = pending.size() - ready;
  const std::size_t lead = markers && until_marker(offset) == 0 ? kMarkerSize : 0;
  if (have < lead + kFpduLengthSize) return false;
  const std::uint16_t length = load_ulpdu_length(pending.data() + ready + lead);
  const std::size_t size = markers ? fpdu_size_marked(offset, length) : fpdu_size(length);
  // With markers, one FPDU for each packet: Wireshark cannot decode several.
  if (have < size || (ready != 0 && (markers || ready + size > kPayloadMax))) return false;
  if (bare) {
    std::uint8_t* const fpdu = pending.data() + ready;
    const std::size_t covered = size - kCrcSize;
    store_crc(fpdu + covered, crc32c({fpdu, covered}));
  }
  ready += size;
  offset += size;
  return true;
}

void Trace::Direction::parse(bool markers) {
  bool more = true;
  while (more && ready < pending.size()) {
    switch (framing) {
      case Framing::kStartup: more = parse_startup(); break;
      case Framing::kFpdus: more = parse_fpdu(markers); break;
      case Framing::kUnknown:
        ready = pending.size();
        more = false;
        break;
    }
  }
}

void Trace::Direction::packet(PcapFile& file, std::uint32_t ack, std::uint8_t flags,
                              const std::uint8_t* data, std::size_t size) {
  const bool v6 = from.family() == AF_INET6;
  const std::size_t options = (flags & kSyn) != 0 ? sizeof kSynOptions : 0;
  const std::size_t ip_size = v6 ? kIpv6Size : kIpv4Size;
  const std::size_t tcp_size = kTcpSize + options + size;
  Bytes out(ip_size + tcp_size);
  std::uint8_t* ip = out.data();
  std::uint8_t* tcp = ip + ip_size;

  const std::size_t address_size = v6 ? 16 : 4;
  std::uint8_t* addresses = ip + (v6 ? 8 : 12);
  if (v6) {
    ip[0] = 0x60;
    store_be16(ip + 4, static_cast<std::uint16_t>(tcp_size));
    ip[6] = IPPROTO_TCP;
    ip[7] = kTtl;
  } else {
    ip[0] = 0x45;
    store_be16(ip + 2, static_cast<std::uint16_t>(out.size()));
    store_be16(ip + 6, 0x4000);  // don't fragment
    ip[8] = kTtl;
    ip[9] = IPPROTO_TCP;
  }
  put_address(from, addresses);
  put_address(to, addresses + address_size);
  if (!v6) store_be16(ip + 10, finish_sum(add_sum(0, ip, kIpv4Size)));

  store_be16(tcp, from.port());
  store_be16(tcp + 2, to.port());
  store_be32(tcp + 4, next_seq);
  store_be32(tcp + 8, (flags & kAck) != 0 ? ack : 0);
  tcp[12] = static_cast<std::uint8_t>((kTcpSize + options) / 4 << 4U);
  tcp[13] = flags;
  store_be16(tcp + 14, kWindow);
  if (options != 0) std::memcpy(tcp + kTcpSize, kSynOptions, options);
  if (size != 0) std::memcpy(tcp + kTcpSize + options, data, size);

  std::uint32_t sum = add_sum(0, addresses, 2 * address_size);
  sum += IPPROTO_TCP + static_cast<std::uint32_t>(tcp_size);
  store_be16(tcp + 16, finish_sum(add_sum(sum, tcp, tcp_size)));

  file.write_packet(out);
  next_seq += static_cast<std::uint32_t>(size) + ((flags & (kSyn | kFin)) != 0 ? 1U : 0U);
}

// --- Trace ---

Trace::Trace(std::shared_ptr<PcapFile> file, const SocketAddress& local, const SocketAddress& peer,
             bool initiator)
    : file_(std::move(file)),
      ours_(std::make_unique<Direction>()),
      theirs_(std::make_unique<Direction>()) {
  ours_->from = theirs_->to = local;
  ours_->to = theirs_->from = peer;
  if (!file_->claim(local.shown(), peer.shown())) {
    file_.reset();
    return;
  }
  ours_->next_seq = file_->next_isn();
  theirs_->next_seq = file_->next_isn();
  Direction& first = initiator ? *ours_ : *theirs_;
  Direction& second = initiator ? *theirs_ : *ours_;
  if_there_is_room([&] {
    first.packet(*file_, 0, kSyn, nullptr, 0);
    second.packet(*file_, first.next_seq, kSyn | kAck, nullptr, 0);
    first.packet(*file_, second.next_seq, kAck, nullptr, 0);
  });
}

Trace::~Trace() {
  if_there_is_room([&] {
    flush(*ours_, *theirs_, true);
    flush(*theirs_, *ours_, true);
  });
  if (file_ != nullptr) file_->release(ours_->from.shown(), ours_->to.shown());
}

template <class Write>
void Trace::if_there_is_room(Write write) noexcept {
  if (file_ == nullptr) return;
  try {
    write();
  } catch (const std::bad_alloc&) {
    give_up();
  }
}

void Trace::give_up() noexcept {
  os::log(LogLevel::kError, "no memory to capture the connection {} - {} further",
          ours_->from.shown().view(), ours_->to.shown().view());
  file_->release(ours_->from.shown(), ours_->to.shown());
  file_.reset();
}

void Trace::flush(Direction& from, Direction& to, bool all) {
  if (all) from.ready = from.pending.size();
  std::size_t at = 0;
  while (at < from.ready) {
    const std::size_t size = std::min(from.ready - at, kPayloadMax);
    from.packet(*file_, to.next_seq, kPsh | kAck, from.pending.data() + at, size);
    at += size;
  }
  from.pending.erase(from.pending.begin(), from.pending.begin() + static_cast<std::ptrdiff_t>(at));
  from.ready = 0;
}

// Whole frames are written at once, as many to a packet as fit; the rest waits for what completes
// it.
void Trace::feed(Direction& from, Direction& to, const std::uint8_t* data, std::size_t size) {
  if (from.closed) return;
  while (size != 0) {
    const std::size_t some = std::min(size, kPayloadMax);
    from.pending.insert(from.pending.end(), data, data + some);
    data += some;
    size -= some;
    from.parse(to.wants_markers);
    while (from.ready != 0) {
      flush(from, to, false);
      from.parse(to.wants_markers);
    }
  }
}

void Trace::by_ring(bool tx, bool rx) noexcept {
  ours_->bare = tx;
  theirs_->bare = rx;
}

void Trace::fin(Direction& from, Direction& to) {
  if (from.closed) return;
  flush(from, to, true);
  from.packet(*file_, to.next_seq, kFin | kAck, nullptr, 0);
  from.closed = true;
}

// The first `bytes` octets of the list.
void Trace::feed(Direction& from, Direction& to, std::span<const Slice> slices, std::size_t bytes) {
  for (const Slice& s : slices) {
    const std::size_t n = std::min(s.size, bytes);
    feed(from, to, s.data, n);
    bytes -= n;
    if (bytes == 0) return;
  }
}

void Trace::tx(std::span<const Slice> slices, std::size_t bytes) {
  if_there_is_room([&] { feed(*ours_, *theirs_, slices, bytes); });
}
void Trace::rx(std::span<const Slice> slices, std::size_t bytes) {
  if_there_is_room([&] { feed(*theirs_, *ours_, slices, bytes); });
}

void Trace::tx(std::span<const std::uint8_t> bytes) {
  if_there_is_room([&] { feed(*ours_, *theirs_, bytes.data(), bytes.size()); });
}
void Trace::rx(std::span<const std::uint8_t> bytes) {
  if_there_is_room([&] { feed(*theirs_, *ours_, bytes.data(), bytes.size()); });
}
void Trace::tx_fin() {
  if_there_is_room([&] { fin(*ours_, *theirs_); });
}
void Trace::rx_fin() {
  if_there_is_room([&] { fin(*theirs_, *ours_); });
}

void Trace::reset(bool by_us) {
  Direction& from = by_us ? *ours_ : *theirs_;
  Direction& to = by_us ? *theirs_ : *ours_;
  if_there_is_room([&] {
    flush(from, to, true);
    from.packet(*file_, to.next_seq, kRst | kAck, nullptr, 0);
    from.closed = to.closed = true;
  });
}

// --- Tracer ---

Result<std::unique_ptr<Tracer>> Tracer::open(const std::string& path) {
  auto file = PcapFile::open(os::with_pid(path));
  if (file == nullptr) return fail(Error::kSystem);
  return std::unique_ptr<Tracer>(new Tracer(std::move(file)));
}

std::unique_ptr<Trace> Tracer::start(const SocketAddress& local, const SocketAddress& peer,
                                     bool initiator) {
  return std::make_unique<Trace>(file_, local, peer, initiator);
}

}  // namespace weft::trace
