// Devices, listeners and the setting up of connections.
#include <weft/limits.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "rddp/api.h"
#include "wire/limits.h"

using weft::Duration;
using weft::Error;
using weft::Instant;
using weft::rddp::Channel;
using weft::rddp::Domain;
using weft::rddp::Link;
using weft::rddp::status_of;
using Phase = weft::rddp::Channel::Phase;

namespace {

constexpr Duration kStartupLimit{std::chrono::seconds(10)};
constexpr std::uint16_t kReadsAtOnce = 8;
constexpr std::uint32_t kSocketsMax = 4096;

bool sensible(const rddp_options& o) {
  const auto depth = [](std::uint32_t d) {
    return d != 0 && d <= weft::limits::kWorkRequestsPerQueue;
  };
  return o.sockets != 0 && o.sockets <= kSocketsMax && o.backlog != 0 && o.backlog <= kSocketsMax &&
         depth(o.send_depth) && depth(o.recv_depth) &&
         o.notify_depth <= weft::limits::kWorkRequestsPerQueue && o.regions != 0 &&
         o.regions < weft::limits::kMemoryRegions;
}

// The outcome of rddp_connect().
int connect_status(const rddp_socket& socket) {
  const Phase phase = socket.phase();
  if (phase == Phase::kRefused) return RDDP_REFUSED;
  if (phase != Phase::kFailed) return RDDP_OK;
  const auto failure = socket.link->failure();
  if (!failure) return RDDP_DOWN;  // TCP was there
  errno = failure->system_error;
  return status_of(failure->error);
}

}  // namespace

namespace weft::rddp {

Result<rddp_device*> make_device(std::unique_ptr<Network> network, const rddp_options* options) {
  rddp_options chosen;
  rddp_default_options(&chosen);
  if (options != nullptr) chosen = *options;
  if (!sensible(chosen)) return fail(Error::kInvalidArgument);
  std::unique_ptr<rddp_device> device(new (std::nothrow) rddp_device);
  if (network == nullptr || device == nullptr) return fail(Error::kNoMemory);
  device->options = chosen;
  device->domain.reset(new (std::nothrow) Domain(network->random(), chosen.regions));
  device->network = std::move(network);
  if (device->domain == nullptr || !device->domain->good()) return fail(Error::kNoMemory);
  return device.release();
}

int status_of(Error error) noexcept {
  switch (error) {
    case Error::kInvalidArgument:
    case Error::kPrivateDataTooLong: return RDDP_INVALID;
    case Error::kNoMemory:
    case Error::kLimitExceeded: return RDDP_NO_MEMORY;
    case Error::kNoSpace: return RDDP_FULL;
    case Error::kBadState: return RDDP_BAD_STATE;
    case Error::kTimedOut: return RDDP_TIMED_OUT;
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

Instant rddp_device::in(int timeout_ms) const {
  if (timeout_ms < 0) return Instant::never();
  return now() + std::chrono::milliseconds(timeout_ms);
}

void rddp_device::pump(Instant until) {
  for (const rddp_socket* s = sockets; s != nullptr; s = s->next_of_device) {
    until = std::min({until, s->channel().deadline(), s->start_by});
  }
  network->wait(until);
  const Instant time = now();
  for (rddp_socket* s = sockets; s != nullptr; s = s->next_of_device) {
    s->keep_time(time);
    s->collect();
  }
}

std::unique_ptr<rddp_socket> rddp_device::make_socket(rddp_kind kind) {
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
  options->backlog = 16;
  options->send_depth = 16;
  options->recv_depth = 16;
  options->notify_depth = 64;
  options->regions = 256;
  options->crc = 1;
  options->markers = 0;
}

void rddp_close_device(rddp_device* device) { delete device; }

int rddp_poll(rddp_device* device, int timeout_ms) {
  device->pump(device->in(timeout_ms));
  return RDDP_OK;
}

// --- connecting ---

int rddp_create(rddp_device* device, rddp_kind kind, rddp_socket** socket) {
  *socket = nullptr;
  if (kind != RDDP_RDMA && kind != RDDP_DDP && kind != RDDP_XPT) return RDDP_INVALID;
  std::unique_ptr<rddp_socket> made = device->make_socket(kind);
  if (made == nullptr || !made->hold()) return RDDP_NO_MEMORY;
  *socket = made.release();
  return RDDP_OK;
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
  if (!link) return status_of(link.error());
  socket->link = std::move(*link);
  const Instant limit = std::min(device.in(socket->timeout_ms != 0 ? socket->timeout_ms : -1),
                                 device.now() + kStartupLimit);
  while (channel.phase() == Phase::kStarting) {
    if (device.now() >= limit) {
      channel.abort();
      socket->link->progress();
      return RDDP_TIMED_OUT;
    }
    device.pump(limit);
  }
  return connect_status(*socket);
}

// --- listening ---

int rddp_listen(rddp_device* device, rddp_kind kind, const char* host, std::uint16_t port,
                rddp_listener** listener) {
  *listener = nullptr;
  if (kind != RDDP_RDMA && kind != RDDP_DDP && kind != RDDP_XPT) return RDDP_INVALID;
  std::unique_ptr<rddp_listener> made(new (std::nothrow) rddp_listener(*device, kind));
  if (made == nullptr || !made->waiting.allocate(device->options.backlog)) return RDDP_NO_MEMORY;
  auto opened = device->network->listen(*made, host, port);
  if (!opened) return status_of(opened.error());
  made->port = std::move(*opened);
  *listener = made.release();
  return RDDP_OK;
}

std::uint16_t rddp_port(const rddp_listener* listener) { return listener->port->number(); }

void rddp_close_listener(rddp_listener* listener) { delete listener; }

int rddp_accept(rddp_listener* listener, int timeout_ms, rddp_socket** socket) {
  rddp_device& device = listener->device;
  const Instant limit = device.in(timeout_ms);
  *socket = nullptr;
  bool last = false;
  while (true) {
    rddp_socket* const next = listener->next();
    if (next != nullptr && !next->hold()) return RDDP_NO_MEMORY;
    if (next != nullptr) {
      (void)listener->waiting.remove_one(next);
      *socket = next;
      return RDDP_OK;
    }
    if (last) return timeout_ms == 0 ? RDDP_AGAIN : RDDP_TIMED_OUT;
    last = device.now() >= limit;
    device.pump(limit);
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
  if (!taken) return status_of(taken.error());
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

rddp_listener::~rddp_listener() {
  port.reset();  // nothing comes any more
  while (!waiting.empty()) delete waiting.pop();
}

void rddp_listener::drop_failed() {
  for (std::size_t i = waiting.size(); i-- > 0;) {
    rddp_socket* const s = waiting[i];
    if (s->phase() != Phase::kFailed && s->phase() != Phase::kRefused) continue;
    waiting.remove(i);
    delete s;
  }
}

// Peers that connect and say nothing must not keep others away: the oldest of them goes.
bool rddp_listener::drop_silent() {
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    rddp_socket* const s = waiting[i];
    if (s->phase() == Phase::kRequest) continue;
    waiting.remove(i);
    delete s;
    return true;
  }
  return false;
}

Channel* rddp_listener::next_channel() {
  drop_failed();
  if (waiting.full() && !drop_silent()) return nullptr;
  std::unique_ptr<rddp_socket> made = device.make_socket(kind);
  if (made == nullptr) return nullptr;
  made->start_by = device.now() + kStartupLimit;  // for its request to come
  waiting.push(made.get());
  return &made.release()->channel();
}

void rddp_listener::connected(Channel& channel, std::unique_ptr<Link> link) {
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (&waiting[i]->channel() == &channel) waiting[i]->link = std::move(link);
  }
}

rddp_socket* rddp_listener::next() {
  drop_failed();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i]->phase() != Phase::kRequest) continue;
    waiting[i]->start_by = Instant::never();
    return waiting[i];
  }
  return nullptr;
}
