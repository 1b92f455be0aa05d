// Where the device and a protection domain make what belongs to them: the only source that knows
// all kinds of objects. The objects themselves know their device and their domain.
#include <new>

#include "os/cancel.h"
#include "os/guarded.h"
#include "roce/qp_number.h"
#include "verbs/completion_channel.h"
#include "verbs/connection.h"
#include "verbs/cq.h"
#include "verbs/device.h"
#include "verbs/listener.h"
#include "verbs/memory.h"
#include "verbs/oob/datagram_qp.h"
#include "verbs/oob/peer_directory.h"
#include "verbs/pd.h"
#include "verbs/peer_watch.h"
#include "verbs/qp.h"
#include "verbs/random.h"
#include "verbs/srq.h"
#include "verbs/window.h"

namespace weft {

Result<std::shared_ptr<Device>> Device::open(const Config& config) {
  auto device = os::guarded([&] { return verbs::DeviceImpl::create(config); });
  if (!device) return fail(device.error());
  return std::shared_ptr<Device>(std::move(*device));
}

namespace verbs {

namespace {

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

}  // namespace

DeviceImpl::DeviceImpl(const Config& config, std::uint64_t secret)
    : config_(config), memory_(secret), batches_(config.send_memory_bytes) {}

Result<std::shared_ptr<DeviceImpl>> DeviceImpl::create(const Config& config) {
  const os::NoCancel guard;
  if (!acceptable(config)) return fail(Error::kInvalidArgument);
  auto device = std::shared_ptr<DeviceImpl>(new DeviceImpl(config, random_u64()));
  if (auto ready = device->init(); !ready) return fail(ready.error());
  return device;
}

Status DeviceImpl::init() {
  if (!memory_.stags.has_index()) return fail(Error::kNoMemory);
  if (auto log = os::configure_log(config_.log, config_.log_file); !log) return log;
  if (auto opened = async_events_.open(); !opened) return opened;
  if (auto engines = create_engines(); !engines) return engines;
  rings_.start(engine(), io::handler_within(weak_from_this(), &rings_));
  kept_question_.start(engine(), io::handler_within(weak_from_this(), &kept_question_));
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
  // A child cannot take apart objects that the parent's threads may hold or wait for.
  if (!usable()) {
    static_cast<void>(peer_directory_.release());
    return;
  }
  const os::NoCancel guard;
  peer_directory_.reset();
  page_.remove();
}

// --- objects of the device ---

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

Result<std::uint32_t> DeviceImpl::take_qp_number() {
  if (peer_directory_ == nullptr) return take_number();
  ensure_page();
  return peer_directory_->take_number();
}

void DeviceImpl::free_qp_number(std::uint32_t number) {
  if (peer_directory_ == nullptr) return free_number(number);
  if (usable()) peer_directory_->free_number(number);
}

// --- objects of a domain ---

Result<std::shared_ptr<MemoryRegion>> ProtectionDomainImpl::register_memory(void* addr,
                                                                            std::size_t length,
                                                                            Access access) {
  return register_memory_iova(addr, length, reinterpret_cast<std::uintptr_t>(addr), access);
}

Result<std::shared_ptr<MemoryRegion>> ProtectionDomainImpl::register_memory_iova(void* addr,
                                                                                 std::size_t length,
                                                                                 std::uint64_t iova,
                                                                                 Access access) {
  return os::guarded(
      [&] { return MemoryRegionImpl::create(shared_from_this(), addr, length, iova, access); });
}

Result<std::shared_ptr<MemoryWindow>> ProtectionDomainImpl::create_window(MemoryWindow::Type type) {
  return os::guarded([&] { return MemoryWindowImpl::create(shared_from_this(), type); });
}

Result<std::shared_ptr<QueuePair>> ProtectionDomainImpl::create_qp(const QpOptions& options) {
  return os::guarded([&] {
    if (options.type == QpType::kUd) return DatagramQp::create(shared_from_this(), options);
    return QueuePairImpl::create(shared_from_this(), options);
  });
}

Result<std::shared_ptr<SharedReceiveQueue>> ProtectionDomainImpl::create_srq(
    const SrqOptions& options) {
  return os::guarded([&] { return SharedReceiveQueueImpl::create(shared_from_this(), options); });
}

}  // namespace verbs
}  // namespace weft
