// Devices, listeners and the setting up of connections.
#include <weft/limits.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "rddp/api.h"
#include "wire/limits.h"

using weft::Duration;
using weft::Error;
using weft::Instant;
using weft::rddp::Channel;
using weft::rddp::Domain;
using weft::rddp::Link;
using Phase = weft::rddp::Channel::Phase;

namespace {

constexpr Duration kStartupLimit{std::chrono::seconds(10)};
constexpr std::uint16_t kReadsAtOnce = 8;
constexpr std::uint32_t kSocketsMax = 4096;

Instant limit_of(const rddp_device& device, int timeout_ms) {
  if (timeout_ms < 0) return Instant::never();
  return device.now() + std::chrono::milliseconds(timeout_ms);
}

bool sensible(const rddp_options& o) {
  const auto depth = [](std::uint32_t d) {
    return d != 0 && d <= weft::limits::kWorkRequestsPerQueue;
  };
  return o.sockets != 0 && o.sockets <= kSocketsMax && depth(o.send_depth) && depth(o.recv_depth) &&
         o.notify_depth <= weft::limits::kWorkRequestsPerQueue && o.regions != 0 &&
         o.regions < weft::limits::kMemoryRegions;
}

}  // namespace

namespace weft::rddp {

rddp_device* make_device(std::unique_ptr<Network> network, const rddp_options* options) {
  rddp_options chosen;
  rddp_default_options(&chosen);
  if (options != nullptr) chosen = *options;
  if (network == nullptr || !sensible(chosen)) return nullptr;
  std::unique_ptr<rddp_device> device(new (std::nothrow) rddp_device);
  if (device == nullptr) return nullptr;
  device->options = chosen;
  device->domain.reset(new (std::nothrow) Domain(network->random(), chosen.regions));
  device->network = std::move(network);
  return device->domain != nullptr ? device.release() : nullptr;
}

int status_of(Error error) noexcept {
  switch (error) {
    case Error::kInvalidArgument:
    case Error::kPrivateDataTooLong: return RDDP_INVALID;
    case Error::kNoMemory:
    case Error::kLimitExceeded: return RDDP_NO_MEMORY;
    case Error::kNoSpace: return RDDP_FULL;
    case Error::kBadState: return RDDP_BAD_STATE;
    case Error::kRefused: return RDDP_REFUSED;
    case Error::kUnreachable: return RDDP_UNREACHABLE;
    case Error::kAddressInUse:
    case Error::kBusy: return RDDP_IN_USE;
    case Error::kNotFound: return RDDP_NOT_FOUND;
    case Error::kUnsupported: return RDDP_UNSUPPORTED;
    default: return RDDP_SYSTEM;
  }
}

}  // namespace weft::rddp

// --- device ---

void rddp_device::pump(Instant until) {
  for (const rddp_socket* s : sockets) {
    until = std::min({until, s->channel().deadline(), s->start_by});
  }
  network->wait(until);
  const Instant time = now();
  for (rddp_socket* s : sockets) s->keep_time(time);
}

std::unique_ptr<rddp_socket> rddp_device::make_socket(rddp_kind kind) {
  if (sockets.size() >= options.sockets) return nullptr;
  std::unique_ptr<rddp_socket> made(new (std::nothrow) rddp_socket(*this, kind));
  if (made == nullptr || !made->allocate()) return nullptr;
  return made;
}

weft::proto::StartupOffer rddp_device::offer(rddp_kind kind, const void* data,
                                             std::size_t length) const {
  weft::proto::StartupOffer offer;
  offer.crc = options.crc != 0;
  offer.markers = options.markers != 0;
  offer.private_data = {static_cast<const std::uint8_t*>(data), length};
  if (kind == RDDP_RDMA) {
    offer.peer_to_peer = true;
    offer.ird = offer.ord = kReadsAtOnce;
  } else {
    offer.revision = 1;  // the words of revision 2 are about RDMAP
  }
  return offer;
}

extern "C" {

void rddp_default_options(rddp_options* options) {
  options->sockets = 64;
  options->send_depth = 16;
  options->recv_depth = 16;
  options->notify_depth = 64;
  options->regions = 256;
  options->crc = 1;
  options->markers = 0;
}

void rddp_close_device(rddp_device* device) { delete device; }

int rddp_poll(rddp_device* device, int timeout_ms) {
  device->pump(limit_of(*device, timeout_ms));
  return RDDP_OK;
}

// --- connecting ---

int rddp_create(rddp_device* device, rddp_kind kind, rddp_socket** socket) {
  *socket = nullptr;
  if (kind != RDDP_RDMA && kind != RDDP_DDP && kind != RDDP_XPT) return RDDP_INVALID;
  *socket = device->make_socket(kind).release();
  return *socket != nullptr ? RDDP_OK : RDDP_NO_MEMORY;
}

int rddp_connect(rddp_socket* socket, const char* host, std::uint16_t port, const void* data,
                 std::size_t length) {
  if (host == nullptr || (data == nullptr && length != 0) ||
      length > weft::limits::kPrivateDataBytes) {
    return RDDP_INVALID;
  }
  if (socket->link != nullptr) return RDDP_BAD_STATE;
  rddp_device& device = socket->device;
  Channel& channel = socket->channel();
  auto link =
      device.network->connect(channel, host, port, device.offer(socket->kind, data, length));
  if (!link) return weft::rddp::status_of(link.error());
  socket->link = std::move(*link);
  const Instant limit =
      std::min(limit_of(device, socket->timeout_ms != 0 ? socket->timeout_ms : -1),
               device.now() + kStartupLimit);
  while (channel.phase() == Phase::kStarting) {
    if (device.now() >= limit) {
      channel.abort();
      return RDDP_TIMED_OUT;
    }
    device.pump(limit);
  }
  const Phase phase = channel.phase();
  return phase == Phase::kFailed || phase == Phase::kRefused ? RDDP_REFUSED : RDDP_OK;
}

// --- listening ---

int rddp_listen(rddp_device* device, rddp_kind kind, const char* host, std::uint16_t port,
                rddp_listener** listener) {
  *listener = nullptr;
  if (kind != RDDP_RDMA && kind != RDDP_DDP && kind != RDDP_XPT) return RDDP_INVALID;
  std::unique_ptr<rddp_listener> made(new (std::nothrow) rddp_listener(*device, kind));
  if (made == nullptr) return RDDP_NO_MEMORY;
  auto opened = device->network->listen(*made, host, port);
  if (!opened) return weft::rddp::status_of(opened.error());
  made->port = std::move(*opened);
  *listener = made.release();
  return RDDP_OK;
}

std::uint16_t rddp_port(const rddp_listener* listener) { return listener->port->number(); }

void rddp_close_listener(rddp_listener* listener) { delete listener; }

int rddp_accept(rddp_listener* listener, int timeout_ms, rddp_socket** socket) {
  rddp_device& device = listener->device;
  const Instant limit = limit_of(device, timeout_ms);
  while (true) {
    std::unique_ptr<rddp_socket> made = listener->next();
    *socket = made.release();
    if (*socket != nullptr) return RDDP_OK;
    const Instant time = device.now();
    device.pump(limit);
    if (time < limit) continue;
    *socket = listener->next().release();
    if (*socket != nullptr) return RDDP_OK;
    return timeout_ms == 0 ? RDDP_AGAIN : RDDP_TIMED_OUT;
  }
}

int rddp_answer(rddp_socket* socket, int yes, const void* data, std::size_t length) {
  Channel& channel = socket->channel();
  if ((data == nullptr && length != 0) || length > weft::limits::kPrivateDataBytes) {
    return RDDP_INVALID;
  }
  rddp_device& device = socket->device;
  const weft::proto::StartupOffer offer = device.offer(socket->kind, data, length);
  const weft::Status taken = yes != 0 ? channel.accept(offer) : channel.reject(offer.private_data);
  if (!taken) return weft::rddp::status_of(taken.error());
  socket->start_by = device.now() + kStartupLimit;
  socket->link->progress();
  while (channel.phase() == Phase::kStarting) device.pump(Instant::never());
  socket->start_by = Instant::never();
  if (yes == 0) return RDDP_OK;
  return channel.phase() == Phase::kFailed ? RDDP_DOWN : RDDP_OK;
}

const void* rddp_private_data(const rddp_socket* socket, std::size_t* length) {
  const std::span<const std::uint8_t> data = socket->channel().private_data();
  *length = data.size();
  return data.data();
}

}  // extern "C"

rddp_listener::~rddp_listener() = default;

Channel* rddp_listener::next_channel() {
  std::erase_if(waiting, [](const auto& s) {
    const Phase phase = s->channel().phase();
    return phase == Phase::kFailed || phase == Phase::kRefused;
  });
  std::unique_ptr<rddp_socket> made = device.make_socket(kind);
  if (made == nullptr) return nullptr;
  made->start_by = device.now() + kStartupLimit;  // for its request to come
  waiting.push_back(std::move(made));
  return &waiting.back()->channel();
}

void rddp_listener::connected(Channel& channel, std::unique_ptr<Link> link) {
  for (const auto& s : waiting) {
    if (&s->channel() == &channel) s->link = std::move(link);
  }
}

std::unique_ptr<rddp_socket> rddp_listener::next() {
  for (auto i = waiting.begin(); i != waiting.end();) {
    const Phase phase = (*i)->channel().phase();
    if (phase == Phase::kRequest) {
      std::unique_ptr<rddp_socket> found = std::move(*i);
      waiting.erase(i);
      found->start_by = Instant::never();
      return found;
    }
    i = phase == Phase::kFailed ? waiting.erase(i) : i + 1;
  }
  return nullptr;
}
