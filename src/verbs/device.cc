#include "verbs/device.h"

#include <algorithm>
#include <new>

#include "os/cancel.h"
#include "os/guarded.h"
#include "os/ticks.h"
#include "roce/qp_number.h"
#include "verbs/completion_channel.h"
#include "verbs/connection.h"
#include "verbs/cq.h"
#include "verbs/listener.h"
#include "verbs/oob/peer_directory.h"
#include "verbs/pd.h"
#include "verbs/peer_watch.h"
#include "verbs/random.h"

namespace weft {

Result<std::shared_ptr<Device>> Device::open(const Config& config) {
  auto device = os::guarded([&] { return verbs::DeviceImpl::create(config); });
  if (!device) return fail(device.error());
  return std::shared_ptr<Device>(std::move(*device));
}

namespace verbs {

namespace {

constexpr std::uint32_t kNumberMask = (1U << 24U) - 1;
// Lines about refused set-ups: this many per second at most, so that no scanner fills the disk.
constexpr std::uint32_t kRefusedLinesMax = 10;
constexpr Duration kRefusedWindow{1'000'000'000};

bool acceptable(const Config& c) {
  const auto positive = [](std::chrono::nanoseconds d) { return d.count() > 0; };
  const auto not_negative = [](std::chrono::nanoseconds d) { return d.count() >= 0; };
  return (c.mpa_revision == 1 || c.mpa_revision == 2) && c.ird <= limits::kIrd &&
         c.ord <= limits::kOrd && positive(c.connect_timeout) && positive(c.request_timeout) &&
         positive(c.reply_timeout) && positive(c.rtr_timeout) && positive(c.close_timeout) &&
         not_negative(c.refused_wait) && not_negative(c.recv_wait) &&
         not_negative(c.first_fpdu_wait) && not_negative(c.nudge_wait) &&
         not_negative(c.keepalive) && not_negative(c.user_timeout) && not_negative(c.spin) &&
         c.roce_port_min >= roce::kPortMin && c.roce_port_min <= c.roce_port_max &&
         (c.roce_secret.empty() || c.roce_secret.size() >= limits::kSecretBytesMin);
}

std::size_t limit_of(ObjectKind kind) {
  switch (kind) {
    case ObjectKind::kPd: return limits::kProtectionDomains;
    case ObjectKind::kCq:
    case ObjectKind::kChannel: return limits::kCompletionQueues;
    case ObjectKind::kQp: return limits::kQueuePairs;
    case ObjectKind::kSrq: return limits::kSharedReceiveQueues;
    // Limited together, by the STag table.
    case ObjectKind::kRegion:
    case ObjectKind::kWindow: return limits::kMemoryRegions;
    // A descriptor each: the kernel's limit comes first.
    case ObjectKind::kConnection:
    case ObjectKind::kListener: return limits::kMemoryRegions;
  }
  return 0;
}

}  // namespace

DeviceImpl::DeviceImpl(const Config& config, std::uint64_t secret)
    : config_(config),
      stags_(secret, &random_u32, limits::kMemoryRegions),
      batches_(config.send_memory_bytes),
      ticks_per_us_(os::ticks_per_us()),
      cores_(os::usable_cores()) {}

Result<std::shared_ptr<DeviceImpl>> DeviceImpl::create(const Config& config) {
  const os::NoCancel guard;
  if (!acceptable(config)) return fail(Error::kInvalidArgument);
  auto device = std::shared_ptr<DeviceImpl>(new DeviceImpl(config, random_u64()));
  if (auto ready = device->init(); !ready) return fail(ready.error());
  return device;
}

Status DeviceImpl::init() {
  if (!stags_.has_index()) return fail(Error::kNoMemory);
  if (auto log = os::configure_log(config_.log, config_.log_file); !log) return log;
  auto events = os::SignalQueue<AsyncEvent>::create();
  if (!events) return fail(events.error());
  async_events_ = std::move(*events);
  if (auto engines = create_engines(); !engines) return engines;
  rings_.start(engine(), io::handler_within(weak_from_this(), &rings_));
  peer_watch_ = std::make_unique<PeerWatch>(*this);
  if (!config_.pcap.empty()) {
    auto tracer = trace::Tracer::open(config_.pcap);
    if (!tracer) {
      os::log(LogLevel::kError, "cannot write the trace {}", config_.pcap);
      return fail(tracer.error());
    }
    tracer_ = std::move(*tracer);
  }
  if (config_.personality == Personality::kRoce) {
    auto peer_directory = PeerDirectory::create(*this);
    if (!peer_directory) return fail(peer_directory.error());
    peer_directory_ = std::move(*peer_directory);
    send_when_the_process_exits();
  }
  return {};
}

DeviceImpl::~DeviceImpl() {
  // What the parent's threads may hold or wait for cannot be taken apart in a child.
  if (!usable()) {
    static_cast<void>(peer_directory_.release());
    return;
  }
  const os::NoCancel guard;
  peer_directory_.reset();
  page_.reset();
}

std::shared_ptr<DeviceImpl> DeviceImpl::self() {
  return std::static_pointer_cast<DeviceImpl>(shared_from_this());
}

// --- objects ---

Result<std::shared_ptr<ProtectionDomain>> DeviceImpl::create_pd() {
  return os::guarded([this] { return ProtectionDomainImpl::create(self()); });
}

Result<std::shared_ptr<CompletionChannel>> DeviceImpl::create_channel() {
  return os::guarded([this] { return CompletionChannelImpl::create(self()); });
}

Result<std::shared_ptr<CompletionQueue>> DeviceImpl::create_cq(const CqOptions& options) {
  return os::guarded([&] { return CompletionQueueImpl::create(self(), options); });
}

Result<std::shared_ptr<Connection>> DeviceImpl::create_connection(
    std::shared_ptr<EventChannel> channel) {
  if (channel == nullptr) return fail(Error::kInvalidArgument);
  return os::guarded([&] { return ConnectionImpl::create(self(), channel); });
}

Result<std::shared_ptr<Listener>> DeviceImpl::create_listener(
    std::shared_ptr<EventChannel> channel) {
  if (channel == nullptr) return fail(Error::kInvalidArgument);
  return os::guarded([&] { return ListenerImpl::create(self(), channel); });
}

Status DeviceImpl::acquire(ObjectKind kind) {
  if (!usable()) return fail(Error::kBadState);
  auto& count = counts_[static_cast<std::size_t>(kind)];
  if (count.fetch_add(1, std::memory_order_relaxed) >= limit_of(kind)) {
    count.fetch_sub(1, std::memory_order_relaxed);
    return fail(Error::kLimitExceeded);
  }
  return {};
}

void DeviceImpl::release(ObjectKind kind) noexcept {
  counts_[static_cast<std::size_t>(kind)].fetch_sub(1, std::memory_order_relaxed);
}

std::size_t DeviceImpl::count(ObjectKind kind) const noexcept {
  return counts_[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed);
}

std::size_t DeviceImpl::users() const {
  std::size_t sum = 0;
  for (const auto& count : counts_) sum += count.load(std::memory_order_relaxed);
  return sum;
}

std::uint32_t DeviceImpl::take_number() {
  const os::MutexLock lock(registry_mutex_);
  do {
    next_number_ = (next_number_ + 1) & kNumberMask;
  } while (next_number_ == 0 || !numbers_.insert(next_number_).second);
  return next_number_;
}

void DeviceImpl::free_number(std::uint32_t number) {
  if (!usable()) return;
  const os::MutexLock lock(registry_mutex_);
  numbers_.erase(number);
}

Result<std::uint32_t> DeviceImpl::take_qp_number() {
  if (peer_directory_ == nullptr) return take_number();
  ensure_page();
  return peer_directory_->take_number();
}

void DeviceImpl::free_qp_number(std::uint32_t number) {
  if (peer_directory_ == nullptr) return free_number(number);
  if (usable()) peer_directory_->free_number(number);
}

void DeviceImpl::add_source(const CounterSource* source) {
  const os::MutexLock lock(registry_mutex_);
  sources_.insert(source);
}

void DeviceImpl::remove_source(const CounterSource* source) {
  if (!usable()) return;
  const os::MutexLock lock(registry_mutex_);
  if (sources_.erase(source) != 0) source->add_counters(retired_);
}

// --- asynchronous events ---

void DeviceImpl::raise(AsyncEvent event) {
  if (!usable()) return;
  os::log(LogLevel::kDebug, "asynchronous event: {}", describe(event.type));
  const os::MutexLock lock(async_mutex_);
  const AsyncEventType type = event.type;
  const auto* const sink = &async_sink_;
  // Whoever raises it is in the middle of something, and can't do it again.
  const auto queued = os::guarded([&]() -> Status {
    if (*sink) {
      (*sink)(event);
    } else if (!async_events_->push_below(std::move(event), limits::kAsyncEvents)) {
      return fail(Error::kLimitExceeded);
    }
    return {};
  });
  if (queued) return;
  static_cast<void>(os::guarded([&]() -> Status {
    os::log(
        LogLevel::kError, "an asynchronous event is lost ({}): {}",
        queued.error() == Error::kLimitExceeded ? "too many wait unread" : describe(queued.error()),
        describe(type));
    return {};
  }));
}

Result<AsyncEvent> DeviceImpl::next_async_event(std::optional<std::chrono::nanoseconds> timeout) {
  return async_events_->next(timeout);
}

void DeviceImpl::set_async_sink(std::function<void(const AsyncEvent&)> sink) {
  if (!usable()) return;
  const os::MutexLock lock(async_mutex_);
  async_sink_ = std::move(sink);
  if (!async_sink_) return;
  while (auto event = async_events_->try_pop()) async_sink_(*event);
}

// --- set-ups ---

void DeviceImpl::note_refused(LogLevel level, std::string_view who, std::string_view why) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  if (!os::log_enabled(level)) return;
  if (level != LogLevel::kWarning) {
    os::log(level, "set-up with {} ended: {}", who, why);
    return;
  }
  const os::MutexLock lock(refused_mutex_);
  const Instant time = os::now();
  if (time - refused_window_ >= kRefusedWindow) {
    if (refused_silent_ != 0) {
      os::log(LogLevel::kWarning, "{} more set-ups refused", refused_silent_);
    }
    refused_window_ = time;
    refused_lines_ = refused_silent_ = 0;
  }
  if (refused_lines_ == kRefusedLinesMax) {
    ++refused_silent_;
    return;
  }
  ++refused_lines_;
  os::log(LogLevel::kWarning, "set-up with {} refused: {}", who, why);
}

void DeviceImpl::ensure_page() {
  const os::NoCancel guard;
  const os::MutexLock lock(page_mutex_);
  if (page_tried_) return;
  page_tried_ = true;
  auto page = os::guarded([this] {
    return io::CountersPublisher::create(engine(),
                                         [this](io::CountersPage& out) { fill_page(out); });
  });
  if (page) {
    page_ = std::move(*page);
  } else if (page.error() == Error::kNoSpace) {
    os::log(LogLevel::kWarning,
            "no room in XDG_RUNTIME_DIR or /dev/shm: `weft stat` cannot show this process");
  } else {
    os::log(LogLevel::kInfo, "no page of counters: {}", describe(page.error()));
  }
}

}  // namespace verbs
}  // namespace weft
