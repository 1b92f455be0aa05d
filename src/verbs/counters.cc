// Sums of counters, and their copy in the page that other processes read.
#include <algorithm>

#include "verbs/device.h"

namespace weft::verbs {

void add(Counters& sum, const Counters& more) {
  sum.tx_bytes += more.tx_bytes;
  sum.rx_bytes += more.rx_bytes;
  sum.tx_fpdus += more.tx_fpdus;
  sum.rx_fpdus += more.rx_fpdus;
  sum.tx_calls += more.tx_calls;
  sum.rx_calls += more.rx_calls;
  sum.rx_empty += more.rx_empty;
  sum.tx_blocked += more.tx_blocked;
  for (std::size_t i = 0; i < sum.tx_messages.size(); ++i) {
    sum.tx_messages[i] += more.tx_messages[i];
    sum.rx_messages[i] += more.rx_messages[i];
  }
  sum.crc_errors += more.crc_errors;
  sum.terminates_sent += more.terminates_sent;
  sum.terminates_received += more.terminates_received;
  sum.wakeups += more.wakeups;
  sum.polls += more.polls;
  sum.empty_polls += more.empty_polls;
  sum.connections_opened += more.connections_opened;
  sum.connections_refused += more.connections_refused;
  sum.small_segments += more.small_segments;
}

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
}

void DeviceImpl::fill_page(io::CountersPage& page) const {
  const Counters c = counters();
  page.queue_pairs = static_cast<std::uint32_t>(count(ObjectKind::kQp));
  page.connections = static_cast<std::uint32_t>(std::max(up_.load(std::memory_order_relaxed), 0));
  page.rings = rings_.now();
  page.tx_bytes = c.tx_bytes;
  page.rx_bytes = c.rx_bytes;
  page.tx_fpdus = c.tx_fpdus;
  page.rx_fpdus = c.rx_fpdus;
  page.tx_calls = c.tx_calls;
  page.rx_calls = c.rx_calls;
  page.rx_empty = c.rx_empty;
  page.tx_blocked = c.tx_blocked;
  page.tx_messages = c.tx_messages;
  page.rx_messages = c.rx_messages;
  page.crc_errors = c.crc_errors;
  page.terminates_sent = c.terminates_sent;
  page.terminates_received = c.terminates_received;
  page.wakeups = c.wakeups;
  page.polls = c.polls;
  page.empty_polls = c.empty_polls;
  page.connections_opened = c.connections_opened;
  page.connections_refused = c.connections_refused;
  page.small_segments = c.small_segments;
}

Counters DeviceImpl::counters() const {
  if (!usable()) return {};
  Counters sum;
  {
    const std::lock_guard lock(registry_mutex_);
    sum = retired_;
    for (const CounterSource* source : sources_) source->add_counters(sum);
  }
  for (const auto& engine : engines_) sum.wakeups += engine->wakeups();
  sum.connections_opened += opened_.load(std::memory_order_relaxed);
  sum.connections_refused += refused_.load(std::memory_order_relaxed);
  return sum;
}

}  // namespace weft::verbs
