// Sums of counters, and their copy in the page that other processes read.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "verbs/device.h"

namespace weft::verbs {

namespace {

// All of them, without their names: the public header is where they are listed.
using All = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;

}  // namespace

void add(Counters& sum, const Counters& more) {
  auto all = std::bit_cast<All>(sum);
  std::ranges::transform(all, std::bit_cast<All>(more), all.begin(), std::plus<>{});
  sum = std::bit_cast<Counters>(all);
}

// Each of them by its name, because the two lists differ.
static_assert(sizeof(proto::StreamCounters) == (9 + 2 * 16) * sizeof(proto::Counter),
              "add() must name the new counter of a stream");

void add(Counters& sum, const proto::StreamCounters& more) {
  sum.tx_bytes += more.tx_bytes.get();
  sum.rx_bytes += more.rx_bytes.get();
  sum.tx_fpdus += more.tx_fpdus.get();
  sum.rx_fpdus += more.rx_fpdus.get();
  for (std::size_t i = 0; i < more.tx_messages.size(); ++i) {
    sum.tx_messages[i] += more.tx_messages[i].get();
    sum.rx_messages[i] += more.rx_messages[i].get();
  }
  sum.crc_errors += more.crc_errors.get();
  sum.terminates_sent += more.terminates_sent.get();
  sum.terminates_received += more.terminates_received.get();
  sum.small_segments += more.small_segments.get();
  sum.messages_dropped += more.messages_dropped.get();
}

void DeviceImpl::fill_page(io::CountersPage& page) const {
  page.queue_pairs = static_cast<std::uint32_t>(count(ObjectKind::kQp));
  page.connections = static_cast<std::uint32_t>(std::max(up_.load(std::memory_order_relaxed), 0));
  page.rings = rings_.now();
  page.counters = counters();
}

Counters DeviceImpl::counters() const {
  if (!usable()) return {};
  Counters sum;
  {
    const io::MutexLock lock(registry_mutex_);
    sum = retired_;
    for (const CounterSource* source : sources_) source->add_counters(sum);
  }
  for (const auto& engine : engines_) sum.wakeups += engine->wakeups();
  sum.connections_opened += opened_.load(std::memory_order_relaxed);
  sum.connections_refused += refused_.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace weft::verbs
