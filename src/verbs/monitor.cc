// The counters page of another process, in the words of the public API.
#include <weft/monitor.h>

#include "io/counters_page.h"

namespace weft {

Result<ProcessCounters> read_process_counters(int pid) {
  io::CountersPage page;
  if (auto read = io::read_counters_page(pid, page); !read) return tl::unexpected(read.error());
  ProcessCounters out;
  out.queue_pairs = page.queue_pairs;
  out.connections = page.connections;
  out.rings = page.rings;
  out.age_ns = page.updated_ns - page.started_ns;
  Counters& c = out.counters;
  c.tx_bytes = page.tx_bytes;
  c.rx_bytes = page.rx_bytes;
  c.tx_fpdus = page.tx_fpdus;
  c.rx_fpdus = page.rx_fpdus;
  c.tx_calls = page.tx_calls;
  c.rx_calls = page.rx_calls;
  c.rx_empty = page.rx_empty;
  c.tx_blocked = page.tx_blocked;
  c.tx_messages = page.tx_messages;
  c.rx_messages = page.rx_messages;
  c.crc_errors = page.crc_errors;
  c.terminates_sent = page.terminates_sent;
  c.terminates_received = page.terminates_received;
  c.wakeups = page.wakeups;
  c.polls = page.polls;
  c.empty_polls = page.empty_polls;
  c.connections_opened = page.connections_opened;
  c.connections_refused = page.connections_refused;
  c.small_segments = page.small_segments;
  return out;
}

}  // namespace weft
