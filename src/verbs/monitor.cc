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
  out.counters = page.counters;
  return out;
}

}  // namespace weft
